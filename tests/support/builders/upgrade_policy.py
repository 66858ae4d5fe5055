"""UpgradePolicies for tests: one that states every field, and specs that are refused, each with the
field at fault.

The reader (`common.upgrade.policy`) and the CRD are tested with the same table, so neither accepts
what the other refuses.
"""

import base64
from copy import deepcopy
from typing import Any, Final

from common.api.opaque import Body, Json
from common.upgrade import webhook

CAREFUL: Final[Json] = {
    "warmUp": {"requests": 50, "path": "/warmup", "concurrency": 4},
    "mirror": {"percent": 10, "duration": "2m"},
    "steps": [
        {"weight": 1, "hold": "2m"},
        {"weight": 10, "hold": "5m"},
        {"weight": 25, "pause": {}},
        {"weight": 100},
    ],
    "gates": [
        {"metric": "errorRate", "max": "1%", "minRequests": 100},
        {"metric": "latencyP95", "maxIncrease": "30%", "minRequests": 100},
        {"metric": "timeToFirstToken", "quantile": 0.95, "maxIncrease": "30%"},
        {
            "prometheus": {
                "address": "http://prometheus.monitoring:9090",
                "query": 'avg(accuracy{cluster="$pendingCluster"})',
            },
            "min": "0.9",
        },
        {"webhook": {"url": "https://checks.example.com/upgrade"}},
    ],
    "onFailure": "Rollback",
    "bake": "15m",
    "autoPromote": True,
    "applyEdits": "NextUpgrade",
    "preview": {"service": True, "header": {"name": "x-raybus-version", "value": "next"}},
}
GATE: Final[Json] = {"metric": "errorRate", "max": "1%"}
STEP: Final[Json] = {"weight": 100}
WEBHOOK: Final[Json] = {"webhook": {"url": "https://checks.example.com/upgrade"}}
PROMETHEUS: Final[Json] = {
    "prometheus": {
        "address": "http://prometheus.monitoring:9090",
        "query": 'avg(accuracy{cluster="$pendingCluster"})',
    },
    "min": "0.9",
}


def _webhook(**fields: Any) -> Json:
    return {"gates": [GATE, {"webhook": fields}]}


def _gate(**fields: Any) -> Json:
    return {"gates": [GATE, {**GATE, **fields}]}


def _prometheus(**fields: Any) -> Json:
    return {"gates": [{**PROMETHEUS, "prometheus": {**PROMETHEUS["prometheus"], **fields}}]}


LEGAL: Final[dict[str, Json]] = {
    "a full policy": CAREFUL,
    "an empty one": {},
    "twenty steps": {"steps": [*({"weight": each} for each in range(1, 20)), STEP]},
    "ten gates": {"gates": [GATE] * 10},
    "one step": {"steps": [STEP]},
    "a step of a day": {"steps": [{"weight": 100, "hold": "24h0m0s"}]},
    "no errors at all": {"gates": [{"metric": "errorRate", "max": "0%"}]},
    "all errors": {"gates": [{"metric": "errorRate", "max": "100%"}]},
    "no growth": {"gates": [{"metric": "errorRate", "maxIncrease": "0%"}]},
    "an eleven-fold latency": {"gates": [{"metric": "latencyP50", "maxIncrease": "1000%"}]},
    "a fraction of a percent": {"gates": [{"metric": "errorRate", "max": "0.05%"}]},
    "a latency in milliseconds": {"gates": [{"metric": "latencyP99", "max": "250ms"}]},
    "a latency with a quantile": {"gates": [{"metric": "latency", "quantile": 0.999, "max": "1h"}]},
    "the median token": {"gates": [{"metric": "timeToFirstToken", "quantile": 0.5, "max": "2s"}]},
    "one request": {"gates": [{**GATE, "minRequests": 1}]},
    "a webhook": {"gates": [WEBHOOK]},
    "two webhooks": {"gates": [WEBHOOK, GATE, {"webhook": {"url": "http://10.1.2.3:8080"}}]},
    "a webhook at an address of IPv6": {
        "gates": [{"webhook": {"url": "https://[2001:db8::1]:8443/a?b=c&d=%20"}}]
    },
    "the longest address": {"gates": [{"webhook": {"url": "https://a.example/" + "a" * 482}}]},
    "a query": {"gates": [PROMETHEUS]},
    "two queries": {
        "gates": [PROMETHEUS, GATE, {"prometheus": PROMETHEUS["prometheus"], "max": "-0.5"}]
    },
    "every placeholder": _prometheus(
        query="f('$namespace', '$service', '$activeCluster', '$pendingCluster')"
    ),
    "dollar signs": _prometheus(
        query="""label_replace(up{a=~"b$", c=~"$$x$"}, "a", "$1${2}", "b", "(.*)") > 5$"""
    ),
    "a query of two lines": _prometheus(query="sum(\n\tup\n)"),
    "the longest query": _prometheus(query="a" * 1000),
    "a Prometheus below a path": _prometheus(address="https://a.example:9090/prometheus/"),
    "a week": {"bake": "168h"},
    "a path with a query": {"warmUp": {"requests": 1, "path": "/v1/warm.up?model=a&n=1"}},
    "the longest path": {"warmUp": {"requests": 1, "path": "/" + "a" * 999}},
    "a warm-up at the root": {"warmUp": {"requests": 10_000, "concurrency": 16}},
    "mirrored writes": {"mirror": {"percent": 100, "duration": "1s", "methods": ["GET", "POST"]}},
    "a preview by Service": {"preview": {"service": True}},
    "edits at once": {"applyEdits": "AtOnce", "onFailure": "Pause", "autoPromote": False},
}


