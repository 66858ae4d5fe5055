"""What a plan may know: one RayService, its two clusters, its Gateway and its route, read once."""

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
from common.upgrade.traffic_record import Upgrade


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas of each deployment carried which share of the traffic when all was well."""

    weight: int
    replicas: Mapping[str, int] = {}
    """By `<application>/<deployment>`."""
    ready: Mapping[str, int] = {}
    """The percent of the traffic that these replicas could take over, by the same names."""
    served: frozenset[str] = frozenset()
    """The applications that served: only these can be lost."""
    nodes: frozenset[str] = frozenset()
    """The addresses of the ready pods with replicas: only these can be lost."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What this process observed of one cluster's health; forgotten with the process, which costs a moment of grace."""

    unhealthy_since: datetime | None = None
    """Since when something is wrong with the cluster; None while all is well.

    While its dashboard is silent, nothing is known, and this stays as it was."""
    healthy_since: datetime | None = None
    baseline: Baseline | None = None
    """The replicas when all was well last."""
    whole: Mapping[str, int] | None = None
    """The replicas of each deployment when the cluster carried all of the traffic last."""


class ClusterView(ServeView, frozen=True, kw_only=True):
    """A cluster of the RayService, with the answer of its dashboard."""

    serve_service: Service | None = None
    endpoints: Mapping[str, ObjectReference] = {}
    """The ready pods behind that Service, by address."""
    has_slices: bool = True
    """Whether Kubernetes has looked at the pods behind that Service: it has an EndpointSlice."""
    memory: Memory = Memory()


class Observed(RoutedService[ClusterView], frozen=True, kw_only=True, dict=True):
    """Everything that one reconcile of a RayService is decided from."""

    overwriter: str | None = None
    """The field manager that replaced our backends on the route, where that is so."""
    clusters: frozenset[str] = frozenset()
    """All RayClusters of the RayService by name, unneeded ones included."""
    unknown_kinds: frozenset[str] = frozenset()
    """Kinds of the Gateway API that the API server lately did not know."""
    others: tuple[ClusterView, ...] = ()
    """Clusters that the traffic record names beside these two, and that exist; their dashboards are not polled."""
    gone: frozenset[str] = frozenset()
    """Clusters of the traffic record without a RayCluster."""
    candidate: Candidate | None = None
    """What the pending cluster of an upgrade with an UpgradePolicy runs; None without one, and while that changes."""
    window: Window | None = None
    """What the gates of the policy are judged by; None before it was observed."""

    @property
    def pair(self) -> tuple[ClusterView, ClusterView] | None:
        """Return the active cluster and the pending one of an upgrade, where both exist."""
        return None if self.active is None or self.pending is None else (self.active, self.pending)

    @property
    def sole(self) -> ClusterView | None:
        """Return the only cluster; None for two, and for none."""
        return (self.active or self.pending) if self.pair is None else None

    @property
    def is_incremental(self) -> bool:
        """Return whether traffic moves in steps, by what service-reconciler recorded."""
        return serve_writer.is_recorded(self.service)

    @property
    def is_spec_observed(self) -> bool:
        """Return whether service-reconciler has observed the spec's generation; it alone decides which clusters there are."""
        return self.service.status.observed_generation == self.service.metadata.generation

    @property
    def is_aborted(self) -> bool:
        """Return whether the service stays on its active cluster, or rolls back to it, whatever its spec asks for."""
        return self.is_true("UpgradeAborted")

    @cached_property
    def upgrade(self) -> Upgrade | None:
        """Return what is recorded of the upgrade in steps that is on."""
        return traffic_record.upgrade_of(self.record, self.active_name, self.pending_name)

    @property
    def active_name(self) -> str:
        """Return the name of the active cluster, empty when there is none."""
        return self.service.status.active_service_status.ray_cluster_name

    @property
    def pending_name(self) -> str:
        """Return the name of the pending cluster, empty when there is none."""
        return self.service.status.pending_service_status.ray_cluster_name

    @cached_property
    def own_backends(self) -> frozenset[Reference]:
        """Return the Services that are ours wherever a route names them."""
        return weighted_route.own_backends(self.service, self.clusters, self.routes)

    @cached_property
    def grpc_port(self) -> int | None:
        """Return the port through which the active cluster takes gRPC calls, or the pending one when only that does."""
        found = (ports.of_grpc(each.cluster.raw_spec) for each in self.views)
        return next((port for port in found if port is not None), None)

    def is_true(self, kind: str) -> bool:
        """Return whether a condition of the RayService is True: a decision of service-reconciler, as this service writes no condition."""
        return conditions.is_true(self.service.status.conditions, kind)
