"""A snapshot of a RayService: its objects at the API server. Pure data, so that tests can build what is shown."""

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
    """The object of an Event."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Series(ApiStruct, frozen=True, kw_only=True):
    """The repetitions of an Event."""

    count: int = 1
    last_observed_time: datetime | None = None


class Event(ApiStruct, frozen=True, kw_only=True):
    """An Event as kubelet, scheduler and controllers write them (events.k8s.io/v1)."""

    metadata: ObjectMeta
    event_time: datetime | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: Regarding = Regarding()
    series: Series | None = None
    deprecated_last_timestamp: datetime | None = None

    @property
    def at(self) -> datetime | None:
        """Return its last time."""
        last = self.series.last_observed_time if self.series is not None else None
        return (
            last
            or self.deprecated_last_timestamp
            or self.event_time
            or self.metadata.creation_timestamp
        )


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a ResourceQuota, and their use."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class Quota(ApiStruct, frozen=True, kw_only=True):
    """A ResourceQuota."""

    metadata: ObjectMeta
    status: QuotaStatus = QuotaStatus()


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayService that a command reads."""

    service: RayService
    clusters: tuple[RayCluster, ...] = ()
    """All with its labels, oldest first."""
    pods: tuple[Pod, ...] = ()
    """Those of its clusters, by name."""
    services: tuple[Service, ...] = ()
    events: tuple[Event, ...] = ()
    """About the RayService, its clusters and pods; oldest first."""
    revisions: tuple[Revision, ...] = ()
    """The Serve config records of the clusters."""
    goals: tuple[GoalRevision, ...] = ()
    """Its recorded specs, oldest first."""
    route: HttpRoute | None = None
    grpc_route: GrpcRoute | None = None
    gateways: Mapping[Place, Gateway | None] = {}
    quotas: tuple[Quota, ...] = ()
    serve: Mapping[str, ServeDetails] = {}
    """The answer of each cluster's dashboard, by the cluster's name."""
    unseen: tuple[str, ...] = ()
    """The objects that could not be read, and why."""

    @property
    def active(self) -> str:
        """Return the name of the cluster that serves."""
        return self.service.status.active_service_status.ray_cluster_name

    @property
    def pending(self) -> str:
        """Return the name of the pending cluster."""
        return self.service.status.pending_service_status.ray_cluster_name

    @property
    def record(self) -> Record:
        """Return the traffic record."""
        return weighted_route.record_of(self.service, (self.route,))

    def cluster(self, name: str) -> RayCluster | None:
        """Return a cluster by name."""
        return next((each for each in self.clusters if each.metadata.name == name), None)

    def pods_of(self, cluster: str) -> tuple[Pod, ...]:
        """Return the pods of a cluster."""
        return tuple(pod for pod in self.pods if pod.metadata.labels.get(labels.CLUSTER) == cluster)


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All objects of a RayCluster that a command reads."""

    cluster: RayCluster
    service: RayService | None = None
    """Its RayService, where it has one that the caller may read."""
    pods: tuple[Pod, ...] = ()
    """By name."""
    events: tuple[Event, ...] = ()
    """About the RayCluster and its pods; oldest first."""
    unseen: tuple[str, ...] = ()
    """The objects that could not be read, and why."""


def origin(cluster: RayCluster) -> str:
    """Return the name of the RayService that a cluster belongs to; empty when it belongs to none."""
    marks = cluster.metadata.labels
    return (
        marks.get(labels.ORIGIN_NAME, "") if marks.get(labels.ORIGIN_KIND) == "RayService" else ""
    )
