"""The known attacks, each as a fixed case: every run of the hostile tenants has them, whatever Hypothesis draws.

The numbers are those of the list in docs/testing.md. What no object of a tenant can bring about (8, 9 and the consumers of 13) is tried
in `hostile.borders`.
"""

import copy
from typing import Any, Final

import msgspec

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE, SERVICE, Resource
from scenario.hostile import nasty
from scenario.hostile.attacks import CLUSTERS, NAME, ROUTE, SERVICES, Attack, Place, put, upgraded
from service_reconciler.promotion import receipt

V1ALPHA1: Final[Resource] = msgspec.structs.replace(RAY_CLUSTER, version="v1alpha1")
FOREIGN: Final = "../../tenant-b/secrets/prod-ray"
METADATA_SERVER: Final = "http://169.254.169.254/latest/meta-data/"
OTHER: Final = f"{NAME}-of-another"
"""A RayCluster that no RayService owns."""
LEVELS: Final = 700
"""Of nested lists: more than an object may have, and as many as the API server and the tests can write."""
CONTAINER: Final[Place] = ("headGroupSpec", "template", "spec", "containers", 0)
LARGE: Final = 900_000
"""Bytes of an object, of the 1.5 MiB that etcd takes."""


class Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """A known attack."""

    number: int
    text: str
    attack: Attack


def _cluster(*changes: tuple[Place, Any], reasons: tuple[str, ...] = (), **more: Any) -> Attack:
    body: Body = copy.deepcopy(CLUSTERS[0])
    for place, value in changes:
        body = put(body, place, value)
    return Attack(resource=RAY_CLUSTER, body=body, later=body, reasons=frozenset(reasons), **more)


def _service(
    *changes: tuple[Place, Any], number: int = 0, reasons: tuple[str, ...] = (), **more: Any
) -> Attack:
    body: Body = copy.deepcopy(SERVICES[number])
    for place, value in changes:
        body = put(body, place, value)
    return Attack(
        resource=RAY_SERVICE, body=body, later=upgraded(body), reasons=frozenset(reasons), **more
    )


def _becomes_unreadable(sound: Attack, *spec: str) -> Attack:
    """Return an attack by an object that has our finalizer before nobody can read it any more."""
    later = put(sound.body, ("spec", *spec, "rayVersion"), 7)
    later = put(later, ("spec", *spec, *CONTAINER, "x"), nasty.nested(LEVELS))
    return msgspec.structs.replace(sound, later=later, reasons=frozenset({"Quarantined"}))


def _of_group(*fields: str, value: Any) -> Attack:
    return _cluster(
        *((("spec", "workerGroupSpecs", 0, each), value) for each in fields),
        reasons=("LimitExceeded",),
    )


def _with_cpu(amount: str) -> Attack:
    return _cluster((("spec", *CONTAINER, "resources", "limits"), {"cpu": amount}))


def _relabelled() -> Attack:
    flips = _cluster(
        (("metadata", "labels"), {labels.ORIGIN_NAME: "one", labels.ORIGIN_KIND: "RayService"})
    )
    later = put(flips.body, ("metadata", "labels", labels.ORIGIN_NAME), "two")
    return msgspec.structs.replace(flips, later=later)


def _route() -> Body:
    """Return a route of somebody else: it does not name the RayService."""
    backends: Json = {"backendRefs": [{"name": "shop-serve-svc", "port": 8000, "weight": 1}]}
    return {
        "metadata": {"name": ROUTE},
        "spec": {"parentRefs": [{"name": "shared"}], "rules": [backends]},
    }


def _other_cluster() -> Body:
    return put(CLUSTERS[0], ("metadata", "name"), OTHER)


def _redirected_service() -> Body:
    spec: Json = {"type": "ExternalName", "externalName": "169.254.169.254"}
    return {
        "metadata": {"name": f"{NAME}-head-svc", "labels": {labels.CLUSTER: NAME}},
        "spec": spec,
    }


