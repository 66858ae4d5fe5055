"""Find why the pods of a RayCluster do not start, and describe it in one line for users.

The text does not change while the problem lasts: it has no counters and no addresses, and it does
not alternate between "ErrImagePull" and "ImagePullBackOff". Spec rayservice §18 W15, rayjob §22.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias

from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.errors import Problem
from common.kube import answers
from common.kube.answers import RefusalKind

MAX_TEXT_LENGTH: Final = 300
REPORTED_AFTER: Final = timedelta(seconds=8)
"""Age of a pod from which it is reported as unschedulable.

Before that, a cluster autoscaler may still add a node."""
_PULL_TROUBLE: Final = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
}
_CONFIG_TROUBLE: Final = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


class StartCode(StrEnum):
    """The reasons why pods do not start."""

    CLUSTER_SUSPENDED = "ClusterSuspended"
    PODS_NOT_CREATED = "PodsNotCreated"
    QUOTA_EXCEEDED = "QuotaExceeded"
    WEBHOOK_SILENT = "WebhookSilent"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    """No node has room for a pod, or for all pods of its gang."""
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CONTAINER_NOT_STARTING = "ContainerNotStarting"


StartProblem: TypeAlias = Problem[StartCode]
_CODES: Final = {
    RefusalKind.QUOTA_EXCEEDED: StartCode.QUOTA_EXCEEDED,
    RefusalKind.WEBHOOK_SILENT: StartCode.WEBHOOK_SILENT,
}


def find_suspension(cluster: RayCluster) -> StartProblem | None:
    """Return a problem if a cluster is suspended, for example by Kueue, or else None."""
    if not cluster.intent.suspend:
        return None
    text = f"RayCluster {cluster.metadata.name} is suspended by its queue"
    return Problem(StartCode.CLUSTER_SUSPENDED, text)


def of_cluster(cluster: RayCluster) -> Iterator[StartProblem]:
    """Yield why pods or other objects of a cluster could not be created.

    The reasons are in a condition, into which cluster-reconciler and KubeRay copy the API server's
    error.
    """
    for condition in cluster.status.conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            code = _CODES.get(answers.classify(condition.message), StartCode.PODS_NOT_CREATED)
            reason = f"{condition.reason}: {shorten(condition.message)}"
            yield Problem(code, f"RayCluster {cluster.metadata.name}: {reason}")


def of_pods(pods: Iterable[Pod], now: datetime) -> Iterator[StartProblem]:
    """Yield the problem of each pod that cannot be scheduled or whose container does not start."""
    for pod in pods:
        if pod.is_running_and_ready or pod.metadata.deletion_timestamp is not None:
            continue
        name = pod.metadata.name
        if (problem := _of_containers(pod)) is not None:
            yield problem.at(f"pod {name}:")
        elif (problem := _of_placement(pod, now)) is not None:
            yield problem.at(f"pod {name}")


def _of_containers(pod: Pod) -> StartProblem | None:
    images = {spec.name: spec.image for spec in pod.spec.containers}
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, name = container.state.waiting, container.name
        if waiting is None:
            continue
        if waiting.reason in _PULL_TROUBLE:
            image = images.get(name) or f"of {name}"
            return Problem(StartCode.IMAGE_PULL_FAILED, f"the image {image} cannot be pulled")
        if waiting.reason in _CONFIG_TROUBLE:
            text = f"container {name}: {waiting.reason}: {shorten(waiting.message)}"
            return Problem(StartCode.CONTAINER_NOT_STARTING, text)
        if waiting.reason == "CrashLoopBackOff":
            text = f"container {name} keeps ending after its start"
            return Problem(StartCode.CONTAINER_NOT_STARTING, text)
    return None


def _of_placement(pod: Pod, now: datetime) -> StartProblem | None:
    created, placed = pod.metadata.creation_timestamp, pod.condition("PodScheduled")
    if placed is None or placed.status != "False":
        return None
    if created is None or now - created < REPORTED_AFTER:
        return None
    text = f"cannot be placed on a node: {shorten(placed.message)}"
    return Problem(StartCode.INSUFFICIENT_CAPACITY, text)


def shorten(text: str) -> str:
    """Return the first and the last line of a text; the last line of a traceback is the error.

    The result has at most about `MAX_TEXT_LENGTH` characters.
    """
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    short = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
    return (
        short
        if len(short) <= MAX_TEXT_LENGTH
        else short[: MAX_TEXT_LENGTH // 2] + " … " + short[-MAX_TEXT_LENGTH // 2 :]
    )
