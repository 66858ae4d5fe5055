"""Hostile objects from Hypothesis: a sound object, changed in a few places by the dictionary of
nasty values.

`attacks()` draws what one tenant does: a RayCluster, a RayService, a RayJob or a RayCronJob, what
it is changed into later, objects beside it, annotations on what raybus makes, and what dashboards
answer. `collect` draws many of them from a seed, for runs outside pytest.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from cluster_reconciler import reasons as of_clusters
from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import (
    GATEWAY,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.upgrade import service_conditions as of_services
from common.upgrade import traffic_record
from scenario.hostile import nasty
from service_reconciler.promotion import receipt
from support import crd_schema
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service, a_strategy

TENANT: Final = "tenant-h"
NAME: Final = "demo"
ROUTE: Final = "mine"
OTHER_CLUSTER: Final = "shared"
"""A RayCluster that RayJobs select."""
ENDINGS: Final = (
    "",
    "",
    "",
    "",
    "-" + "a" * 42,
    "-" + "a" * 43,
    "-" + "a" * 57,
    "-" + "a" * 58,
    "-" + "a" * 245,
    ".x.y",
)
"""Ends of names, near the maximum length of RayService names, labels and object names, and with
dots."""
Place = tuple[str | int, ...]
MAX_LEVELS: Final = 3
"""Maximum nesting of a drawn value."""

DURATION_LIKE: Final = (
    labels.INITIALIZING_TIMEOUT,
    labels.DRAIN_TIMEOUT,
    labels.PROGRESS_DEADLINE,
    labels.GCS_FT_DELETION_TIMEOUT,
)
MOMENT_LIKE: Final = (labels.DELETE_AFTER, labels.DRAINING_SINCE)
JSON_LIKE: Final = (traffic_record.ANNOTATION, receipt.SO_FAR, labels.UPGRADE_RECEIPT)
SWITCH_LIKE: Final = (
    labels.PAUSE, labels.ABORT, labels.PROMOTE, labels.GRACEFUL_DRAIN, labels.CAPACITY_PARITY, labels.FT_ENABLED, labels.ENABLE_SERVE_SERVICE,
    labels.DISABLE_PROVISIONED_HEAD_RESTART, labels.OVERWRITE_CONTAINER_CMD, labels.MAX_UNAVAILABLE, labels.HISTORY_LIMIT, labels.DRAINING,
)  # fmt: skip
NAME_LIKE: Final = (
    labels.HTTP_ROUTE, labels.ROUTE_PERMITS, labels.ON_DEADLINE, labels.EXTERNAL_STORAGE_NAMESPACE, labels.RECREATE_HASH, labels.KUBERAY_VERSION,
    labels.SPEC_HASH, labels.NUM_WORKER_GROUPS, labels.INGRESS_CLASS, labels.UPGRADE_FROM,
)  # fmt: skip
CONDITIONS: Final = tuple(
    each.value for reasons in (of_clusters, of_services) for each in reasons.ConditionType
)
JOB_STATES: Final = (
    "", "Initializing", "Waiting", "Running", "Suspending", "Suspended", "Retrying", "Complete", "Failed", "ValidationFailed", "Someday",
)  # fmt: skip
LABELS: Final = (
    labels.CLUSTER, labels.ORIGIN_NAME, labels.ORIGIN_KIND, labels.NODE_TYPE, labels.GROUP, labels.SERVE, labels.SERVES, labels.REPLICA_INDEX,
    labels.REPLICA_NAME, labels.HOST_INDEX, labels.HEADLESS_WORKER_SERVICE, labels.IS_RAY_NODE, "ray.io/scheduler-name", "team",
)  # fmt: skip
_BROKEN_RECORDS: Final = tuple(
    f'{{"clusters":{{"{NAME}-x":{share}}},"changedAt":{moment}{more}}}'
    for share in ('{"capacity":100,"weight":100}', '{"capacity":-5,"weight":900}', '{"capacity":' + "9" * 30 + ',"weight":0}', '{"capacity":1,"weight":1,"movedAt":"2026-01-01T00:00:00"}')
    for moment in ("null", '"2026-01-01T00:00:00"', '"9999-12-31T23:59:59Z"', '"0001-01-01T00:00:00Z"')
    for more in (
        "",
        ',"overwritten":{"at":"9999-12-31T23:59:59Z","by":"x","streak":9223372036854775807}',
        ',"overwritten":{"at":"2026-01-01T00:00:00","by":"","streak":-5}',
        ',"upgrade":{"old":"a","new":"b","beganAt":"2026-01-01T00:00:00","most":1,"least":2,"sheds":9,"shedAt":"0001-01-01T00:00:00"}',
    )
)  # fmt: skip
_BROKEN_RECEIPTS: Final = tuple(
    f'{{"old":"a","new":"b","outcome":"Promoted","started":"{one}","settled":"{two}","finished":"{two}","seconds":{{"preparing":1,"shifting":-1,"draining":1e300}},"most":-1}}'
    for one in nasty.MOMENTS[:7]
    for two in nasty.MOMENTS[:7]
)


class Attack(msgspec.Struct, frozen=True, kw_only=True):
    """What one tenant does."""

    resource: Resource
    body: Body
    later: Body
    """Later form of the object."""
    beside: tuple[tuple[Resource, Body], ...] = ()
    """Objects that the tenant created before."""
    marks: dict[str, dict[str, str]] = {}
    """Annotations that the tenant writes on what raybus made, by kind."""
    answer: bytes | None = None
    """Answer of the dashboards; None for a valid answer."""
    is_late: bool = False
    """Whether dashboards answer so only after the change, and validly before."""
    location: str = ""
    """Redirect target of the dashboards, instead of an answer."""
    metrics: bytes = b""
    status: Json = {}
    """Status that the tenant writes over the object's status."""
    refused: frozenset[str] = frozenset()
    """Kinds that the API server does not let raybus create here."""
    reasons: frozenset[str] = frozenset()
    """Reasons of which an Event or a condition of the object must give one; any will do where there are none."""

    @property
    def is_admitted(self) -> bool:
        """Return whether the API server takes the object, both times."""
        return all(admitted(self.resource.kind, each) is None for each in (self.body, self.later))

    def renamed(self, name: str) -> "Attack":
        """Return the same attack by an object of another name; what stands beside it follows."""
        found = [self.body, self.later, self.status, [body for _, body in self.beside]]
        text = msgspec.json.encode(found).replace(NAME.encode(), name.encode())
        body, later, status, bodies = msgspec.json.decode(
            text, type=tuple[Body, Body, Json, list[Body]]
        )
        beside = tuple(zip((resource for resource, _ in self.beside), bodies, strict=True))
        return msgspec.structs.replace(self, body=body, later=later, status=status, beside=beside)

    def __str__(self) -> str:
        return msgspec.json.encode(self, enc_hook=repr).decode()[:4000]


