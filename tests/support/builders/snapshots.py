"""What the command line reads of a RayService, in made-up states: `demo` with cluster `demo-blue`, upgraded to `demo-green`."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from common import labels
from common.api import ray_cluster, ray_service
from common.api.core import Pod, Service
from common.api.gateway import HttpRoute
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.ray import goal_revision, owner
from common.ray.goal_revision import GoalRevision
from common.ray.revision import RecordedConfig, Revision
from common.ray.serve_status import ServeDetails
from common.upgrade import policy as upgrade_policy
from common.upgrade import traffic_record
from common.upgrade.gate_record import Current, GateState, StepVerdicts
from common.upgrade.traffic_record import ClusterTraffic, Record, RecordedUpgrade
from raybus_cli.reading.snapshot import KubernetesEvent, Quota, Snapshot
from service_reconciler.resources import ray_cluster as clusters
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service, a_strategy

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)
BLUE, GREEN = "demo-blue", "demo-green"
OLD_IMAGE, NEW_IMAGE = "rayproject/ray:2.52.0", "rayproject/ray:2.53.0"
STEPS: Json = a_strategy(step=10, interval=30, gateway_class="envoy")


def ago(seconds: float) -> str:
    """Return a moment before now, as Kubernetes writes it."""
    return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def a_config(image: str = OLD_IMAGE, *groups: Json, **fields: Any) -> Json:
    """Return a cluster with the autoscaler, a port for Serve, and requests for resources."""
    config = a_cluster_config(
        *(groups or (a_gpu_group(),)), image=image, enableInTreeAutoscaling=True, **fields
    )
    head: Json = config["headGroupSpec"]["template"]["spec"]["containers"][0]
    head |= {
        "ports": [{"name": "serve", "containerPort": 8000}],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
    }
    return config


def a_gpu_group(name: str = "gpu", *, replicas: int = 4, **fields: Any) -> Json:
    """Return a worker group with one GPU per pod."""
    group = a_group(name, replicas=replicas, maxReplicas=8, **fields)
    group["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    }
    return group


def a_condition(
    kind: str, status: str = "True", *, reason: str = "Any", message: str = "", since: float = 60
) -> Json:
    """Return a condition."""
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 2,
        "lastTransitionTime": ago(since),
        "reason": reason,
        "message": message,
    }


READY = a_condition(
    "Ready", reason="NonZeroServeEndpoints", message="Number of serve endpoints is greater than 0"
)
UPGRADING = a_condition(
    "UpgradeInProgress",
    reason="BothActivePendingClustersExist",
    message="Both active and pending Ray clusters exist",
)


def a_side(
    name: str, *, capacity: int | None = None, weight: int | None = None, moved: float | None = None
) -> Json:
    """Return one cluster's part of the status; `moved` is the age of its last change of traffic, in seconds."""
    side: Json = {"rayClusterName": name, "rayClusterStatus": {}}
    side["applicationStatuses"] = {"app": {"status": "RUNNING", "serveDeploymentStatuses": {}}}
    if capacity is not None:
        side["targetCapacity"] = capacity
    if weight is not None:
        side["trafficRoutedPercent"] = weight
    if moved is not None:
        side["lastTrafficMigratedTime"] = ago(moved)
    return side


def a_service(
    *conditions: Json,
    active: Json | None = None,
    pending: Json | None = None,
    annotations: dict[str, str] | None = None,
    generation: int = 2,
    endpoints: int = 3,
    config: Json | None = None,
    **spec: Any,
) -> Body:
    """Return a RayService as the API server has it."""
    body = a_ray_service(config=config or a_config(), annotations=annotations, **spec)
    body["metadata"] |= {
        "uid": "uid-demo",
        "generation": generation,
        "resourceVersion": "7",
        "creationTimestamp": ago(7200),
    }
    body["metadata"]["finalizers"] = ["ray.io/rayservice-finalizer"]
    body["status"] = {
        "conditions": list(conditions),
        "numServeEndpoints": endpoints,
        "observedGeneration": generation,
        "serviceStatus": "Running",
        "activeServiceStatus": active or {"rayClusterStatus": {}},
        "pendingServiceStatus": pending or {"rayClusterStatus": {}},
    }
    return body


def a_cluster(
    name: str, config: Json, *, age: float = 7200, ready: bool = True, **status: Any
) -> Body:
    """Return a RayCluster of the RayService, stamped as made from this config."""
    goal = ray_service.decode(a_ray_service(config=config))
    marks = {"ray.io/originated-from-cr-name": "demo", "ray.io/originated-from-crd": "RayService"}
    conditions = [a_condition("HeadPodReady", since=age - 30)] if ready else []
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": ago(age),
            "labels": marks,
            "annotations": clusters.stamps(goal),
        },
        "spec": config,
        "status": {"conditions": conditions, "state": "ready" if ready else "", **status},
    }