def _forged(**roles: str) -> Json:
    held = {
        f"{role}ServiceStatus": {"rayClusterName": name, "targetCapacity": 100}
        for role, name in roles.items()
    }
    condition = {
        "type": "UpgradeInProgress",
        "status": "True",
        "reason": "X",
        "message": "",
        "lastTransitionTime": "2199-01-01T00:00:00Z",
    }
    return {
        **held,
        "observedGeneration": 2**62,
        "numServeEndpoints": 2**31 - 1,
        "conditions": [condition],
    }


_RECORD: Final = (
    '{"version":1,"clusters":{"scaled":{"capacity":100,"weight":100}},"changedAt":"2199-01-01T00:00:00Z",'
    '"upgrade":{"old":"scaled","new":"upgraded","beganAt":"2199-01-01T00:00:00Z","most":1,"least":2}}'
)
_RECEIPT: Final = (
    '{"old":"scaled","new":"upgraded","outcome":"Promoted","started":"2199-01-01T00:00:00Z"}'
)
_ON_CLUSTERS: Final = {
    labels.DELETE_AFTER: "1970-01-01T00:00:00Z", labels.DRAINING_SINCE: "2199-01-01T00:00:00Z", labels.UPGRADE_FROM: "scaled", receipt.SO_FAR: _RECEIPT,
    labels.SPEC_HASH: "x", labels.NUM_WORKER_GROUPS: "9" * 400,
}  # fmt: skip

_DIGITS: Final = "1" * 120_000 + "\n"
"""What a pattern that backtracks takes minutes for."""
_PAGE: Final = b"ray_x 1\nray_serve_num_http_requests_total{"
_LONG_TEXTS: Final = (
    Numbered(
        number=16,
        text="a rayVersion of 120,000 digits",
        attack=_cluster((("spec", "rayVersion"), _DIGITS), reasons=("InvalidRayClusterSpec",)),
    ),
    Numbered(
        number=16,
        text="a rayVersion of 120,000 digits in a RayService",
        attack=_service(
            (("spec", "rayClusterConfig", "rayVersion"), _DIGITS),
            reasons=("InvalidRayServiceSpec",),
        ),
    ),
    Numbered(
        number=16,
        text="900 kB of quotes in a container's environment",
        attack=_cluster((("spec", *CONTAINER, "env"), [{"name": "E", "value": '"' * LARGE}])),
    ),
    Numbered(
        number=16,
        text="900 kB of open brackets in a Serve config",
        attack=_service((("spec", "serveConfigV2"), "[" * LARGE)),
    ),
    Numbered(
        number=16,
        text="a record of 200,000 digits",
        attack=_service(
            (("metadata", "annotations"), {labels.UPGRADE_POLICY_RECORD: "1" * 200_000}), number=2
        ),
    ),
    Numbered(
        number=17,
        text="a page of metrics of 8 MB in one label",
        attack=_service(metrics=_PAGE + b'route="' + b"\\\\" * (4 * 2**20 - 100), number=2),
    ),
    Numbered(
        number=17,
        text="a page of 200,000 lines of metrics",
        attack=_service(metrics=b"ray_x 1\n" + (_PAGE[8:] + b"} 1\n") * 200_000, number=2),
    ),
    Numbered(
        number=18,
        text="a dashboard answers a message of 3 MB of escapes",
        attack=_service(
            answer=msgspec.json.encode(
                {"applications": {"app": {"status": "RUNNING", "message": "\x1b]" * 500_000}}}
            )
        ),
    ),
)

