"""Waits until a changed spec is served: of a RayService by its rollout, of a RayCluster by its own status."""

from common import conditions
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from raybus_cli import waiting
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import Target
from raybus_cli.show import rollout_wait
from raybus_cli.show.rollout_status import RolloutState, RolloutStatus


async def until_served(kube: KubeClient, namespace: str, target: Target, *, seconds: float) -> RolloutStatus:
    """Return the end of the rollout, or what is pending after some seconds."""
    if target.resource is RAY_SERVICE:
        return await rollout_wait.until_over(kube, namespace, target.name, seconds=seconds)
    found = await waiting.until(lambda: reader.cluster(kube, namespace, target.name), pending, limit=seconds)
    if why := pending(found):
        return RolloutStatus(course=RolloutState.TIMED_OUT, text=f"not within {seconds:g} s: {why}")
    return RolloutStatus(course=RolloutState.DONE, text=f"RayCluster {namespace}/{target.name} is ready")


def pending(cluster: RayCluster) -> str:
    """Return what a RayCluster lacks of its present spec; empty when it is ready."""
    status, wanted = cluster.status, cluster.metadata.generation
    if status.observed_generation < wanted:
        return f"raybus has not observed generation {wanted} yet (last observed: {status.observed_generation})"
    if not conditions.is_true(status.conditions, "HeadPodReady"):
        return "the head pod is not ready"
    available, desired = status.available_worker_replicas, status.desired_worker_replicas
    return f"{available} of {desired} workers are available" if available < desired else ""