def a_pod(
    cluster: str,
    group: str,
    number: int = 0,
    *,
    ready: bool = True,
    age: float = 7000,
    **status: Any,
) -> Body:
    """Return a pod of a cluster; the group `head` is the head's."""
    kind = "head" if group == "head" else "worker"
    name = f"{cluster}-head-aaaaa" if group == "head" else f"{cluster}-{group}-worker-{number:05d}"
    conditions = [
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "lastTransitionTime": ago(age - 20),
        }
    ]
    held: Json = {"phase": "Running" if ready else "Pending", "conditions": conditions, **status}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "creationTimestamp": ago(age),
            "labels": {"ray.io/cluster": cluster, "ray.io/node-type": kind, "ray.io/group": group},
        },
        "spec": {"containers": [{"name": "ray", "image": OLD_IMAGE}]},
        "status": held,
    }


def an_event(
    reason: str,
    note: str,
    *,
    about: tuple[str, str] = ("RayService", "demo"),
    kind: str = "Normal",
    at: float = 5,
) -> Body:
    """Return an Event that happened so many seconds ago."""
    return {
        "metadata": {"name": f"e-{reason}", "namespace": "default", "creationTimestamp": ago(at)},
        "eventTime": ago(at),
        "type": kind,
        "reason": reason,
        "note": note,
        "regarding": {"kind": about[0], "name": about[1]},
    }


def a_revision(cluster: str, serve_config: str, number: int = 1) -> Body:
    """Return the record of what a cluster was given."""
    return {
        "metadata": {
            "name": f"{cluster}-serve-{number}",
            "namespace": "default",
            "creationTimestamp": ago(7000 / number),
            "ownerReferences": [{"kind": "RayCluster", "name": cluster, "uid": f"uid-{cluster}"}],
        },
        "data": msgspec.to_builtins(RecordedConfig(serve_config=serve_config)),
        "revision": number,
    }


def a_goal(config: Json, serve_config: str, number: int, *, replaces: int | None = None) -> Body:
    """Return the record of a spec that the RayService had; `replaces` is the number of the previous spec."""
    service = ray_service.decode(a_service(config=config, serve=serve_config))
    spec = goal_revision.asked_of(service)
    body = goal_revision.build(
        service.metadata, spec, number, replaces=f"goal-{replaces}" if replaces else ""
    )
    body["metadata"] |= {"name": f"goal-{number}", "creationTimestamp": ago(7000 / number)}
    return body


def a_selector_service(cluster: str, name: str = "demo-serve-svc") -> Body:
    """Return a Service that selects a cluster."""
    spec = {
        "selector": {"ray.io/cluster": cluster, "ray.io/serve": "true"},
        "ports": [{"name": "serve", "port": 8000}],
    }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def serving(*, target: int, running: int, capacity: int = 100) -> Json:
    """Return what a dashboard reports: so many replicas of one deployment, with this target capacity."""
    replicas = [{"state": "RUNNING"} for _ in range(running)]
    deployment = {"status": "HEALTHY", "target_num_replicas": target, "replicas": replicas}
    return {
        "applications": {"app": {"status": "RUNNING", "deployments": {"d": deployment}}},
        "target_capacity": capacity,
    }


def a_snapshot(
    service: Body | None = None,
    *,
    clusters: list[Body] | None = None,
    pods: list[Body] | None = None,
    events: list[Body] | None = None,
    revisions: list[Body] | None = None,
    goals: list[Body] | None = None,
    services: list[Body] | None = None,
    serve: dict[str, Json] | None = None,
    quotas: list[Body] | None = None,
    route: Body | None = None,
    unseen: tuple[str, ...] = (),
    **fields: Any,
) -> Snapshot:
    """Return a snapshot of objects as they are written in JSON."""
    return Snapshot(
        service=ray_service.decode(service or a_ready_service()),
        clusters=tuple(ray_cluster.decode(each) for each in clusters or []),
        pods=_read(pods, Pod),
        events=_read(events, KubernetesEvent),
        revisions=_read(revisions, Revision),
        goals=_read(goals, GoalRevision),
        services=_read(services, Service),
        serve={name: msgspec.convert(each, ServeDetails) for name, each in (serve or {}).items()},
        quotas=_read(quotas, Quota),
        route=None
        if route is None
        else msgspec.json.decode(msgspec.json.encode(route), type=HttpRoute),
        unseen=unseen,
        **fields,
    )


def _read(bodies: list[Body] | None, view: Any) -> tuple[Any, ...]:
    return tuple(msgspec.convert(each, view, strict=False) for each in bodies or [])


def a_ready_service(**fields: Any) -> Body:
    """Return a RayService with one cluster, which serves."""
    return a_service(READY, active=a_side(BLUE), **fields)


def at_rest(**fields: Any) -> Snapshot:
    """Return a snapshot of a RayService with one cluster, which serves."""
    config = a_config()
    service: Body = fields.pop("service", None) or a_ready_service(config=config)
    defaults: dict[str, Any] = {
        "clusters": [a_cluster(BLUE, config)],
        "pods": [a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1), a_pod(BLUE, "gpu", 2)],
        "revisions": [a_revision(BLUE, service["spec"]["serveConfigV2"])],
        "services": [a_selector_service(BLUE), a_selector_service(BLUE, "demo-head-svc")],
        "serve": {BLUE: serving(target=2, running=2)},
        "events": [
            an_event(
                "UpdatedServeApplications",
                f"Serve config sent to RayCluster default/{BLUE}",
                at=7000,
            )
        ],
    }
    return a_snapshot(service, **{**defaults, **fields})


