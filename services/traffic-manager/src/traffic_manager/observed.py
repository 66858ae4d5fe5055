"""The observed state of a RayService, its clusters, its Gateway and its routes."""

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

import msgspec

from common import conditions
from common.api.core import ObjectReference, Service
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
    """The replicas of a cluster and its traffic weight when the cluster was last healthy."""

    weight: int
    """Percent of the traffic that the cluster received when it was last healthy."""
    replicas: Mapping[str, int] = {}
    """Running replicas by `<application>/<deployment>`."""
    ready: Mapping[str, int] = {}
    """Percent of the traffic that these replicas could carry, by `<application>/<deployment>`."""
    served: frozenset[str] = frozenset()
    """Applications that served. An application that never served cannot be lost."""
    nodes: frozenset[str] = frozenset()
    """Addresses of the ready pods with replicas. Only these nodes can be lost."""


class HealthMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Health history of one cluster in this process.

    A restart loses it, and the cluster then gets a new grace period.
    """

    unhealthy_since: datetime | None = None
    """Start of the current health problem; None while the cluster is healthy.

    A silent dashboard says nothing about health, so the value then stays unchanged.
    """
    healthy_since: datetime | None = None
    baseline: Baseline | None = None
    """State when the cluster was last healthy."""
    whole: Mapping[str, int] | None = None
    """Replicas by deployment when the cluster last carried all of the traffic."""


class ServedCluster(ServeView, frozen=True, kw_only=True):
    """A cluster of the RayService with the last answer of its Ray dashboard."""

    serve_service: Service | None = None
    """The Service with the name of the cluster's Serve Service, whoever owns it."""
    has_foreign_service: bool = False
    """Whether another object owns that Service. Its endpoints are then not read."""
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
    """Field manager that replaced raybus's backends on the route; None if none did."""
    clusters: frozenset[str] = frozenset()
    """Names of all RayClusters of the RayService, including clusters that are no longer needed."""
    unknown_kinds: frozenset[str] = frozenset()
    """Gateway API kinds that the API server recently did not know."""
    others: tuple[ServedCluster, ...] = ()
    """Existing clusters in the traffic record besides the active and pending ones.

    Their dashboards are not polled.
    """
    gone: frozenset[str] = frozenset()
    """Names in the traffic record without a RayCluster."""
    candidate: Candidate | None = None
    """Version that runs on the pending cluster of an upgrade with an UpgradePolicy.

    None without a policy and while the version changes.
    """
    window: Window | None = None
    """Metrics by which the gates of the policy are judged; None before they were read."""

    @property
    def pair(self) -> tuple[ServedCluster, ServedCluster] | None:
        """The active and the pending cluster of an upgrade; None unless both exist."""
        return None if self.active is None or self.pending is None else (self.active, self.pending)

    @property
    def sole(self) -> ServedCluster | None:
        """The only cluster; None for two clusters and for none."""
        return (self.active or self.pending) if self.pair is None else None

    @property
    def is_incremental(self) -> bool:
        """Whether traffic moves in steps, as service-reconciler recorded it."""
        return serve_writer.is_recorded(self.service)

    @property
    def is_spec_observed(self) -> bool:
        """Whether service-reconciler, which decides about the clusters, has observed this spec."""
        return self.service.status.observed_generation == self.service.metadata.generation

    @property
    def is_aborted(self) -> bool:
        """Whether the service stays on its active cluster, or rolls back to it.

        An abort overrides what the spec asks for.
        """
        return self.is_true(ConditionType.UPGRADE_ABORTED)

    @cached_property
    def upgrade(self) -> RecordedUpgrade | None:
        """The record of the upgrade between the active and the pending cluster."""
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
        """The Services that count as the operator's backends in every route."""
        return weighted_route.own_backends(self.service, self.clusters, self.routes)

    @cached_property
    def grpc_port(self) -> int | None:
        """The gRPC port of the active cluster, else of the pending one; None without gRPC."""
        found = (ports.of_grpc(each.cluster.raw_spec) for each in self.views)
        return next((port for port in found if port is not None), None)

    def is_true(self, kind: ConditionType) -> bool:
        """Return whether a condition of the RayService is True; service-reconciler writes them."""
        return conditions.is_true(self.service.status.conditions, kind)
