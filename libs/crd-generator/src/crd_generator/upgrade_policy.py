"""The CRD of UpgradePolicy, with the limits of `common.upgrade.policy`.

KubeRay's kinds are generated from Go types. This schema is written by hand, because most of it is
validation. Tests check it and `common.upgrade.policy` against the same table of valid and invalid
specs.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from common import durations
from common.upgrade import fields, gate_types, policy
from crd_generator.schema import Schema

FILE: Final = "raybus.io_upgradepolicies.yaml"
GROUP: Final = "raybus.io"
PLURAL: Final = "upgradepolicies"
_MAX_TEXT_LENGTH: Final = 32
_COLUMNS: Final = (
    ("Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status', 0),
    ("OnFailure", "string", ".spec.onFailure", 0),
    ("Steps", "string", ".spec.steps", 1),
    ("Gates", "string", ".spec.gates", 1),
    ("Bake", "string", ".spec.bake", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
)
"""Printer columns: name, type, JSON path, priority.

If a path leads to a list, its column shows the first match, or the whole list as JSON. Columns with
a whole list have priority 1, so they appear only with `-o wide`.
"""


def definition() -> Schema:
    """Return the complete CRD of UpgradePolicy."""
    version: Schema = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {
                "name": name,
                "type": kind,
                "jsonPath": path,
                **({"priority": priority} if priority else {}),
            }
            for name, kind, path, priority in _COLUMNS
        ],
        "schema": {"openAPIV3Schema": _root()},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["raybus"],
                "kind": "UpgradePolicy",
                "listKind": "UpgradePolicyList",
                "plural": PLURAL,
                "shortNames": ["up"],
                "singular": "upgradepolicy",
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _root() -> Schema:
    return _object(
        "How the upgrades of RayServices go: steps, gates and what surrounds them. A RayService "
        "names its policy by "
        "the annotation raybus.io/upgrade-policy; the annotation raybus.io/default makes one the "
        "default of its namespace.",
        {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec(),
            "status": _status(),
        },
        required=("spec",),
    )


def spec() -> Schema:
    """Return the schema of `spec`."""
    return _object(
        "The policy. An edit applies to the next upgrade, or at once (applyEdits).",
        {
            "warmUp": _warm_up(),
            "mirror": _mirror(),
            "preview": _preview(),
            "steps": _steps(),
            "gates": _list(
                "What must hold for the new cluster: limits on its requests and on queries of "
                "Prometheus, and answers of webhooks.",
                _gate(),
                gate_types.MAX_GATES,
            ),
            "onFailure": _choice(
                "What a failed gate does to the upgrade.",
                policy.OnFailure,
                default=policy.OnFailure.ROLLBACK,
            ),
            "bake": _duration(
                "How long the replaced cluster keeps its capacity once all traffic has moved, "
                "ready for a rollback."
            ),
            "autoPromote": {
                "description": "Whether the new cluster is promoted without its user.",
                "type": "boolean",
                "default": True,
            },
            "applyEdits": _choice(
                "When an edit of this policy applies to an upgrade that began with this value: "
                "to the next one instead, or at once. "
                "No edit takes traffic back.",
                policy.ApplyEdits,
                default=policy.ApplyEdits.NEXT_UPGRADE,
            ),
        },
    )


def _steps() -> Schema:
    step = _object(
        "A share of the traffic, and how long it stays.",
        {
            "weight": _integer(
                "Percent of the traffic; more than in the step before.", 1, policy.WHOLE
            ),
            "hold": _duration("The shortest time at this weight."),
            "pause": _object("The upgrade waits here until its user resumes it.", {}),
        },
        required=("weight",),
    )
    return {
        **_list(
            "Steps of the traffic. Without any, clusterUpgradeOptions of the RayService hold.",
            step,
            gate_types.MAX_STEPS,
        ),
        "x-kubernetes-validations": [
            _rule(
                "self.map(s, s.weight).isSorted() && self.all(s, self.exists_one(o, o.weight == "
                "s.weight))",
                "weights must increase from step to step",
            ),
            _rule("self[self.size() - 1].weight == 100", "the weight of the last step must be 100"),
        ],
    }


def _gate() -> Schema:
    percent, duration = _anchored(fields.PERCENT.pattern), _anchored(fields.DURATION.pattern)
    decimal = _anchored(fields.DECIMAL.pattern)
    longest = _go(fields.MAX_LATENCY)
    properties = {
        "metric": {
            "description": "What is measured. latency and timeToFirstToken need a quantile.",
            "type": "string",
            "enum": list(gate_types.SPELLINGS),
        },
        "quantile": {
            "description": (
                "Quantile of the durations: 0.95 is the time within which 95 % of the requests end."
            ),
            "type": "number",
            "minimum": gate_types.LOWEST_QUANTILE,
            "maximum": gate_types.HIGHEST_QUANTILE,
        },
        "max": _text(
            "The limit: a percentage of the requests (1%), a duration (250ms), or of prometheus "
            "a number in quotes ('0.5').",
            f"{percent}|{duration}|{decimal}",
        ),
        "min": _text(
            "The least value of a query of prometheus: a number in quotes ('0.5').", decimal
        ),
        "maxIncrease": {
            **_text("The limit as a growth over the value of the active cluster: 30%.", percent),
            "x-kubernetes-validations": [
                _rule(
                    f"double(self.replace('%', '')) <= {gate_types.MAX_INCREASE}.0",
                    f"must be at most {gate_types.MAX_INCREASE}%",
                )
            ],
        },
        "minRequests": _integer(
            f"Requests without which the gate does not pass; {gate_types.MIN_REQUESTS} when "
            "absent.",
            1,
            gate_types.MAX_REQUESTS,
        ),
        "prometheus": _prometheus(),
        "webhook": _object(
            "A server that decides before the first traffic and at each step.",
            {
                "url": _url(
                    "Its address. raybus asks only servers that its administrator lists in "
                    "RAYBUS_GATE_TARGETS."
                )
            },
            required=("url",),
        ),
    }
    rules = [
        _rule(
            f"[{', '.join(f'has(self.{kind})' for kind in gate_types.Kind)}].exists_one(each, "
            "each)",
            f"state exactly one of {', '.join(gate_types.Kind)}",
            at=".metric",
        ),
        *_rules_of_kinds(decimal),
        _rule(
            "!has(self.metric) || has(self.max) != has(self.maxIncrease)",
            "state exactly one of max and maxIncrease",
            at=".max",
        ),
        _rule(
            "!has(self.metric) || self.metric != 'errorRate' || !has(self.max) || "
            f"(self.max.matches('{percent}') "
            "&& double(self.max.replace('%', '')) <= 100.0)",
            "of errorRate, must be a percentage such as 1%, at most 100%",
            at=".max",
        ),
        _rule(
            "!has(self.metric) || self.metric == 'errorRate' || !has(self.max) || "
            f"(self.max.matches('{duration}') "
            "&& duration(self.max) > duration('0s') && duration(self.max) <= "
            f"duration('{longest}'))",
            f"of a latency, must be a positive duration such as 250ms, at most {longest}",
            at=".max",
        ),
        _rule(
            "!has(self.metric) || has(self.quantile) == (self.metric in ['latency', "
            "'timeToFirstToken'])",
            "latency and timeToFirstToken need a quantile, the other metrics take none",
            at=".quantile",
        ),
    ]
    return {
        **_object("A condition on the new cluster.", properties),
        "x-kubernetes-validations": rules,
    }


def _rules_of_kinds(decimal: str) -> list[Schema]:
    """Return CEL rules that allow each field of a gate only for the kinds of gates that use it."""
    return [
        _rule(
            "has(self.metric) || has(self.prometheus) || !has(self.max)",
            "is a field of a gate with a metric or prometheus",
            at=".max",
        ),
        _rule(
            "has(self.prometheus) || !has(self.min)",
            "is a field of a gate with prometheus",
            at=".min",
        ),
        _rule(
            "!has(self.prometheus) || has(self.max) != has(self.min)",
            "of prometheus, state exactly one of max and min",
            at=".max",
        ),
        _rule(
            f"!has(self.prometheus) || !has(self.max) || self.max.matches('{decimal}')",
            "of prometheus, must be a number in quotes such as '0.5', without an exponent",
            at=".max",
        ),
        *(
            _rule(
                f"has(self.metric) || !has(self.{field})",
                "is a field of a gate with a metric",
                at=f".{field}",
            )
            for field in ("maxIncrease", "minRequests", "quantile")
        ),
    ]


def _prometheus() -> Schema:
    address = _url(
        "Its address, without /api/v1/query. raybus asks only servers that its administrator "
        "lists in RAYBUS_GATE_TARGETS."
    )
    address["x-kubernetes-validations"].append(
        _rule("!self.contains('?')", "must not have a query")
    )
    names = ", ".join(f"${placeholder}" for placeholder in gate_types.PLACEHOLDERS)
    asked = {
        **_text(
            f"The query of PromQL; its value is a scalar or a vector of one series. {names} are "
            "names of the upgrade, $$ is a dollar sign.",
            _anchored(gate_types.QUERY.pattern),
            longest=gate_types.MAX_QUERY_LENGTH,
        ),
        "x-kubernetes-validations": [
            _rule(
                f"self.matches(r'{_anchored(gate_types.PLACED.pattern)}')",
                f"must have no other placeholder than {names}; $$ is a dollar sign",
            )
        ],
    }
    return _object(
        "A query of a Prometheus, evaluated each 15 s at each step.",
        {"address": address, "query": asked},
        required=("address", "query"),
    )


def _url(description: str) -> Schema:
    return {
        **_text(description, _anchored(gate_types.URL.pattern), longest=gate_types.MAX_URL_LENGTH),
        "x-kubernetes-validations": [
            _rule(
                "isURL(self) && (url(self).getPort() == '' || (int(url(self).getPort()) > 0 && "
                "int(url(self).getPort()) <= 65535))",
                "must have a port from 1 to 65535, or none",
            )
        ],
    }


def _warm_up() -> Schema:
    return _object(
        "Requests to the new cluster before its first traffic.",
        {
            "requests": _integer("How many.", 1, policy.MAX_WARM_UP_REQUESTS),
            "path": {
                **_text(
                    "Path of the requests.",
                    _anchored(policy.PATH.pattern),
                    longest=policy.MAX_PATH_LENGTH,
                ),
                "default": "/",
                "x-kubernetes-validations": [
                    _rule(
                        "!self.contains('..') && !self.contains('//')",
                        "must not contain '..' or '//'",
                    )
                ],
            },
            "concurrency": _integer(
                "How many at once.", 1, policy.MAX_CONCURRENT_REQUESTS, default=1
            ),
        },
        required=("requests",),
    )


def _mirror() -> Schema:
    methods = {
        **_list(
            "Methods of the requests that are copied.",
            {"type": "string", "enum": list(policy.METHODS)},
            len(policy.METHODS),
        ),
        "x-kubernetes-list-type": "set",
        "default": ["GET"],
    }
    duration = _duration("How long.")
    duration["x-kubernetes-validations"].append(
        _rule("duration(self) > duration('0s')", "must be positive")
    )
    return _object(
        "Copies of requests for the new cluster before its first traffic; their answers are "
        "discarded.",
        {
            "percent": _integer("Percent of the requests.", 1, policy.WHOLE),
            "duration": duration,
            "methods": methods,
        },
        required=("percent", "duration"),
    )


def _preview() -> Schema:
    header = _object(
        "A header of requests for the new cluster.",
        {
            "name": _text("Name.", _anchored(policy.HEADER_NAME.pattern), longest=256),
            "value": _text("Value.", _anchored(policy.HEADER_VALUE.pattern), longest=256),
        },
        required=("name", "value"),
    )
    service = {
        "description": "A Service of the new cluster alone.",
        "type": "boolean",
        "default": False,
    }
    return _object(
        "How you reach the new cluster before its first traffic.",
        {"service": service, "header": header},
    )


def _status() -> Schema:
    condition = _object(
        "A condition.",
        {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32768},
        },
        required=("type", "status", "lastTransitionTime", "reason", "message"),
    )
    conditions = {
        "type": "array",
        "items": condition,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }
    return _object("What raybus reports.", {"conditions": conditions})


def _object(
    description: str, properties: dict[str, Any], *, required: tuple[str, ...] = ()
) -> Schema:
    schema: Schema = {"description": description, "type": "object"}
    if properties:
        schema["properties"] = properties
    return {**schema, "required": list(required)} if required else schema


def _list(description: str, items: Schema, most: int) -> Schema:
    return {
        "description": description,
        "type": "array",
        "minItems": 1,
        "maxItems": most,
        "items": items,
        "x-kubernetes-list-type": "atomic",
    }


def _integer(description: str, least: int, most: int, *, default: int | None = None) -> Schema:
    schema: Schema = {
        "description": description,
        "type": "integer",
        "format": "int32",
        "minimum": least,
        "maximum": most,
    }
    return schema if default is None else {**schema, "default": default}


def _text(description: str, pattern: str, *, longest: int = _MAX_TEXT_LENGTH) -> Schema:
    return {"description": description, "type": "string", "maxLength": longest, "pattern": pattern}


def _duration(description: str) -> Schema:
    longest = _go(fields.MAX_DURATION)
    rule = _rule(f"duration(self) <= duration('{longest}')", f"must be at most {longest}")
    return {
        **_text(description, _anchored(fields.DURATION.pattern)),
        "x-kubernetes-validations": [rule],
    }


def _choice(description: str, values: Iterable[str], *, default: str) -> Schema:
    return {
        "description": description,
        "type": "string",
        "enum": [str(value) for value in values],
        "default": str(default),
    }


def _rule(rule: str, message: str, *, at: str | None = None) -> Schema:
    validation = {"rule": rule, "message": message}
    return validation if at is None else {**validation, "fieldPath": at}


def _anchored(pattern: str) -> str:
    return f"^(?:{pattern})$"


def _go(length: timedelta) -> str:
    return durations.text(length)