ILLEGAL: Final[dict[str, tuple[Json, str]]] = {
    "no weight": ({"steps": [{"hold": "1m"}]}, "spec.steps[0].weight"),
    "a weight of nothing": ({"steps": [{"weight": 0}, STEP]}, "spec.steps[0].weight"),
    "a weight above all": ({"steps": [{"weight": 101}]}, "spec.steps[0].weight"),
    "a weight as text": ({"steps": [{"weight": "100"}]}, "spec.steps[0].weight"),
    "half a percent of weight": ({"steps": [{"weight": 0.5}, STEP]}, "spec.steps[0].weight"),
    "a weight twice": ({"steps": [{"weight": 10}, {"weight": 10}, STEP]}, "spec.steps"),
    "a smaller weight": ({"steps": [{"weight": 10}, {"weight": 5}, STEP]}, "spec.steps"),
    "a last step below all": ({"steps": [{"weight": 10}, {"weight": 50}]}, "spec.steps"),
    "no step": ({"steps": []}, "spec.steps"),
    "21 steps": ({"steps": [*({"weight": each} for each in range(1, 21)), STEP]}, "spec.steps"),
    "steps as an object": ({"steps": {"weight": 100}}, "spec.steps"),
    "a step as a number": ({"steps": [100]}, "spec.steps[0]"),
    "a negative hold": ({"steps": [{**STEP, "hold": "-1m"}]}, "spec.steps[0].hold"),
    "a hold without a unit": ({"steps": [{**STEP, "hold": "60"}]}, "spec.steps[0].hold"),
    "a hold as a number": ({"steps": [{**STEP, "hold": 60}]}, "spec.steps[0].hold"),
    "a hold with a blank": ({"steps": [{**STEP, "hold": "1 m"}]}, "spec.steps[0].hold"),
    "a hold over a week": ({"steps": [{**STEP, "hold": "168h1s"}]}, "spec.steps[0].hold"),
    "a pause that is true": ({"steps": [{**STEP, "pause": True}]}, "spec.steps[0].pause"),
    "no gate": ({"gates": []}, "spec.gates"),
    "11 gates": ({"gates": [GATE] * 11}, "spec.gates"),
    "a webhook and a metric": ({"gates": [{**GATE, **WEBHOOK}]}, "spec.gates[0]"),
    "a webhook with a limit": ({"gates": [{**WEBHOOK, "max": "1%"}]}, "spec.gates[0].max"),
    "a webhook with a quantile": (
        {"gates": [{**WEBHOOK, "quantile": 0.5}]},
        "spec.gates[0].quantile",
    ),
    "a webhook with requests": (
        {"gates": [{**WEBHOOK, "minRequests": 5}]},
        "spec.gates[0].minRequests",
    ),
    "a webhook without an address": (_webhook(), "spec.gates[1].webhook.url"),
    "a webhook as text": ({"gates": [{"webhook": "https://a.example"}]}, "spec.gates[0].webhook"),
    "a webhook over FTP": (_webhook(url="ftp://a.example"), "spec.gates[1].webhook.url"),
    "a webhook in a file": (_webhook(url="file:///etc/passwd"), "spec.gates[1].webhook.url"),
    "a webhook without a scheme": (_webhook(url="a.example/hook"), "spec.gates[1].webhook.url"),
    "a webhook without a host": (_webhook(url="https:///hook"), "spec.gates[1].webhook.url"),
    "a webhook with a user": (_webhook(url="https://me@a.example"), "spec.gates[1].webhook.url"),
    "a webhook with a password": (
        _webhook(url="https://me:secret@a.example"),
        "spec.gates[1].webhook.url",
    ),
    "a webhook with a fragment": (
        _webhook(url="https://a.example/#b"),
        "spec.gates[1].webhook.url",
    ),
    "a webhook with a blank": (_webhook(url="https://a.example/a b"), "spec.gates[1].webhook.url"),
    "a webhook with a line feed": (
        _webhook(url="https://a.example/a\nHost: b"),
        "spec.gates[1].webhook.url",
    ),
    "a webhook with a backslash": (
        _webhook(url="https://a.example\\@b.example"),
        "spec.gates[1].webhook.url",
    ),
    "a webhook at port 0": (_webhook(url="https://a.example:0"), "spec.gates[1].webhook.url"),
    "a webhook at port 65536": (
        _webhook(url="https://a.example:65536"),
        "spec.gates[1].webhook.url",
    ),
    "too long a webhook": (
        _webhook(url="https://a.example/" + "a" * 483),
        "spec.gates[1].webhook.url",
    ),
    "a query and a metric": ({"gates": [{**GATE, **PROMETHEUS}]}, "spec.gates[0]"),
    "a query and a webhook": ({"gates": [{**WEBHOOK, **PROMETHEUS}]}, "spec.gates[0]"),
    "a query without a limit": (
        {"gates": [{"prometheus": PROMETHEUS["prometheus"]}]},
        "spec.gates[0].max",
    ),
    "a query with two limits": ({"gates": [{**PROMETHEUS, "max": "1"}]}, "spec.gates[0].max"),
    "a limit of a query as a number": (
        {"gates": [{**PROMETHEUS, "min": 0.9}]},
        "spec.gates[0].min",
    ),
    "a limit of a query with an exponent": (
        {"gates": [{**PROMETHEUS, "min": "1e3"}]},
        "spec.gates[0].min",
    ),
    "a limit of a query that is no number": (
        {"gates": [{**PROMETHEUS, "min": "NaN"}]},
        "spec.gates[0].min",
    ),
    "a limit of a query as a percentage": (
        {"gates": [{"prometheus": PROMETHEUS["prometheus"], "max": "1%"}]},
        "spec.gates[0].max",
    ),
    "a limit of a metric as a number": (_gate(max="0.5"), "spec.gates[1].max"),
    "the least of a metric": (_gate(min="0.5"), "spec.gates[1].min"),
    "a webhook with the least value": ({"gates": [{**WEBHOOK, "min": "0.5"}]}, "spec.gates[0].min"),
    "a query with requests": (
        {"gates": [{**PROMETHEUS, "minRequests": 5}]},
        "spec.gates[0].minRequests",
    ),
    "a query with a growth": (
        {"gates": [{**PROMETHEUS, "maxIncrease": "5%"}]},
        "spec.gates[0].maxIncrease",
    ),
    "a query as text": (
        {"gates": [{**PROMETHEUS, "prometheus": "up"}]},
        "spec.gates[0].prometheus",
    ),
    "a query without a server": (
        {"gates": [{"prometheus": {"query": "up"}, "max": "1"}]},
        "spec.gates[0].prometheus.address",
    ),
    "a server without a query": (
        {"gates": [{"prometheus": {"address": "http://a.example"}, "max": "1"}]},
        "spec.gates[0].prometheus.query",
    ),
    "an empty query": (_prometheus(query=""), "spec.gates[0].prometheus.query"),
    "too long a query": (_prometheus(query="a" * 1001), "spec.gates[0].prometheus.query"),
    "a query with a control character": (
        _prometheus(query="up\x1b[2J"),
        "spec.gates[0].prometheus.query",
    ),
    "an unknown placeholder": (_prometheus(query='up{a="$pod"}'), "spec.gates[0].prometheus.query"),
    "a placeholder with more": (_prometheus(query="$namespaces"), "spec.gates[0].prometheus.query"),
    "a placeholder after dollar signs": (
        _prometheus(query="$$$pod"),
        "spec.gates[0].prometheus.query",
    ),
    "a Prometheus with a query in its address": (
        _prometheus(address="http://a.example/?query=up"),
        "spec.gates[0].prometheus.address",
    ),
    "a Prometheus with a password": (
        _prometheus(address="http://me:secret@a.example"),
        "spec.gates[0].prometheus.address",
    ),
    "no metric": ({"gates": [{"max": "1%"}]}, "spec.gates[0].metric"),
    "an unknown metric": (_gate(metric="throughput"), "spec.gates[1].metric"),
    "an unknown quantile": (_gate(metric="latencyP42", max="1s"), "spec.gates[1].metric"),
    "no limit": ({"gates": [{"metric": "errorRate"}]}, "spec.gates[0].max"),
    "two limits": (_gate(maxIncrease="1%"), "spec.gates[1].max"),
    "a percentage with a blank": (_gate(max="1 %"), "spec.gates[1].max"),
    "a fraction of errors": (_gate(max="0.01"), "spec.gates[1].max"),
    "a number of errors": (_gate(max=1), "spec.gates[1].max"),
    "more errors than requests": (_gate(max="100.01%"), "spec.gates[1].max"),
    "negative errors": (_gate(max="-1%"), "spec.gates[1].max"),
    "errors as a duration": (_gate(max="1s"), "spec.gates[1].max"),
    "a latency as a percentage": (_gate(metric="latencyP95"), "spec.gates[1].max"),
    "a latency of nothing": (_gate(metric="latencyP95", max="0s"), "spec.gates[1].max"),
    "a latency over an hour": (_gate(metric="latencyP95", max="1h1ms"), "spec.gates[1].max"),
    "a growth in seconds": (
        {"gates": [{"metric": "latencyP95", "maxIncrease": "1s"}]},
        "spec.gates[0].maxIncrease",
    ),
    "a growth without an end": (
        {"gates": [{"metric": "latencyP95", "maxIncrease": "1000.01%"}]},
        "spec.gates[0].maxIncrease",
    ),
    "a latency without a quantile": (_gate(metric="latency", max="1s"), "spec.gates[1].quantile"),
    "a token without a quantile": (
        _gate(metric="timeToFirstToken", max="1s"),
        "spec.gates[1].quantile",
    ),
    "a quantile of errors": (_gate(quantile=0.5), "spec.gates[1].quantile"),
    "two quantiles": (_gate(metric="latencyP95", max="1s", quantile=0.9), "spec.gates[1].quantile"),
    "a quantile below the median": (
        _gate(metric="latency", max="1s", quantile=0.49),
        "spec.gates[1].quantile",
    ),
    "a quantile of all": (_gate(metric="latency", max="1s", quantile=1), "spec.gates[1].quantile"),
    "a quantile as text": (
        _gate(metric="latency", max="1s", quantile="0.9"),
        "spec.gates[1].quantile",
    ),
    "no request at least": (_gate(minRequests=0), "spec.gates[1].minRequests"),
    "too many requests at least": (_gate(minRequests=1_000_001), "spec.gates[1].minRequests"),
    "an unknown reaction": ({"onFailure": "Abort"}, "spec.onFailure"),
    "a bake over a week": ({"bake": "8000h"}, "spec.bake"),
    "a promotion as text": ({"autoPromote": "true"}, "spec.autoPromote"),
    "edits some time": ({"applyEdits": "Never"}, "spec.applyEdits"),
    "a warm-up without requests": ({"warmUp": {"path": "/"}}, "spec.warmUp.requests"),
    "a warm-up of nothing": ({"warmUp": {"requests": 0}}, "spec.warmUp.requests"),
    "a warm-up that never ends": ({"warmUp": {"requests": 10_001}}, "spec.warmUp.requests"),
    "a warm-up of everything at once": (
        {"warmUp": {"requests": 1, "concurrency": 17}},
        "spec.warmUp.concurrency",
    ),
    "a relative path": ({"warmUp": {"requests": 1, "path": "warmup"}}, "spec.warmUp.path"),
    "a path to another host": (
        {"warmUp": {"requests": 1, "path": "//evil.example/"}},
        "spec.warmUp.path",
    ),
    "a path that climbs": (
        {"warmUp": {"requests": 1, "path": "/a/../../secrets"}},
        "spec.warmUp.path",
    ),
    "a path that climbs encoded": (
        {"warmUp": {"requests": 1, "path": "/%2e%2e/secrets"}},
        "spec.warmUp.path",
    ),
    "a path with a line feed": (
        {"warmUp": {"requests": 1, "path": "/a\nHost: b"}},
        "spec.warmUp.path",
    ),
    "a path without an end": (
        {"warmUp": {"requests": 1, "path": "/" + "a" * 1000}},
        "spec.warmUp.path",
    ),
    "a mirror of nothing": ({"mirror": {"percent": 0, "duration": "1m"}}, "spec.mirror.percent"),
    "a mirror without an end": ({"mirror": {"percent": 1}}, "spec.mirror.duration"),
    "a mirror of no time": ({"mirror": {"percent": 1, "duration": "0s"}}, "spec.mirror.duration"),
    "a mirrored tunnel": (
        {"mirror": {"percent": 1, "duration": "1m", "methods": ["CONNECT"]}},
        "spec.mirror.methods",
    ),
    "a method twice": (
        {"mirror": {"percent": 1, "duration": "1m", "methods": ["GET", "GET"]}},
        "spec.mirror.methods",
    ),
    "no method": (
        {"mirror": {"percent": 1, "duration": "1m", "methods": []}},
        "spec.mirror.methods",
    ),
    "a header without a name": (
        {"preview": {"header": {"value": "next"}}},
        "spec.preview.header.name",
    ),
    "a header without a value": (
        {"preview": {"header": {"name": "x-version"}}},
        "spec.preview.header.value",
    ),
    "a header with a colon": (
        {"preview": {"header": {"name": "x:y", "value": "a"}}},
        "spec.preview.header.name",
    ),
    "a header of two lines": (
        {"preview": {"header": {"name": "x-y", "value": "a\r\nx-admin: 1"}}},
        "spec.preview.header.value",
    ),
    "a header without an end": (
        {"preview": {"header": {"name": "x", "value": "a" * 257}}},
        "spec.preview.header.value",
    ),
}
"""Refused specs by a description, each with the field that the error message names."""


def a_policy(name: str = "careful", spec: Json | None = None, **fields: Any) -> Json:
    """Build an UpgradePolicy; keywords are fields of its metadata."""
    return {
        "apiVersion": "raybus.io/v1alpha1",
        "kind": "UpgradePolicy",
        "metadata": {"name": name, **fields},
        "spec": deepcopy(CAREFUL if spec is None else spec),
    }


def a_signing_key(namespace: str) -> Body:
    """Return the Secret with the key that signs questions."""
    key = f"whsec_{base64.b64encode(b'k' * 32).decode()}"
    data = {webhook.SECRET_KEY: base64.b64encode(key.encode()).decode()}
    return {"metadata": {"name": webhook.SECRET_NAME, "namespace": namespace}, "data": data}
