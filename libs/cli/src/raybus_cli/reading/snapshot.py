"""A snapshot of the objects of a RayService. It is pure data, so that tests can build any state."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from common import labels
from common.api.core import Pod, Service
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.meta import ApiStruct, ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray.goal_revision import GoalRevision
from common.ray.revision import Revision
from common.ray.serve_status import ServeDetails
from common.upgrade import weighted_route
from common.upgrade.traffic_record import Record
from common.upgrade.weighted_route import Place


class Regarding(ApiStruct, frozen=True, kw_only=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class EventRepetition(ApiStruct, frozen=True, kw_only=True):
    """How often an Event was repeated."""

    count: int = 1
    last_observed_time: datetime | None = None


class KubernetesEvent(ApiStruct, frozen=True, kw_only=True):
    """An Event of events.k8s.io/v1, as the kubelet, the scheduler and controllers write it."""

    metadata: ObjectMeta
    event_time: datetime | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: Regarding = Regarding()
    series: EventRepetition | None = None
    deprecated_last_timestamp: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """The time at which the Event last occurred."""
        last = self.series.last_observed_time if self.series is not None else None
        return (
            last
            or self.deprecated_last_timestamp
            or self.event_time
            or self.metadata.creation_timestamp
        )


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and usage of a ResourceQuota."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class Quota(ApiStruct, frozen=True, kw_only=True):
    """A ResourceQuota with its limits and usage."""

    metadata: ObjectMeta
    status: QuotaStatus = QuotaStatus()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayService that commands read."""

    service: RayService
    clusters: tuple[RayCluster, ...] = ()
    """All clusters that carry the RayService's labels, oldest first."""
    pods: tuple[Pod, ...] = ()
    """The pods of the clusters, sorted by name."""
    services: tuple[Service, ...] = ()
    events: tuple[KubernetesEvent, ...] = ()
    """Events about the RayService, its clusters and its pods, oldest first."""
    revisions: tuple[Revision, ...] = ()
    """Serve config records of the clusters."""
    goals: tuple[GoalRevision, ...] = ()
    """Recorded specs of the RayService, oldest first."""
    route: HttpRoute | None = None
    grpc_route: GrpcRoute | None = None
    gateways: Mapping[Place, Gateway | None] = {}
    quotas: tuple[Quota, ...] = ()
    serve: Mapping[str, ServeDetails] = {}
    """The Serve state that each cluster's dashboard reported, by cluster name."""
    unseen: tuple[str, ...] = ()
    """Objects that could not be read, each with the reason."""

    @property
    def active(self) -> str:
        """Name of the active cluster; empty without one."""
        return self.service.status.active_service_status.ray_cluster_name

    @property
    def pending(self) -> str:
        """Name of the pending cluster; empty without one."""
        return self.service.status.pending_service_status.ray_cluster_name

    @property
    def record(self) -> Record:
        return weighted_route.record_of(self.service, (self.route,))

    def find_cluster(self, name: str) -> RayCluster | None:
        return next((cluster for cluster in self.clusters if cluster.metadata.name == name), None)

    def list_pods(self, cluster: str) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.metadata.labels.get(labels.CLUSTER) == cluster)


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayCluster that commands read."""

    cluster: RayCluster
    service: RayService | None = None
    """The RayService that the cluster belongs to, if there is one and the user may read it."""
    pods: tuple[Pod, ...] = ()
    """The pods of the cluster, sorted by name."""
    events: tuple[KubernetesEvent, ...] = ()
    """Events about the RayCluster and its pods, oldest first."""
    unseen: tuple[str, ...] = ()
    """Objects that could not be read, each with the reason."""


def find_origin(cluster: RayCluster) -> str:
    """Return the name of the RayService that a cluster belongs to; empty if it belongs to none."""
    marks = cluster.metadata.labels
    return (
        marks.get(labels.ORIGIN_NAME, "") if marks.get(labels.ORIGIN_KIND) == "RayService" else ""
    )
