"""An upgrade in steps as service-reconciler observes it: `blue` serves, `green` is to serve next; it began at `START`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from common.api import ray_cluster, ray_service
from common.api.core import Pod
from common.api.gateway import Gateway, HttpRoute
from common.api.opaque import Json
from common.ray.serve_status import ServeDetails
from common.ray.view import Reading
from common.upgrade import traffic_record
from common.upgrade.traffic_record import ClusterTraffic, Record, RecordedUpgrade
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.resources import ray_cluster as clusters
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_ray_service, a_strategy

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
GENERATION = 3
UID = "demo-uid"


def at(seconds: float) -> datetime:
    """Return a moment after the beginning."""
    return START + timedelta(seconds=seconds)


def a_condition(
    kind: str, *, seconds: float = 0, status: str = "True", reason: str = "Any", message: str = ""
) -> Json:
    """Return a condition as a status contains it; it changed `seconds` after the start of the test."""
    return {
        "type": kind,
        "status": status,
        "observedGeneration": GENERATION,
        "lastTransitionTime": at(seconds).isoformat(),
        "reason": reason,
        "message": message,
    }


def a_pod(*conditions: Json, restarts: int = 0, **status: Any) -> Pod:
    """Return a worker pod of green."""
    held: Json = {"phase": "Running", "conditions": list(conditions), **status}
    held.setdefault("containerStatuses", [{"name": "ray-worker", "restartCount": restarts}])
    meta: Json = {"name": "green-worker", "creationTimestamp": START.isoformat()}
    return msgspec.convert({"metadata": meta, "status": held}, Pod)


def a_view(
    name: str, *conditions: Json, pods: tuple[Pod, ...] = (), details: Json | None = None
) -> ClusterView:
    """Return a cluster with the spec of the goal, or with another spec if its name is blue; with
    details its head is ready.
    """
    image = "rayproject/ray:2.52.0" if name == "blue" else "rayproject/ray:2.53.0"
    goal = ray_service.decode(a_ray_service(config=a_cluster_config(image=image)))
    conditions_now = [*conditions, *([a_condition("HeadPodReady")] if details is not None else [])]
    body: Json = {
        "metadata": {"name": name, "annotations": clusters.stamps(goal)},
        "spec": goal.raw_cluster_config,
        "status": {"conditions": conditions_now},
    }
    reading = (
        Reading() if details is None else Reading(details=msgspec.convert(details, ServeDetails))
    )
    return ClusterView(cluster=ray_cluster.decode(body), pods=pods, serve=reading)


def an_upgrade(
    *conditions: Json,
    annotations: dict[str, str] | None = None,
    interval: int = 10,
    moved: float = 0,
    changed: float = 0,
    upgrade: RecordedUpgrade | UnsetType = UNSET,
    **fields: Any,
) -> Observed:
    """Return an observation; `moved` and `changed` are the times of the last change of the traffic record, in seconds."""
    config = a_cluster_config(image="rayproject/ray:2.53.0")
    body = a_ray_service(
        config=config, annotations=annotations, upgradeStrategy=a_strategy(interval=interval)
    )
    body["metadata"] |= {"generation": GENERATION, "uid": UID}
    body["status"] = {
        "activeServiceStatus": {"rayClusterName": "blue", "targetCapacity": 100},
        "pendingServiceStatus": {"rayClusterName": "green", "targetCapacity": 0},
        "conditions": [a_condition("UpgradeInProgress"), *conditions],
    }
    shares = {
        name: ClusterTraffic(capacity=50, weight=50, moved_at=at(moved))
        for name in ("blue", "green")
    }
    record = msgspec.json.encode(
        Record(clusters=shares, changed_at=at(changed), upgrade=upgrade)
    ).decode()
    meta = {**_owned("demo-httproute"), "annotations": {traffic_record.ANNOTATION: record}}
    parent = {"name": "demo-gateway"}
    accepted = [
        {**a_condition(kind), "observedGeneration": 1} for kind in ("Accepted", "ResolvedRefs")
    ]
    report = {"parentRef": parent, "controllerName": "example.com/gateway", "conditions": accepted}
    route = {
        "metadata": {**meta, "generation": 1},
        "spec": {"parentRefs": [parent]},
        "status": {"parents": [report]},
    }
    defaults: dict[str, Any] = {
        "config": Config(),
        "names": Names(active="blue", pending="green"),
        "fresh_name": "red",
        "active": a_view("blue", a_condition("HeadPodReady")),
        "pending": a_view("green"),
        "gateways": {("default", "demo-gateway"): _gateway()},
        "route": msgspec.json.decode(msgspec.json.encode(route), type=HttpRoute),
    }
    return Observed(service=ray_service.decode(body), **{**defaults, **fields})


def _owned(name: str) -> Json:
    """Return the metadata of an object whose owner is the RayService."""
    reference = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "name": "demo",
        "uid": UID,
        "controller": True,
    }
    return {"name": name, "namespace": "default", "ownerReferences": [reference]}


def _gateway() -> Gateway:
    conditions_now = [
        {**a_condition(kind), "observedGeneration": 1} for kind in ("Accepted", "Programmed")
    ]
    body = {
        "metadata": {**_owned("demo-gateway"), "generation": 1},
        "status": {"conditions": conditions_now},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Gateway)
