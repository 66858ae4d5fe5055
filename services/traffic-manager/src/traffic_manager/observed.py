"""The observed state of a RayService, its clusters, its Gateway and its routes."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

import msgspec

from common import conditions
from common.api.core import ObjectReference, Service
from common.api.gateway import GatewayClass
from common.api.reference import Reference
from common.ray import ports, serve_writer
from common.ray.view import ServeView
from common.upgrade import traffic_record, weighted_route
from common.upgrade.candidate import Candidate
from common.upgrade.gates import Window
from common.upgrade.routed_service import RoutedService
from common.upgrade.service_conditions import ConditionType
from common.upgrade.traffic_record import RecordedUpgrade


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """State of a cluster when it was last healthy; later losses are measured against this state."""

    weight: int
    """Percent of the traffic that the cluster received when it was last healthy."""
    replicas: Mapping[str, int] = {}
    """Running replicas by `<application>/<deployment>`."""
    ready: Mapping[str, int] = {}
    """Percent of the traffic that a deployment could carry, by `<application>/<deployment>`."""
    served: frozenset[str] = frozenset()
    """Applications that served when the cluster was healthy; no other application can be lost."""
    nodes: frozenset[str] = frozenset()
    """IP addresses of ready pods that had replicas; no other pod counts as lost later."""


class HealthMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Health history of one cluster, kept only in this process.

    After a restart the history is empty, and the cluster gets a new grace period.
    """

    unhealthy_since: datetime | None = None
    """Start of the current health problem; None while the cluster is healthy.

    A silent dashboard says nothing about health, so the value then stays unchanged.
    """
    healthy_since: datetime | None = None
    baseline: Baseline | None = None
    """State when the cluster was last healthy."""
    whole: Mapping[str, int] | None = None
    """Running replicas by deployment when the cluster last carried all of the traffic."""


class ServedCluster(ServeView, frozen=True, kw_only=True):
    """A cluster of the RayService with the last answer of its Ray dashboard."""

    serve_service: Service | None = None
    """The Service with the name of the cluster's Serve Service, whoever owns it."""
    has_foreign_service: bool = False
    """Whether `serve_service` belongs to another object; its endpoints are then not read."""
    endpoints: Mapping[str, ObjectReference] = {}
    """Ready pods behind the Serve Service, by IP address."""
    unready: frozenset[str] = frozenset()
    """IP addresses of pods that still exist behind the Serve Service and are not ready."""
    has_slices: bool = True
    """Whether the Serve Service has an EndpointSlice. A new Service has none yet."""
    memory: HealthMemory = HealthMemory()


class Observed(RoutedService[ServedCluster], frozen=True, kw_only=True, dict=True):
    """Everything that one reconcile of a RayService needs to make its plan."""

    overwriter: str | None = None
    """Field manager that removed raybus's backends from the route; None if none did."""
    clusters: frozenset[str] = frozenset()
    """Names of all RayClusters of the RayService, including clusters that are no longer needed."""
    unknown_kinds: frozenset[str] = frozenset()
    """Gateway API kinds that the API server did not know when an object was last created."""
    others: tuple[ServedCluster, ...] = ()
    """Clusters in the traffic record that exist and are neither active nor pending.

    Their dashboards are not polled.
    """
    gone: frozenset[str] = frozenset()
    """Names of clusters in the traffic record whose RayCluster does not exist any more."""
    candidate: Candidate | None = None
    """Version that runs on the pending cluster of an upgrade with an UpgradePolicy.

    None without an UpgradePolicy, and while the version changes.
    """
    gateway_class: GatewayClass | None = None
    """Class of the Gateway, read for an upgrade whose policy asks for mirrored requests."""
    window: Window | None = None
    """Metrics by which the gates are judged; None until they are read."""

    @property
    def pair(self) -> tuple[ServedCluster, ServedCluster] | None:
        """The active and the pending cluster of an upgrade; None unless both clusters exist."""
        return None if self.active is None or self.pending is None else (self.active, self.pending)

    @property
    def sole(self) -> ServedCluster | None:
        """The active or pending cluster if only one exists; None for two clusters and for none."""
        return (self.active or self.pending) if self.pair is None else None

    @property
    def is_incremental(self) -> bool:
        """Whether traffic moves in steps, as service-reconciler recorded in the status."""
        return serve_writer.is_recorded(self.service)

    @property
    def is_spec_observed(self) -> bool:
        """Whether service-reconciler, which decides about the clusters, has observed this spec."""
        return self.service.status.observed_generation == self.service.metadata.generation

    @property
    def is_aborted(self) -> bool:
        """Whether the service stays on its active cluster, or rolls back to that cluster.

        An abort overrides the strategy of the spec.
        """
        return self.is_true(ConditionType.UPGRADE_ABORTED)

    @cached_property
    def upgrade(self) -> RecordedUpgrade | None:
        """The recorded upgrade from the active to the pending cluster; None if none is recorded."""
        return traffic_record.upgrade_of(self.record, self.active_name, self.pending_name)

    @property
    def active_name(self) -> str:
        """Name of the active cluster; empty if there is none."""
        return self.service.status.active_service_status.ray_cluster_name

    @property
    def pending_name(self) -> str:
        """Name of the pending cluster; empty if there is none."""
        return self.service.status.pending_service_status.ray_cluster_name

    @cached_property
    def own_backends(self) -> frozenset[Reference]:
        """The Services that raybus treats as its own backends in every route."""
        return weighted_route.own_backends(self.service, self.clusters, self.routes)

    @cached_property
    def grpc_port(self) -> int | None:
        """The gRPC port of the active cluster, else of the pending cluster; None without gRPC."""
        ports_of_views = (ports.of_grpc(view.cluster.raw_spec) for view in self.views)
        return next((port for port in ports_of_views if port is not None), None)

    def is_true(self, kind: ConditionType) -> bool:
        """Return whether the RayService's condition `kind`, from service-reconciler, is True."""
        return conditions.is_true(self.service.status.conditions, kind)
