"""The state of the cluster for the demo: the RayService's clusters, their pods, and raybus' own pods. Pure views."""

import msgspec

from common.api.core import Pod
from common.api.meta import ObjectMeta


class ServeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """One side of an upgrade; capacity and share of the traffic in percent, None where no route divides it."""

    ray_cluster_name: str = ""
    target_capacity: int | None = None
    traffic_routed_percent: int | None = None


class Condition(msgspec.Struct, frozen=True):
    """One condition of a RayService."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the demo reads of a RayService's status."""

    service_status: str = ""
    active_service_status: ServeStatus = ServeStatus()
    pending_service_status: ServeStatus = ServeStatus()
    conditions: list[Condition] = []


class Service(msgspec.Struct, frozen=True):
    """The fields of a RayService that the demo reads."""

    metadata: ObjectMeta
    status: Status = Status()

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of a type."""
        return next((each for each in self.status.conditions if each.type == kind), None)

    @property
    def is_ready(self) -> bool:
        """Return whether requests are served."""
        ready = self.condition("Ready")
        return ready is not None and ready.status == "True"

    @property
    def is_upgrading(self) -> bool:
        """Return whether there is a pending cluster."""
        return bool(self.status.pending_service_status.ray_cluster_name)


class Cluster(msgspec.Struct, frozen=True):
    """The fields of a RayCluster that the demo reads."""

    metadata: ObjectMeta


class ClusterList(msgspec.Struct, frozen=True):
    """The answer to a list of RayClusters."""

    items: list[Cluster]


class PodList(msgspec.Struct, frozen=True):
    """The answer to a list of pods."""

    items: list[Pod]


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the cluster at one moment."""

    service: Service | None = None
    clusters: tuple[str, ...] = ()
    pods: tuple[Pod, ...] = ()
    raybus: tuple[Pod, ...] = ()
    load: Pod | None = None

    @property
    def active(self) -> str:
        """Return the name of the cluster that serves."""
        return self.service.status.active_service_status.ray_cluster_name if self.service else ""

    @property
    def pending(self) -> str:
        """Return the name of the cluster that will serve."""
        return self.service.status.pending_service_status.ray_cluster_name if self.service else ""

    def role(self, cluster: str) -> str:
        """Return the role of a cluster."""
        if cluster == self.active:
            return "active"
        return "pending" if cluster == self.pending else "old"


def pod_state(pod: Pod) -> str:
    """Return the state of a pod, as `kubectl get pods` does."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    for status in pod.status.container_statuses:
        if status.state.waiting is not None and status.state.waiting.reason:
            return status.state.waiting.reason
    return "Ready" if pod.is_running_and_ready else pod.status.phase or "Pending"
