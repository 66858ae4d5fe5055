"""Pods of cluster `c` for tests, and what a reconcile of it has observed."""

from datetime import timedelta
from typing import Any

from cluster_reconciler import refusals
from cluster_reconciler.actions import ClusterPlan, Continue
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from common import labels
from common.api.core import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Service,
    ServicePort,
    ServiceSpec,
    StateTerminated,
    StateWaiting,
)
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.runtime.actions import Action
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.clock import FakeClock

NOW = FakeClock().now()
RAY = "ray"


def a_pod(
    name: str,
    *,
    node_type: str = labels.WORKER,
    group: str = "g",
    phase: str = "Running",
    ready: str | None = "True",
    ready_reason: str = "",
    ready_message: str = "",
    ended: bool = False,
    waiting: tuple[str, str] | None = None,
    restart_policy: str = "Always",
    terminating: bool = False,
    index: int | None = None,
    replica: str | None = None,
    annotations: dict[str, str] | None = None,
    age: float = 0,
) -> Pod:
    """Build a pod that runs and is ready, except for the given fields; its uid is made from its name, its age is in seconds."""
    marks = {labels.CLUSTER: "c", labels.NODE_TYPE: node_type, labels.GROUP: group}
    if index is not None:
        marks[labels.REPLICA_INDEX] = str(index)
    if replica is not None:
        marks[labels.REPLICA_NAME] = replica
    condition = PodCondition(
        type="Ready", status=ready or "", reason=ready_reason, message=ready_message
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            labels=marks,
            annotations=annotations or {},
            creation_timestamp=NOW - timedelta(seconds=age),
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=PodSpec(containers=[Container(name=RAY)], restart_policy=restart_policy),
        status=PodStatus(
            phase=phase,
            pod_ip="10.0.0.1",
            conditions=[] if ready is None else [condition],
            container_statuses=[_container(ended=ended, waiting=waiting)],
        ),
    )


def _container(*, ended: bool, waiting: tuple[str, str] | None) -> ContainerStatus:
    return ContainerStatus(
        name=RAY,
        state=ContainerState(
            terminated=StateTerminated(exit_code=1, reason="Error") if ended else None,
            waiting=StateWaiting(reason=waiting[0], message=waiting[1]) if waiting else None,
        ),
    )


def a_head_pod(name: str = "c-head-x", **fields: Any) -> Pod:
    """Build a head pod."""
    return a_pod(name, node_type=labels.HEAD, group=labels.HEAD_GROUP, **fields)


def some_workers(count: int, **fields: Any) -> tuple[Pod, ...]:
    """Build workers w0, w1, … with the indexes 0, 1, …"""
    return tuple(a_pod(f"w{number}", index=number, **fields) for number in range(count))


def a_head_service(**spec: Any) -> Service:
    """Build the head Service as the API server stores it."""
    defaults: dict[str, Any] = {
        "cluster_ip": "None",
        "ports": [ServicePort(name="client", port=10001, target_port=10001)],
    }
    return Service(
        metadata=ObjectMeta(name="c-head-svc", namespace="ns"),
        spec=ServiceSpec(**{**defaults, **spec}),
    )


def an_observation(*pods: Pod, cluster: RayCluster | None = None, **fields: Any) -> Observed:
    """Build what a reconcile has observed: a cluster, these pods and its head Service."""
    cluster, config = cluster or a_ray_cluster(), fields.pop("config", Config())
    defaults: dict[str, Any] = {
        "is_valid": refusals.find_violation_plan(cluster, config) is None,
        "now": NOW,
        "head_services": (a_head_service(),),
    }
    return Observed(
        cluster=cluster,
        config=config,
        pods=tuple(sorted(pods, key=lambda pod: pod.metadata.name)),
        **{**defaults, **fields},
    )


def actions_of(plan: ClusterPlan | Continue) -> list[Action]:
    """Return the actions of all steps of a plan, or of one phase of it."""
    return [each for step in plan.actions for each in step.actions]
