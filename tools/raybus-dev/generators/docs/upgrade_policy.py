"""The page docs/reference/upgrade-policy.md: the fields of UpgradePolicy, from the CRD's schema."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from crd_generator import upgrade_policy
from crd_generator.schema import Schema
from generators.docs import markdown
from support.builders.upgrade_policy import a_policy

_TYPES: Final = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
}
_HEAD: Final = f"""\
# UpgradePolicy

This page lists every field of `raybus.io/v1alpha1` UpgradePolicy (`kubectl get up`).
{markdown.WRITTEN} The how-to page
[Release a model version by canary with gates](../how-to/canary.md) shows how to use a policy.

A RayService selects its policy with the annotation `raybus.io/upgrade-policy: NAME`. The policy is
in the namespace of the RayService. A policy with the annotation `raybus.io/default: "true"` applies
to the RayServices of its namespace that name none.

An upgrade follows the policy with which it began. raybus records this policy on the new RayCluster,
in the annotation `raybus.io/upgrade-policy-record`. With `applyEdits: AtOnce` the upgrade also
follows [edits during the upgrade](../how-to/canary.md#change-the-policy-of-an-upgrade-in-progress).

The API server rejects a policy that breaks a rule of this page, with a message that names the
field. `raybus policy lint FILE` checks a file without a cluster.
`raybus policy try NAME --service NAME` evaluates the gates with the requests that a RayService
answers now.

"""
_TAIL: Final = """
## Status

raybus writes the condition `Accepted` when an upgrade is about to begin, and after an edit that
applies at once. A policy that no upgrade has used has no condition.

| `Accepted` | meaning |
|---|---|
| `True` | upgrades can follow the policy |
| `False` (`Invalid`) | a rule is broken; a new upgrade waits, a current one keeps its policy |

`observedGeneration` is the generation of the policy that the condition describes. The results of an
upgrade are in the RayService: in its conditions, above all `UpgradeGatesPassed`, and in its
receipt.

## Gates

A gate passes once the new cluster has answered `minRequests` requests and the value is within the
limit. It fails once the value is above the limit and chance is excluded as the cause. Otherwise,
and without any requests, it is inconclusive.

- Ray counts the requests on each node: HTTP and gRPC, for all routes of an application together and
  for each route. Health checks, unknown paths and WebSocket connections do not count.
- Errors are errors of the server: HTTP 5xx and 408 (Serve's time limit), and the gRPC codes
  UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE and
  DATA_LOSS.
- `timeToFirstToken` is vLLM's metric, which Ray exports with `log_engine_metrics: true`.
- The statistics are valid at any time, so raybus may evaluate a gate every second. If the new
  version is as good as the old one, its gates fail with a probability of at most 1 %. In the tests,
  an error rate of 2 % with 1 % allowed failed after 1,500 requests (median) and at most 7,000; a
  p95 that grew by 137 % with 30 % allowed failed after 430 and at most 2,500.
- Requests count from the last change of the weight. In a long step or bake a gate is also evaluated
  for the requests since each of the last five full minutes, so that many good requests do not hide
  errors that begin late.
- A gate with `maxIncrease` compares with the requests that the active cluster answers at the same
  time. Once all traffic has moved, it compares with the requests of the step before.
- If all traffic moves at once, all requests to the new cluster before the switch count: those of
  its warm-up and of its preview Service. If the policy has neither, a gate with a `metric` does not
  apply ([how to](../how-to/blue-green.md#decide-the-switch-by-requests)).
- A gate with `maxIncrease` needs at least `minRequests` requests of the active cluster and, for a
  quantile, about 100 (p90), 200 (p95) or 1,200 (p99).
- Serve counts durations in the buckets of a histogram. A limit inside a bucket is only as exact as
  the bucket is wide, so choose a bound of a bucket for `max`. The variable
  `RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS` of the containers sets the bounds. Use the same bounds for
  both clusters.
- A `webhook` is asked before the first traffic and at each step, and its answer decides the gate
  ([how to](../how-to/canary.md#ask-a-webhook)). Without an answer the gate is inconclusive. If a
  policy has several webhooks, their names contain their position: `webhook[2]` is `spec.gates[2]`.
- A `prometheus` query is evaluated every 15 s at each step, and in blue/green before the switch
  ([how to](../how-to/canary.md#ask-prometheus)). The gate passes while the last value is at most
  30 s old and within the limit; the value at the end of `hold` decides the step. The gate fails
  after three consecutive values beyond the limit, at least 15 s apart; this suits a Prometheus that
  scrapes every 15 to 30 s. A value within the limit or a missing value restarts the count. No
  series, several series, `NaN` and errors are inconclusive. In the query, `$namespace`, `$service`,
  `$activeCluster` and `$pendingCluster` are names of the upgrade, and `$$` is a dollar sign.
"""


def page() -> str:
    """Return the text of the page about the UpgradePolicy."""
    example = yaml.safe_dump(a_policy(), sort_keys=False, width=100)
    lines = [f"{_HEAD}```yaml\n{example}```\n\n## Fields\n"]
    lines += markdown.table(
        ("field", "type", "limits", "meaning"), _rows(upgrade_policy.spec(), "spec")
    )
    return "\n".join(lines) + "\n" + _TAIL


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        place, inner = f"{path}.{name}", field.get("items", field)
        mark = " (required)" if name in required else ""
        yield f"`{place}`{mark}", _type(field), "; ".join(_limits(field)), field["description"]
        yield from _rows(inner, f"{place}[]" if "items" in field else place)


def _type(field: Schema) -> str:
    if field["type"] == "array":
        items = field["items"]
        return f"list of {'objects' if items['type'] == 'object' else _TYPES[items['type']]}"
    if field["type"] == "object":
        return "object" if field.get("properties") else "empty object"
    return _TYPES[field["type"]]


def _limits(field: Schema) -> Iterator[str]:
    values = field.get("enum") or field.get("items", {}).get("enum")
    if values:
        yield "one of " + ", ".join(f"`{value}`" for value in values)
    if "minimum" in field:
        yield f"{field['minimum']:,} to {field['maximum']:,}"
    if "maxItems" in field:
        yield f"1 to {field['maxItems']}"
    if field.get("maxLength", 0) > 32:  # shorter limits are part of the validation rules below
        yield f"at most {field['maxLength']:,} characters"
    for rule in field.get("x-kubernetes-validations", []):
        yield rule["message"]
    if field["type"] == "array" and field["items"]["type"] == "object":
        for rule in field["items"].get("x-kubernetes-validations", []):
            yield f"`{rule['fieldPath'].removeprefix('.')}`: {rule['message']}"
    if "default" in field:
        yield f"`{_shown(field['default'])}` when absent"


def _shown(value: Any) -> str:
    return str(value).strip("[]'") if not isinstance(value, bool) else str(value).lower()
