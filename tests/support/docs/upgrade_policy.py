"""docs/reference/upgrade-policy.md: each field of an UpgradePolicy, off the schema that the API server holds it to."""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from crd_generator import upgrade_policy
from crd_generator.schema import Schema
from support.builders.upgrade_policy import a_policy
from support.docs import markdown

_TYPES: Final = {
    "boolean": "true or false",
    "integer": "whole number",
    "number": "number",
    "string": "text",
}
_HEAD: Final = f"""\
# UpgradePolicy

Every field of `raybus.io/v1alpha1` UpgradePolicy (`kubectl get up`). {markdown.WRITTEN} The how-to page
[Release a model version by canary with gates](../how-to/canary.md) uses it.

A RayService chooses its policy by the annotation `raybus.io/upgrade-policy: NAME`; the policy is in the namespace of the RayService. The policy
with the annotation `raybus.io/default: "true"` is for the RayServices of its namespace that name none. An upgrade follows the
policy that it began with: raybus records it on the new RayCluster, in the annotation `raybus.io/upgrade-policy-record`. With `applyEdits: AtOnce`
it follows [an edit in mid-upgrade](../how-to/canary.md#change-the-policy-of-an-upgrade-in-progress), too.

The API server refuses a policy that breaks a rule of this page, with the field in its message. `raybus policy lint FILE` checks a file without a
cluster, and `raybus policy try NAME --service NAME` evaluates the gates with the requests that a RayService answers now.

"""
_TAIL: Final = """
## Status

raybus writes the condition `Accepted` when an upgrade is about to begin and reads the policy, and after an edit that applies at once, so a policy that no upgrade has used has none. True: upgrades can follow it. False, with the reason `Invalid`:
a field breaks a rule, and the message names it; an upgrade that is to begin waits, and one in progress keeps what it follows. `observedGeneration` is the edit that it is about. What an upgrade that follows the policy came to is in the RayService: its conditions, above all
`UpgradeGatesPassed`, and its receipt.

## Gates

A gate passes once the new cluster has answered `minRequests` requests and its value is within the limit. It fails when its value is above the
limit and chance is excluded as the cause. Otherwise it is inconclusive; no requests are neither success nor failure.

- Requests are counted by Ray on each node: HTTP and gRPC, by all of an application's routes together and by each route. Health checks and unknown
  paths do not count. WebSocket connections do not, either.
- Errors are those of the server: HTTP 5xx and 408 (Serve's time limit), and the gRPC codes UNKNOWN, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED,
  UNIMPLEMENTED, INTERNAL, UNAVAILABLE and DATA_LOSS.
- `timeToFirstToken` is vLLM's, which Ray exports with `log_engine_metrics: true`.
- The statistics are valid at any time, so raybus may evaluate a gate each second. An upgrade to an equal version fails by its gates with a
  probability of at most 1 %. Of 2 % errors with 1 % allowed, a failure needs 1,500 requests in the middle and at most 7,000 in the tests; of
  a p95 that grew by 137 % with 30 % allowed, 430 and 2,500.
- Requests count since the weight last changed, and in a long step or bake also since each of the last five full minutes: many good requests do not
  hide errors that begin late.
- A gate with `maxIncrease` compares with the requests that the active cluster answers at the same time; once all traffic has moved, with those of the
  step before.
- Where all traffic moves at once, all requests of the new cluster before the switch count: those of its warm-up and of its preview Service. In a policy without both, a gate with a `metric` does not apply there
  ([how to](../how-to/blue-green.md#decide-the-switch-by-requests)).
- A gate with `maxIncrease` needs enough requests of the active cluster: at least `minRequests`, and for a quantile about 100 (p90), 200 (p95)
  or 1,200 (p99).
- Durations are known by bucket of Serve's histograms. A limit within a wide bucket is as exact as the bucket: with `max`, choose a bound of a bucket.
  `RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS` in the containers' environment sets the bounds, for both clusters alike.
- A `webhook` is asked before the first traffic and at each step, and decides it ([how to](../how-to/canary.md#ask-a-webhook)). Without its answer the gate is inconclusive. Several
  webhooks of a policy are named by their position: `webhook[2]` is `spec.gates[2]`.
- A `prometheus` query is evaluated each 15 s at each step, in blue/green before the switch ([how to](../how-to/canary.md#ask-prometheus)). It passes while its last value, at most 30 s old, is within the limit; a step ends
  with the value at the end of its `hold`. It fails by three values beyond the limit one after another, at least 15 s apart, for Prometheus scrapes each 15 to 30 s; a value within the limit or a missing one begins the count anew.
  No series, more than one, `NaN` and errors are inconclusive. In the query `$namespace`, `$service`, `$activeCluster` and `$pendingCluster` are names of the upgrade, and `$$` is a dollar sign.
"""


def page() -> str:
    """Write the page."""
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
        yield "one of " + ", ".join(f"`{each}`" for each in values)
    if "minimum" in field:
        yield f"{field['minimum']:,} to {field['maximum']:,}"
    if "maxItems" in field:
        yield f"1 to {field['maxItems']}"
    if field.get("maxLength", 0) > 32:  # of the others the rules below state more
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
