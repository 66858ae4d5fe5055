"""The objects of a rehearsal: RayClusters of several kinds, a service after a blue/green upgrade, and upgrades in steps."""

from collections.abc import Sequence
from typing import Any, Final, cast

from common.api.opaque import Body, Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from integration.migration.stage import Holds, Stage
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service, a_serve_config
from support.kuberay import goldens, objects, trees
from support.kuberay.settings import of_name

CLUSTERS: Final = ("autoscaler-v2", "multi-host", "redis", "small")
BLUE_GREEN: Final = "blue-green"
STEPS: Final = "steps"
"""Name of a service with upgrades in steps that is at rest."""
MOVING: Final = "moving"
"""Name of a service that is handed over during an upgrade, which raybus completes."""
BACK: Final = "there-and-back"
"""Name of a service that is in an upgrade at both hand-overs, which KubeRay completes."""
RECORDED: Final = (BLUE_GREEN, STEPS, MOVING)
OLD: Final = "rayproject/ray:2.52.0"
NEW: Final = "rayproject/ray:2.53.0"


async def appear(on: Stage) -> None:
    """Create all objects, and begin both upgrades."""
    for document in goldens.users(of_name("plain").folder):
        if document["kind"] != RAY_CLUSTER.kind or document["metadata"]["name"] in CLUSTERS:
            await on.create(objects.resource_of(document), document)
    await _serve(on, BLUE_GREEN, rayClusterDeletionDelaySeconds=0)
    await _serve(on, STEPS, upgradeStrategy=_in_steps(100, 50, 1))
    await _serve(
        on, MOVING, upgradeStrategy=_in_steps(100, 20, 6), rayClusterDeletionDelaySeconds=3600
    )
    await _serve(
        on, BACK, upgradeStrategy=_in_steps(100, 10, 6), rayClusterDeletionDelaySeconds=3600
    )
    for name in (BLUE_GREEN, STEPS, MOVING, BACK):
        await on.until(name, is_served, "KubeRay serves it")
    await on.change(BLUE_GREEN, {"rayClusterConfig": config(NEW)})
    await on.until(BLUE_GREEN, is_pending, "its upgrade begins")
    await on.until(BLUE_GREEN, is_served, "its upgrade is over")
    for name in (BACK, MOVING):
        await on.change(
            name, {"rayClusterConfig": config(NEW), "serveConfigV2": a_serve_config(message="v2")}
        )
    for name in (BACK, MOVING):
        await on.until(name, is_at_least(20), "a part of the traffic has moved")


async def _serve(on: Stage, name: str, **spec: Any) -> None:
    body = a_ray_service(name=name, config=config(OLD), **spec)
    await on.create(RAY_SERVICE, body)


def config(image: str) -> Json:
    """Return the cluster of a service."""
    return a_cluster_config(
        a_group(minReplicas=1, replicas=2), image=image, enableInTreeAutoscaling=True
    )


def _in_steps(surge: int, step: int, interval: int) -> Json:
    options = {
        "maxSurgePercent": surge,
        "stepSizePercent": step,
        "intervalSeconds": interval,
        "gatewayClassName": "fast",
    }
    return {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}


def is_served(status: Json) -> bool:
    """Return whether a service serves what its spec asks for, from one cluster."""
    held = cast("list[Body]", status.get("conditions") or [])
    conditions = {each["type"]: each["status"] for each in held}
    return conditions.get("Ready") == "True" and status["isSeen"] and not _pending(status)


def is_pending(status: Json) -> bool:
    """Return whether the status names a pending cluster."""
    return bool(_pending(status))


def is_at_least(percent: int) -> Holds:
    """Return a condition: the new cluster has at least this percent of the traffic."""
    return lambda status: share(status) >= percent


def has_moved_on(before: Sequence[Body]) -> Holds:
    """Return a condition: more traffic has moved than in a snapshot."""
    held = next(
        each["status"]
        for each in before
        if each["kind"] == "RayService" and each["metadata"]["name"] == MOVING
    )
    was = share(held)
    return lambda status: not _pending(status) or share(status) > was


def share(status: Json) -> int:
    """Return the percent of the traffic that the new cluster has."""
    return int(_other(status).get("trafficRoutedPercent") or 0)


def _pending(status: Json) -> str:
    return str(_other(status).get("rayClusterName") or "")


def _other(status: Json) -> Body:
    return cast("Body", status.get("pendingServiceStatus") or {})


def changed(before: Sequence[Body], after: Sequence[Body]) -> list[str]:
    """Return the differences, except status and versions, of objects without an upgrade."""
    upgraded = {
        _key(each)
        for name in (MOVING, BACK)
        for some in (before, after)
        for each in trees.of_root(some, RAY_SERVICE.kind, name)
    }
    sides = (
        trees.stable([each for each in some if _key(each) not in upgraded])
        for some in (before, after)
    )
    return [each for each in objects.differences(*sides) if is_theirs(each)]


def is_theirs(difference: str) -> bool:
    """Return whether a difference concerns more than raybus's own records."""
    return not any(
        each in difference for each in ("ControllerRevision ", "raybus.io/traffic-record")
    )


def lost(before: Sequence[Body], after: Sequence[Body]) -> list[str]:
    """Return the pods and RayClusters that no longer exist."""
    kinds = {"Pod", "RayCluster"}
    gone = {_key(each) for each in before if each["kind"] in kinds} - {_key(each) for each in after}
    return sorted(gone)


def _key(body: Body) -> str:
    return f"{body['kind']} {body['metadata']['name']} {body['metadata']['uid']}"