def admitted(kind: str, body: Body) -> str | None:
    """Return why the API server refuses an object by its schema."""
    schema = crd_schema.of(kind)
    return crd_schema.refusal(crd_schema.pruned(body.get("spec"), schema), schema)


# --- sound objects -------------------------------------------------------------------------------------------------------


def _services() -> tuple[Body, ...]:
    scaled = a_cluster_config(a_group(replicas=2, minReplicas=0), enableInTreeAutoscaling=True)
    several = a_cluster_config(a_group("one", numOfHosts=2), a_group("two", replicas=0))
    return (
        a_ray_service(name=NAME),
        a_ray_service(name=NAME, config=several, rayClusterDeletionDelaySeconds=1),
        a_ray_service(name=NAME, config=scaled, upgradeStrategy=a_strategy(surge=100, step=50, interval=1)),
        a_ray_service(name=NAME, config=scaled, upgradeStrategy=a_strategy(surge=100, step=100, interval=1), annotations={labels.HTTP_ROUTE: ROUTE}),
        a_ray_service(name=NAME, annotations={labels.GRACEFUL_DRAIN: "true", labels.DRAIN_TIMEOUT: "5s"}),
        a_ray_service(name=NAME, suspend=True),
    )  # fmt: skip


def _clusters() -> tuple[Body, ...]:
    redis: Json = {
        "gcsFaultToleranceOptions": {"redisAddress": "redis:6379", "redisPassword": {"value": "x"}}
    }
    specs: tuple[Json, ...] = (
        a_cluster_config(),
        a_cluster_config(a_group("one", replicas=3, numOfHosts=2), a_group("two", scaleStrategy={"workersToDelete": ["x"]})),
        a_cluster_config(enableInTreeAutoscaling=True, autoscalerOptions={"version": "v2", "resources": {"limits": {"cpu": "1"}}}),
        a_cluster_config(authOptions={"mode": "token"}),
        a_cluster_config(**redis),
        a_cluster_config(suspend=True),
    )  # fmt: skip
    return tuple(
        {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": NAME, "labels": {}, "annotations": {}}, "spec": each}
        for each in specs
    )  # fmt: skip


def _jobs() -> tuple[Body, ...]:
    base: Json = {
        "entrypoint": "python main.py",
        "rayClusterSpec": a_cluster_config(),
        "shutdownAfterJobFinishes": True,
    }
    specs: tuple[Json, ...] = (
        base,
        {**base, "submissionMode": "HTTPMode", "backoffLimit": 2, "ttlSecondsAfterFinished": 1},
        {**base, "submissionMode": "SidecarMode", "activeDeadlineSeconds": 5},
        {**base, "submissionMode": "InteractiveMode", "preRunningDeadlineSeconds": 5},
        {"entrypoint": "python main.py", "clusterSelector": {labels.CLUSTER: OTHER_CLUSTER}},
        {**base, "suspend": True},
    )
    return tuple(_of_kind("RayJob", spec) for spec in specs)


def _cron_jobs() -> tuple[Body, ...]:
    template: Json = JOBS[1]["spec"]
    return (
        _of_kind("RayCronJob", {"schedule": "@every 10s", "jobTemplate": template}),
        _of_kind("RayCronJob", {"schedule": "* * * * *", "timeZone": "Asia/Taipei", "jobTemplate": template}),
    )  # fmt: skip


def _of_kind(kind: str, spec: Json) -> Body:
    meta: Json = {"name": NAME, "labels": {}, "annotations": {}}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": meta, "spec": spec}


SERVICES: Final = _services()
CLUSTERS: Final = _clusters()
JOBS: Final = _jobs()
CRON_JOBS: Final = _cron_jobs()


# --- how they are changed ------------------------------------------------------------------------------------------------


def places(value: Any, here: Place = ()) -> list[Place]:
    """Return the place of every value within a value."""
    found = [here] if here else []
    inner = (
        cast("Json", value).items()
        if isinstance(value, dict)
        else enumerate(cast("list[Any]", value))
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        found += places(each, (*here, key))
    return found  # fmt: skip


def put(value: Any, place: Place, new: Any) -> Any:
    """Return a value with another one at a place; maps and lists on the way are made."""
    if not place:
        return new
    key, rest = place[0], place[1:]
    if isinstance(key, str):
        known = cast("Json", value) if isinstance(value, dict) else {}
        return {**known, key: put(known.get(key), rest, new)}
    held = [*cast("list[Any]", value)] if isinstance(value, list) else []
    held += [{}] * (key + 1 - len(held))
    held[key] = put(held[key], rest, new)
    return held


def remove(value: Any, place: Place) -> None:
    """Take away what stands at a place."""
    for key in place[:-1]:
        value = value[key]
    del value[place[-1]]


def fitting(schema: Json, depth: int = 0) -> SearchStrategy[Any]:
    """Draw a nasty value that a schema admits, as far as its types express that."""
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from((*nasty.QUANTITIES, *nasty.INTEGERS))
    kinds: dict[str | None, Callable[[], SearchStrategy[Any]]] = {
        "integer": lambda: st.sampled_from(nasty.INTEGERS[:13]),
        "number": lambda: st.sampled_from(nasty.INTEGERS[:13]),
        "boolean": st.booleans,
        "string": lambda: _texts(schema),
        "array": lambda: _lists(schema, depth),
        "object": lambda: _objects(schema, depth),
    }
    return kinds.get(schema.get("type"), lambda: st.sampled_from(nasty.VALUES))()


def _texts(schema: Json) -> SearchStrategy[str]:
    if schema.get("format") == "date-time":
        return st.sampled_from(nasty.STORED_MOMENTS)
    free = st.sampled_from(nasty.TEXTS) | st.text(max_size=20)
    return st.sampled_from(schema["enum"]) | free if "enum" in schema else free


def _lists(schema: Json, depth: int) -> SearchStrategy[list[Any]]:
    if depth > MAX_LEVELS:
        return st.just([])
    lengths = st.sampled_from((0, 1, 2, 2, 50))
    return st.tuples(fitting(schema.get("items", {}), depth + 1), lengths).map(
        lambda drawn: [drawn[0]] * drawn[1]
    )


@st.composite
def _objects(draw: DrawFn, schema: Json, depth: int) -> Json:
    inner: Json = schema.get("properties", {})
    if not inner or depth >= MAX_LEVELS:
        rest = schema.get("additionalProperties")
        value = fitting(
            cast("Json", rest) if isinstance(rest, dict) else {"type": "string"}, depth + 1
        )
        return {
            draw(st.sampled_from(nasty.TEXTS[:60])): draw(value)
            for _ in range(draw(st.integers(0, 2)))
        }
    names = draw(st.lists(st.sampled_from(sorted(inner)), max_size=3, unique=True))
    return {
        each: draw(fitting(inner[each], depth + 1))
        for each in (*names, *schema.get("required", ()))
    }


@st.composite
def fields(draw: DrawFn, kind: str) -> tuple[Place, Json]:
    """Draw the place of a field of a spec, and its schema."""
    schema, place = crd_schema.of(kind), cast("Place", ("spec",))
    while True:
        inner: Json = schema.get("properties", {})
        if schema.get("type") == "array":
            schema, place = schema["items"], (*place, draw(st.sampled_from((0, 0, 1))))
        elif inner:
            known = [
                each
                for each in (
                    "rayClusterConfig",
                    "jobTemplate",
                    "rayClusterSpec",
                    "workerGroupSpecs",
                    "headGroupSpec",
                    "template",
                    "spec",
                    "containers",
                )
                if each in inner
            ]
            name = draw(st.sampled_from((*sorted(inner), *known * 4)))
            schema, place = inner[name], (*place, name)
        else:
            return place, schema
        if len(place) > 2 and draw(st.integers(0, 7)) == 0:
            return place, schema  # fmt: skip


@st.composite
def annotations(draw: DrawFn) -> dict[str, str]:
    """Draw annotations that raybus reads, with values that it does not expect."""
    texts: dict[tuple[str, ...], tuple[str, ...]] = {
        DURATION_LIKE: nasty.DURATIONS,
        MOMENT_LIKE: nasty.MOMENTS,
        JSON_LIKE: (*nasty.JSON_TEXTS, *_BROKEN_RECORDS, *_BROKEN_RECEIPTS),
        SWITCH_LIKE: nasty.SWITCHES,
        NAME_LIKE: nasty.TEXTS,
    }
    drawn: dict[str, str] = {}
    for _ in range(draw(st.integers(1, 2))):
        names, values = draw(st.sampled_from(list(texts.items())))
        drawn[draw(st.sampled_from(names))] = draw(st.sampled_from(values))
    if draw(st.integers(0, 4)) == 0:
        drawn[draw(st.sampled_from([each for names in texts for each in names]))] = draw(
            st.sampled_from(nasty.TEXTS)
        )
    return {
        name: text for name, text in drawn.items() if len(text.encode(errors="replace")) < 250_000
    }


@st.composite
def statuses(draw: DrawFn, kind: str) -> Json:
    """Draw what a tenant writes over a status: names of clusters and Services, conditions, numbers, moments."""
    schema = crd_schema.of(kind, "status")
    drawn: Json = {
        each: draw(fitting(schema["properties"][each]))
        for each in draw(_some(schema["properties"]))
    }
    if kind == "RayService":
        for role in draw(_some(("activeServiceStatus", "pendingServiceStatus"))):
            held: Json = drawn.get(role, {})
            drawn[role] = {
                **held,
                "rayClusterName": draw(st.sampled_from(nasty.NAMES)),
                "targetCapacity": draw(st.sampled_from(nasty.INTEGERS[:9])),
            }
    elif kind == "RayJob":
        for name in draw(_some(("rayClusterName", "jobId", "dashboardURL"))):
            drawn[name] = draw(st.sampled_from(nasty.NAMES))
        drawn["jobDeploymentStatus"] = draw(st.sampled_from(JOB_STATES))
    elif kind == "RayCluster" and draw(st.booleans()):
        drawn["head"] = {
            "serviceName": draw(st.sampled_from(nasty.NAMES)),
            "podIP": draw(st.sampled_from(nasty.NAMES)),
        }
    if kind in {"RayCluster", "RayService"} and draw(st.booleans()):
        drawn["conditions"] = [
            {
                "type": each,
                "status": draw(st.sampled_from(("True", "False", "Unknown"))),
                "reason": "Forged",
                "message": "",
                "lastTransitionTime": draw(st.sampled_from(nasty.STORED_MOMENTS)),
            }
            for each in draw(st.lists(st.sampled_from(CONDITIONS), max_size=4, unique=True))
        ]
    return drawn  # fmt: skip


def _some(names: Iterable[str]) -> SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(names)), max_size=3, unique=True)


