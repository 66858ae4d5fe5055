"""Pods as the cluster-reconciler builds them, for tests of one part."""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from support.builders.ray_cluster import first_group


def head_of(cluster: RayCluster, config: Config | None = None) -> Body:
    """Build the cluster's head pod."""
    return head_pod.build(cluster, config or Config(), name="c-head-abcde")


def worker_of(
    cluster: RayCluster, config: Config | None = None, replica: ReplicaIndex | None = None
) -> Body:
    """Build a worker pod of the cluster's first group."""
    return worker_pod.build(
        cluster,
        first_group(cluster),
        config or Config(),
        name="c-g-worker-abcde",
        replica=replica or ReplicaIndex(0),
    )


def ray_container_of(pod: Body) -> Json:
    """Return the Ray container."""
    return pod["spec"]["containers"][0]


def env_of(container: Json) -> dict[str, str]:
    """Return name to value, the last one of a name; what comes from elsewhere is shown by its JSON."""
    return {
        env["name"]: env["value"] if "value" in env else str(env["valueFrom"])
        for env in container.get("env", [])
    }


def ray_start_of(pod: Body) -> str:
    """Return the text of the start command."""
    return env_of(ray_container_of(pod))["KUBERAY_GEN_RAY_START_CMD"]


def containers_of(pod: Body, field: str = "containers") -> dict[str, Json]:
    """Return name to container."""
    return {container["name"]: container for container in pod["spec"].get(field, [])}
