"""The known attacks, each as a fixed case: every run of the hostile tenants has them, whatever
Hypothesis draws.

The numbers are those of the list in docs/testing.md. What no object of a tenant can bring about (8,
9 and the consumers of 13) is tried in `hostile.borders`.
"""

import copy
from typing import Any, Final

import msgspec

from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import (
    HTTP_ROUTE,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from scenario.hostile import nasty
from scenario.hostile.attacks import (
    CLUSTERS,
    CRON_JOBS,
    JOBS,
    NAME,
    OTHER_CLUSTER,
    ROUTE,
    SERVICES,
    Attack,
    Place,
    put,
    upgraded,
)
from service_reconciler.promotion import receipt

V1ALPHA1: Final[Resource] = msgspec.structs.replace(RAY_CLUSTER, version="v1alpha1")
FOREIGN: Final = "../../tenant-b/secrets/prod-ray"
METADATA_SERVER: Final = "http://169.254.169.254/latest/meta-data/"
OTHER: Final = f"{NAME}-of-another"
"""A RayCluster that no RayService owns."""
LEVELS: Final = 700
"""Levels of nested lists: more than an object may have, and as many as API server and tests can
write."""
CONTAINER: Final[Place] = ("headGroupSpec", "template", "spec", "containers", 0)
LARGE: Final = 900_000
"""Bytes of a large object. etcd accepts 1.5 MiB."""


class Numbered(msgspec.Struct, frozen=True, kw_only=True):
    """A known attack."""

    number: int
    text: str
    attack: Attack


def _known(number: int, text: str, attack: Attack) -> Numbered:
    return Numbered(number=number, text=text, attack=attack)


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


def _job(
    *changes: tuple[Place, Any], number: int = 1, reasons: tuple[str, ...] = (), **more: Any
) -> Attack:
    body: Body = copy.deepcopy(JOBS[number])
    for place, value in changes:
        body = put(body, place, value)
    return Attack(
        resource=RAY_JOB, body=body, later=upgraded(body), reasons=frozenset(reasons), **more
    )


def _cron_job(*changes: tuple[Place, Any], reasons: tuple[str, ...] = ()) -> Attack:
    body: Body = copy.deepcopy(CRON_JOBS[0])
    for place, value in changes:
        body = put(body, place, value)
    return Attack(
        resource=RAY_CRON_JOB, body=body, later=upgraded(body), reasons=frozenset(reasons)
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
    '{"version":1,"clusters":{"scaled":{"capacity":100,"weight":100}},'
    '"changedAt":"2199-01-01T00:00:00Z","upgrade":{"old":"scaled","new":"upgraded",'
    '"beganAt":"2199-01-01T00:00:00Z","most":1,"least":2}}'
)
_RECEIPT: Final = (
    '{"old":"scaled","new":"upgraded","outcome":"Promoted","started":"2199-01-01T00:00:00Z"}'
)
_ON_CLUSTERS: Final = {
    labels.DELETE_AFTER: "1970-01-01T00:00:00Z",
    labels.DRAINING_SINCE: "2199-01-01T00:00:00Z",
    labels.UPGRADE_FROM: "scaled",
    receipt.SO_FAR: _RECEIPT,
    labels.SPEC_HASH: "x",
    labels.NUM_WORKER_GROUPS: "9" * 400,
}

_DIGITS: Final = "1" * 120_000 + "\n"
"""What a pattern that backtracks takes minutes for."""
_PAGE: Final = b"ray_x 1\nray_serve_num_http_requests_total{"
_LONG_TEXTS: Final = (
    _known(
        16,
        "a rayVersion of 120,000 digits",
        _cluster((("spec", "rayVersion"), _DIGITS), reasons=("InvalidRayClusterSpec",)),
    ),
    _known(
        16,
        "a rayVersion of 120,000 digits in a RayService",
        _service(
            (("spec", "rayClusterConfig", "rayVersion"), _DIGITS),
            reasons=("InvalidRayServiceSpec",),
        ),
    ),
    _known(
        16,
        "900 kB of quotes in a container's environment",
        _cluster((("spec", *CONTAINER, "env"), [{"name": "E", "value": '"' * LARGE}])),
    ),
    _known(
        16,
        "900 kB of open brackets in a Serve config",
        _service((("spec", "serveConfigV2"), "[" * LARGE)),
    ),
    _known(
        16,
        "a record of 200,000 digits",
        _service(
            (("metadata", "annotations"), {labels.UPGRADE_POLICY_RECORD: "1" * 200_000}), number=2
        ),
    ),
    _known(
        17,
        "a page of metrics of 8 MB in one label",
        _service(metrics=_PAGE + b'route="' + b"\\\\" * (4 * 2**20 - 100), number=2),
    ),
    _known(
        17,
        "a page of 200,000 lines of metrics",
        _service(metrics=b"ray_x 1\n" + (_PAGE[8:] + b"} 1\n") * 200_000, number=2),
    ),
    _known(
        18,
        "a dashboard answers a message of 3 MB of escapes",
        _service(
            answer=msgspec.json.encode(
                {"applications": {"app": {"status": "RUNNING", "message": "\x1b]" * 500_000}}}
            )
        ),
    ),
)

_INVALID_JOB: Final = ("InvalidRayJobSpec",)
_RULES: Final = [
    {"policy": "DeleteCluster", "condition": {"jobStatus": "FAILED", "ttlSeconds": second}}
    for second in range(10_000)
]
_OF_JOBS: Final = (
    _known(19, "an entrypoint of 900 kB", _job((("spec", "entrypoint"), "'" * LARGE), number=0)),
    _known(
        19,
        "an entrypoint of 120,000 quotes",
        _job((("spec", "entrypoint"), "'\\" * 60_000), number=0),
    ),
    _known(
        19,
        "a runtime environment of aliases of aliases",
        _job((("spec", "runtimeEnvYAML"), nasty.BOMB), reasons=_INVALID_JOB),
    ),
    _known(
        19,
        "a runtime environment of 900 kB of brackets",
        _job((("spec", "runtimeEnvYAML"), "[" * LARGE), reasons=_INVALID_JOB),
    ),
    _known(
        19,
        "a runtime environment of 900 kB",
        _job(
            (
                ("spec", "runtimeEnvYAML"),
                "env_vars:\n" + "".join(f"  V{each}: x\n" for each in range(60_000)),
            )
        ),
    ),
    _known(
        19,
        "resources of 120,000 digits",
        _job((("spec", "entrypointResources"), '{"x":' + "1" * 120_000 + "}")),
    ),
    _known(19, "an ID with a path", _job((("spec", "jobId"), "../../serve/applications/"))),
    _known(
        20,
        "10,000 deletion rules",
        _job(
            (("spec", "deletionStrategy"), {"deletionRules": _RULES}),
            (("spec", "shutdownAfterJobFinishes"), False),
            number=0,
        ),
    ),
    _known(21, "a job every second", _cron_job((("spec", "schedule"), "@every 1s"))),
    _known(21, "a schedule without a run", _cron_job((("spec", "schedule"), "0 0 30 2 *"))),
    _known(
        21,
        "a schedule of 120,000 characters",
        _cron_job((("spec", "schedule"), "*/1," * 30_000 + "* * * *")),
    ),
    _known(
        21,
        "a time zone with a path",
        _cron_job(
            (("spec", "timeZone"), "../../../etc/passwd"), reasons=("InvalidRayCronJobSpec",)
        ),
    ),
    _known(
        22,
        "a job selects a cluster of another namespace",
        _job(
            (("spec", "clusterSelector"), {labels.CLUSTER: "../../tenant-b/rayclusters/theirs"}),
            number=4,
        ),
    ),
    _known(
        22,
        "a job selects another's cluster, which is suspended",
        _job(
            number=4,
            beside=(
                (
                    RAY_CLUSTER,
                    put(
                        put(CLUSTERS[0], ("metadata", "name"), OTHER_CLUSTER),
                        ("spec", "suspend"),
                        True,
                    ),
                ),
            ),
        ),
    ),
    _known(
        22,
        "a status names another's cluster and the metadata server",
        _job(
            status={
                "rayClusterName": OTHER,
                "jobId": "x",
                "jobDeploymentStatus": "Running",
                "dashboardURL": METADATA_SERVER,
            },
            beside=((RAY_CLUSTER, _other_cluster()),),
        ),
    ),
    _known(
        22,
        "a status retries on another's cluster",
        _job(
            status={
                "rayClusterName": OTHER,
                "jobId": "x",
                "jobDeploymentStatus": "Retrying",
                "failed": -(2**31),
            },
            beside=((RAY_CLUSTER, _other_cluster()),),
        ),
    ),
    _known(
        23,
        "a dashboard answers 16 MiB about a job",
        _job(answer=b'{"status":"' + b"y" * 2**24 + b'"}'),
    ),
    _known(
        23,
        "a dashboard answers 20,000 levels about a job",
        _job(answer=b'{"status":' + b"[" * 20_000),
    ),
    _known(
        23,
        "a dashboard answers numbers for times of a job",
        _job(answer=b'{"status":"RUNNING","message":7,"start_time":1e300,"end_time":-1}'),
    ),
    _known(23, "a dashboard redirects about a job", _job(location=METADATA_SERVER)),
)

KNOWN: Final = (
    _known(
        1,
        "a RayService asks for the Secret of another namespace",
        _service(
            (("spec", "rayClusterConfig", "authOptions"), {"mode": "token", "secretName": FOREIGN}),
            reasons=("InvalidRayServiceSpec",),
        ),
    ),
    _known(
        1,
        "a RayCluster asks for it",
        _cluster(
            (("spec", "authOptions"), {"mode": "token", "secretName": FOREIGN}),
            reasons=("InvalidRayClusterSpec",),
        ),
    ),
    _known(
        2,
        "a template of v1alpha1 nests too deep",
        msgspec.structs.replace(
            _cluster((("spec", *CONTAINER, "x"), nasty.nested(LEVELS))), resource=V1ALPHA1
        ),
    ),
    _known(
        2,
        "an object that no schema prunes nests too deep",
        _cluster(
            (("spec", *CONTAINER, "x"), nasty.nested(LEVELS)),
            (("spec", "rayVersion"), 7),
            reasons=("Quarantined",),
        ),
    ),
    _known(
        2,
        "a RayService becomes unreadable, and is deleted",
        _becomes_unreadable(_service(), "rayClusterConfig"),
    ),
    _known(3, "60,000 replicas", _of_group("replicas", "maxReplicas", value=60_000)),
    _known(3, "2,147,483,647 replicas", _of_group("replicas", "maxReplicas", value=2**31 - 1)),
    _known(3, "2,147,483,647 hosts", _of_group("numOfHosts", value=2**31 - 1)),
    _known(
        4,
        "a dashboard answers 16 MiB",
        _service(
            answer=b'{"applications":{"x":"' + b"y" * 2**24 + b'"}}',
            reasons=("RayDashboardUnreachable",),
        ),
    ),
    _known(
        4,
        "a dashboard answers 20,000 levels",
        _service(answer=b'{"applications":' + b"[" * 20_000, reasons=("RayDashboardUnreachable",)),
    ),
    _known(
        5,
        "a Serve config of more than 1 MiB",
        _service((("spec", "serveConfigV2"), "applications: []\n#" + "x" * 2**20)),
    ),
    _known(
        5, "a Serve config of aliases of aliases", _service((("spec", "serveConfigV2"), nasty.BOMB))
    ),
    _known(6, "a label of ownership flips", _relabelled()),
    _known(
        7,
        "an object of 900 kB",
        _cluster(
            (
                ("spec", *CONTAINER, "env"),
                [{"name": f"E{each}", "value": "x" * 1000} for each in range(LARGE // 1000)],
            )
        ),
    ),
    _known(
        10,
        "a RayService names the HTTPRoute of somebody else",
        _service(number=3, beside=((HTTP_ROUTE, _route()),), reasons=("HTTPRouteNotPermitted",)),
    ),
    _known(11, "a CPU of 1e5000", _with_cpu("1e5000")),
    _known(11, "a CPU of 5,001 digits", _with_cpu("9" * 5001)),
    _known(
        12,
        "a dashboard redirects",
        _service(location=METADATA_SERVER, reasons=("RayDashboardUnreachable",)),
    ),
    _known(
        12,
        "the head Service is an ExternalName",
        _cluster(beside=((SERVICE, _redirected_service()),)),
    ),
    _known(
        13,
        "a name with terminal escapes and markup",
        _cluster(
            (("spec", "workerGroupSpecs", 0, "groupName"), "\x1b[2J[/x]"),
            reasons=("FailedCreateWorkerPod", "FailedToCreateWorkerPod"),
        ),
    ),
    _known(
        14,
        "a status names a cluster of somebody else",
        _service(
            status=_forged(active=OTHER, pending=OTHER),
            beside=((RAY_CLUSTER, _other_cluster()),),
            reasons=("InvalidRayServiceStatus",),
        ),
    ),
    _known(
        14,
        "a status names no legal name",
        _service(status=_forged(active=FOREIGN, pending="-"), reasons=("InvalidRayServiceStatus",)),
    ),
    _known(
        14,
        "a status of a RayCluster names a foreign Service",
        _cluster(
            status={
                "head": {"serviceName": FOREIGN, "podIP": "169.254.169.254"},
                "desiredWorkerReplicas": 2**31 - 1,
            }
        ),
    ),
    _known(
        15,
        "annotations of ours are forged on clusters",
        _service(number=2, marks={"RayCluster": _ON_CLUSTERS}),
    ),
    _known(
        15,
        "the traffic record is forged",
        _service(number=2, marks={"HTTPRoute": {"raybus.io/traffic-record": _RECORD}}),
    ),
    *_LONG_TEXTS,
    *_OF_JOBS,
)