@st.composite
def changed(draw: DrawFn, kind: str, body: Body) -> Body:
    """Draw what becomes of an object in a few changes."""
    new: Body = msgspec.json.decode(msgspec.json.encode(body))
    for _ in range(draw(st.integers(1, 3))):
        match draw(
            st.sampled_from(
                (
                    "field",
                    "field",
                    "field",
                    "raw",
                    "annotation",
                    "annotation",
                    "label",
                    "serve",
                    "remove",
                    "nested",
                )
            )
        ):
            case "field":
                place, schema = draw(fields(kind))
                new = put(new, place, draw(fitting(schema)))
            case "raw":
                new = put(
                    new,
                    draw(st.sampled_from(places(new["spec"], ("spec",))[1:] or [("spec", "x")])),
                    draw(st.sampled_from(nasty.VALUES)),
                )
            case "annotation":
                new["metadata"].setdefault("annotations", {}).update(draw(annotations()))
            case "label":
                new["metadata"].setdefault("labels", {})[draw(st.sampled_from(LABELS))] = draw(
                    st.sampled_from(nasty.LABEL_VALUES)
                )
            case "serve" if kind == "RayService":
                new["spec"]["serveConfigV2"] = draw(st.sampled_from(nasty.YAML_TEXTS))
            case "remove":
                remove(new["spec"], draw(st.sampled_from(places(new["spec"]) or [()]))) if places(
                    new["spec"]
                ) else None
            case "nested":
                new = put(
                    new,
                    draw(fields(kind))[0],
                    nasty.nested(draw(st.sampled_from((50, 99, 150, 300)))),
                )
            case _:
                pass
    return new  # fmt: skip