KNOWN: Final = (
    Numbered(number=1, text="a RayService asks for the Secret of another namespace",
             attack=_service((("spec", "rayClusterConfig", "authOptions"), {"mode": "token", "secretName": FOREIGN}), reasons=("InvalidRayServiceSpec",))),
    Numbered(number=1, text="a RayCluster asks for it",
             attack=_cluster((("spec", "authOptions"), {"mode": "token", "secretName": FOREIGN}), reasons=("InvalidRayClusterSpec",))),
    Numbered(number=2, text="a template of v1alpha1 nests too deep",
             attack=msgspec.structs.replace(_cluster((("spec", *CONTAINER, "x"), nasty.nested(LEVELS))), resource=V1ALPHA1)),
    Numbered(number=2, text="an object that no schema prunes nests too deep",
             attack=_cluster((("spec", *CONTAINER, "x"), nasty.nested(LEVELS)), (("spec", "rayVersion"), 7), reasons=("Quarantined",))),
    Numbered(number=2, text="a RayService becomes unreadable, and is deleted",
             attack=_becomes_unreadable(_service(), "rayClusterConfig")),
    Numbered(number=3, text="60,000 replicas", attack=_of_group("replicas", "maxReplicas", value=60_000)),
    Numbered(number=3, text="2,147,483,647 replicas", attack=_of_group("replicas", "maxReplicas", value=2**31 - 1)),
    Numbered(number=3, text="2,147,483,647 hosts", attack=_of_group("numOfHosts", value=2**31 - 1)),
    Numbered(number=4, text="a dashboard answers 16 MiB", attack=_service(answer=b'{"applications":{"x":"' + b"y" * 2**24 + b'"}}', reasons=("RayDashboardUnreachable",))),
    Numbered(number=4, text="a dashboard answers 20,000 levels", attack=_service(answer=b'{"applications":' + b"[" * 20_000, reasons=("RayDashboardUnreachable",))),
    Numbered(number=5, text="a Serve config of more than 1 MiB", attack=_service((("spec", "serveConfigV2"), "applications: []\n#" + "x" * 2**20))),
    Numbered(number=5, text="a Serve config of aliases of aliases", attack=_service((("spec", "serveConfigV2"), nasty.BOMB))),
    Numbered(number=6, text="a label of ownership flips", attack=_relabelled()),
    Numbered(number=7, text="an object of 900 kB", attack=_cluster((("spec", *CONTAINER, "env"), [{"name": f"E{each}", "value": "x" * 1000} for each in range(LARGE // 1000)]))),
    Numbered(number=10, text="a RayService names the HTTPRoute of somebody else", attack=_service(number=3, beside=((HTTP_ROUTE, _route()),), reasons=("HTTPRouteNotPermitted",))),
    Numbered(number=11, text="a CPU of 1e5000", attack=_with_cpu("1e5000")),
    Numbered(number=11, text="a CPU of 5,001 digits", attack=_with_cpu("9" * 5001)),
    Numbered(number=12, text="a dashboard redirects", attack=_service(location=METADATA_SERVER, reasons=("RayDashboardUnreachable",))),
    Numbered(number=12, text="the head Service is an ExternalName", attack=_cluster(beside=((SERVICE, _redirected_service()),))),
    Numbered(number=13, text="a name with terminal escapes and markup", attack=_cluster((("spec", "workerGroupSpecs", 0, "groupName"), "\x1b[2J[/x]"), reasons=("FailedCreateWorkerPod", "FailedToCreateWorkerPod"))),
    Numbered(number=14, text="a status names a cluster of somebody else", attack=_service(status=_forged(active=OTHER, pending=OTHER), beside=((RAY_CLUSTER, _other_cluster()),), reasons=("InvalidRayServiceStatus",))),
    Numbered(number=14, text="a status names no legal name", attack=_service(status=_forged(active=FOREIGN, pending="-"), reasons=("InvalidRayServiceStatus",))),
    Numbered(number=14, text="a status of a RayCluster names a foreign Service",
             attack=_cluster(status={"head": {"serviceName": FOREIGN, "podIP": "169.254.169.254"}, "desiredWorkerReplicas": 2**31 - 1})),
    Numbered(number=15, text="annotations of ours are forged on clusters", attack=_service(number=2, marks={"RayCluster": _ON_CLUSTERS})),
    Numbered(number=15, text="the traffic record is forged", attack=_service(number=2, marks={"HTTPRoute": {"raybus.io/traffic-record": _RECORD}})),
    *_LONG_TEXTS,
)  # fmt: skip