def in_steps(
    *conditions: Json, weight: int = 30, annotations: dict[str, str] | None = None, **fields: Any
) -> Snapshot:
    """Return a snapshot of an upgrade in steps; the new cluster has this much of the traffic."""
    old, new = a_config(), a_config(NEW_IMAGE)
    service = a_service(
        READY,
        *(conditions or (UPGRADING,)),
        active=a_side(BLUE, capacity=100 - weight + 20, weight=100 - weight, moved=12),
        pending=a_side(GREEN, capacity=weight, weight=weight, moved=12),
        annotations=annotations,
        config=new,
        upgradeStrategy=STEPS,
    )
    defaults: dict[str, Any] = {
        "clusters": [a_cluster(BLUE, old), a_cluster(GREEN, new, age=200)],
        "pods": [
            *(a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1), a_pod(BLUE, "gpu", 2)),
            *(a_pod(GREEN, "head", age=200), a_pod(GREEN, "gpu", 1, age=150)),
        ],
        "revisions": [
            a_revision(BLUE, service["spec"]["serveConfigV2"]),
            a_revision(GREEN, service["spec"]["serveConfigV2"]),
        ],
        "serve": {
            BLUE: serving(target=2, running=2, capacity=100 - weight + 20),
            GREEN: serving(target=1, running=1, capacity=weight),
        },
        "events": [
            an_event(
                "TrafficMoved", f"{100 - weight}/{weight}: 10 percent of the traffic move", at=12
            )
        ],
    }
    return a_snapshot(service, **{**defaults, **fields})


def a_state(
    outcome: str = "Pass", text: str = "", *, waits: bool = False, requests: int = 412
) -> GateState:
    """Return a gate at the present weight."""
    moved = NOW - timedelta(seconds=12)
    title = text.partition(":")[0] or "errorRate"
    found = GateState(
        gate=title, outcome=outcome, at=moved, waits=waits, requests=requests, limit=0.01, text=text
    )
    return msgspec.structs.replace(found, value=0.002 if requests else None)


PASSED: Final = a_state(text="errorRate: 1 of 412 requests failed (0.243%), at most 1% allowed")
LACKING: Final = a_state(
    "Inconclusive", "timeToFirstTokenP95: 44 of 100 requests observed", waits=True, requests=44
)


def gated(
    *states: GateState, steps: tuple[StepVerdicts, ...] = (), weight: int = 10, **fields: Any
) -> Snapshot:
    """Return a snapshot of an upgrade in steps with an UpgradePolicy: 10, 50, 100 %, each with these gates."""
    serve = {BLUE: serving(target=2, running=2), GREEN: serving(target=2, running=2)}
    snapshot = in_steps(weight=weight, serve=serve, **fields)
    moved = NOW - timedelta(seconds=12)
    current = Current(
        weight=weight,
        since=moved,
        written_at=NOW - timedelta(seconds=4),
        gates=states or (PASSED, LACKING),
    )
    upgrade = RecordedUpgrade(
        old=BLUE,
        new=GREEN,
        began_at=NOW - timedelta(seconds=200),
        max_capacity=120,
        min_capacity=100,
        gates=current,
    )
    upgrade = msgspec.structs.replace(upgrade, steps=steps) if steps else upgrade
    shares = {
        BLUE: ClusterTraffic(capacity=100, weight=100 - weight, moved_at=moved),
        GREEN: ClusterTraffic(capacity=100, weight=weight, moved_at=moved),
    }
    text = msgspec.json.encode(Record(clusters=shares, changed_at=moved, upgrade=upgrade)).decode()
    meta: Json = {
        "name": "demo-httproute",
        "namespace": "default",
        "annotations": {traffic_record.ANNOTATION: text},
    }
    meta["ownerReferences"] = owner.reference(snapshot.service.metadata)
    route = msgspec.json.decode(msgspec.json.encode({"metadata": meta, "spec": {}}), type=HttpRoute)
    spec: Json = {"steps": [{"weight": 10, "hold": "30s"}, {"weight": 50}, {"weight": 100}]}
    policy = {
        labels.UPGRADE_POLICY_RECORD: upgrade_policy.recorded("careful", "", 1, spec),
        labels.UPGRADE_FROM: BLUE,
    }
    blue, green = a_cluster(BLUE, a_config()), a_cluster(GREEN, a_config(NEW_IMAGE), age=200)
    green["metadata"]["annotations"] |= policy
    clusters_ = tuple(ray_cluster.decode(each) for each in (blue, green))
    return msgspec.structs.replace(snapshot, route=route, clusters=clusters_)


def with_spec(
    service: RayService, spec: msgspec.Raw, *, generation: int | None = None
) -> RayService:
    """Return a RayService with another spec and the status that it has."""
    meta = service.metadata
    if generation is not None:
        meta = msgspec.structs.replace(meta, generation=generation)
    return RayService(metadata=meta, spec_json=spec, status=service.status)