def upgraded(body: Body) -> Body:
    """Return an object with a sound change: another image, which a RayService takes for an upgrade."""
    spec: Json = body["spec"]
    place: Place = ("headGroupSpec", "template", "spec", "containers", 0, "image")
    if "jobTemplate" in spec:
        return put(body, ("spec", "suspend"), True)
    if "entrypoint" in spec:
        return put(body, ("spec", "backoffLimit"), 1)
    return put(
        body,
        ("spec", *(("rayClusterConfig",) if "rayClusterConfig" in spec else ()), *place),
        "ray:2",
    )


# --- what stands beside --------------------------------------------------------------------------------------------------


@st.composite
def _beside(draw: DrawFn) -> tuple[tuple[Resource, Body], ...]:
    """Draw objects of other kinds under names and labels that raybus reads."""
    found: list[tuple[Resource, Body]] = []
    marks = {
        each: draw(st.sampled_from(nasty.LABEL_VALUES))
        for each in draw(st.lists(st.sampled_from(LABELS), max_size=3))
    }
    match draw(
        st.sampled_from(("nothing", "nothing", "service", "route", "route", "pod", "gateway"))
    ):
        case "service":
            name = draw(
                st.sampled_from(
                    (f"{NAME}-head-svc", f"{NAME}-serve-svc", f"{NAME}-headless", "other")
                )
            )
            spec: Json = draw(
                st.sampled_from(
                    (
                        {},
                        {"type": "ExternalName", "externalName": "169.254.169.254"},
                        {"selector": {}, "ports": [{"port": 1}]},
                    )
                )
            )
            found.append(
                (
                    SERVICE,
                    {
                        "metadata": {"name": name, "labels": {labels.CLUSTER: NAME, **marks}},
                        "spec": spec,
                    },
                )
            )
        case "route":
            rule: Json = draw(
                st.sampled_from(
                    (
                        {},
                        {"backendRefs": []},
                        {
                            "backendRefs": [
                                {"name": f"{NAME}-serve-svc", "port": 1, "weight": 10**6}
                            ]
                            * 16
                        },
                        {"filters": [{"type": "RequestRedirect"}]},
                    )
                )
            )
            meta: Json = {
                "name": draw(st.sampled_from((ROUTE, f"{NAME}-httproute"))),
                "labels": marks,
                "annotations": {labels.ROUTE_PERMITS: NAME, **draw(annotations())},
            }
            parents = [
                {"name": "shared", "namespace": draw(st.sampled_from((TENANT, "infra")))}
            ] * draw(st.integers(0, 2))
            found.append(
                (
                    HTTP_ROUTE,
                    {
                        "metadata": meta,
                        "spec": {"parentRefs": parents, "rules": [rule] * draw(st.integers(0, 3))},
                    },
                )
            )
        case "pod":
            meta = {
                "name": f"{NAME}-evil",
                "labels": {labels.CLUSTER: NAME, labels.NODE_TYPE: "worker", **marks},
                "annotations": draw(annotations()),
            }
            found.append((POD, {"metadata": meta, "spec": {"containers": []}}))
        case "gateway":
            found.append(
                (
                    GATEWAY,
                    {
                        "metadata": {"name": f"{NAME}-gateway", "labels": marks},
                        "spec": {"gatewayClassName": "fast", "listeners": []},
                    },
                )
            )
        case _:
            pass
    return tuple(found)  # fmt: skip


