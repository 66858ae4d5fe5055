"""What a plan may know: one RayService, its two clusters, its Gateway and its route, read once."""

from datetime import datetime

import msgspec

from common import serve_writer, traffic_record
from common.api.core import Service
from common.api.gateway import Gateway, HttpRoute
from common.api.meta import Condition
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.feature_gates import Gates
from common.ray.view import Reading, Refusal
from common.traffic_record import Record


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of the RayService, with what its dashboard says."""

    cluster: RayCluster
    serve: Reading = Reading()
    given: str | None = None
    """The Serve config that Ray accepted last, from the durable record."""
    strategy: Json = {}
    """The upgrade strategy with which the cluster was begun, from the same record."""
    refused: Refusal | None = None
    put_at: datetime | None = None
    """When this process last sent a config; paces repeats, decides nothing else."""
    serve_service: Service | None = None
    silent_since: datetime | None = None
    """Since when this process has seen that the cluster cannot serve; None while it can."""
    endpoints: int = 0
    """Ready pods behind that Service."""

    @property
    def name(self) -> str:
        """Return the cluster's name."""
        return self.cluster.metadata.name


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one look at a RayService is decided from."""

    service: RayService
    gates: Gates
    active: ClusterView | None = None
    pending: ClusterView | None = None
    gateway: Gateway | None = None
    route: HttpRoute | None = None
    gateway_api_is_missing: bool = False
    """Whether the API server said lately that it knows no Gateways."""

    @property
    def is_incremental(self) -> bool:
        """Tell whether traffic moves in steps."""
        return serve_writer.is_incremental(self.service, self.gates)

    @property
    def is_vetted(self) -> bool:
        """Tell whether service-reconciler has taken in the spec as it is now; it alone says which clusters there are."""
        return self.service.status.observed_generation == self.service.metadata.generation

    @property
    def active_name(self) -> str:
        """Return the name of the active cluster, empty when there is none."""
        return self.service.status.active_service_status.ray_cluster_name

    @property
    def pending_name(self) -> str:
        """Return the name of the pending cluster, empty when there is none."""
        return self.service.status.pending_service_status.ray_cluster_name

    @property
    def record(self) -> Record:
        """Return the record on the route; the mirror in the status fills in what it lacks."""
        held, mirror = traffic_record.of_route(self.route), traffic_record.of_status(self.service)
        return msgspec.structs.replace(held, clusters={**mirror.clusters, **held.clusters})

    def says(self, kind: str) -> bool:
        """Tell whether a condition of the RayService is True."""
        found: list[Condition] = [each for each in self.service.status.conditions if each.type == kind]
        return any(each.status == "True" for each in found)