@st.composite
def attacks(draw: DrawFn) -> Attack:
    """Draw what one tenant does."""
    resource, sound = draw(
        st.sampled_from(
            (
                (RAY_SERVICE, SERVICES),
                (RAY_SERVICE, SERVICES),
                (RAY_CLUSTER, CLUSTERS),
                (RAY_JOB, JOBS),
                (RAY_CRON_JOB, CRON_JOBS),
            )
        )
    )
    first: Body = draw(st.sampled_from((*sound, *sound[2:3] * 2)))
    body = first if draw(st.booleans()) else draw(changed(resource.kind, first))
    later = draw(changed(resource.kind, first)) if draw(st.integers(0, 2)) else upgraded(first)
    marks: dict[str, dict[str, str]] = {}
    if draw(st.booleans()):
        marks = {
            draw(st.sampled_from(("RayCluster", "HTTPRoute", "Pod", "Service", "Gateway"))): draw(
                annotations()
            )
        }
    attack = Attack(
        resource=resource,
        body=body,
        later=later,
        beside=draw(_beside()),
        marks=marks,
        answer=draw(st.sampled_from(nasty.ANSWERS)) if draw(st.integers(0, 3)) == 0 else None,
        is_late=draw(st.booleans()),
        status=draw(statuses(resource.kind)) if draw(st.integers(0, 2)) == 0 else {},
        metrics=draw(st.sampled_from(nasty.METRICS)),
        refused=frozenset(draw(st.lists(st.sampled_from(("Pod", "Service", "RayCluster", "HTTPRoute", "Gateway", "Role", "Secret", "ControllerRevision")), max_size=1)) if draw(st.integers(0, 3)) == 0 else ()),
    )  # fmt: skip
    ending = draw(st.sampled_from(ENDINGS))
    return attack.renamed(NAME + ending) if ending else attack


UNCHECKED: Final = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
    HealthCheck.filter_too_much,
)
"""Examples are large by design."""


def collect(strategy: SearchStrategy[Any], count: int, start: int) -> list[Any]:
    """Return so many draws; the same for the same seed."""
    found: list[Any] = []

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=UNCHECKED,
    )
    @given(strategy)
    def note(drawn: Any) -> None:
        found.append(drawn)

    note()
    return found[:count]
