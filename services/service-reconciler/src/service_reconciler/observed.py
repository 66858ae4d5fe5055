"""The observed state of one RayService and its objects, from which a plan is decided."""

from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Self

import msgspec

from common import labels
from common.annotation_record import EARLIEST
from common.api.core import Pod, Service
from common.api.gateway import GrpcRoute, Route, lagging_parents
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService, RayServiceStatus
from common.errors import Problem
from common.kube.resources import GRPC_ROUTE, HTTP_ROUTE
from common.ray import owner, serve_config, serve_writer
from common.ray.serve_config import ParsedConfigs, ServeConfig
from common.ray.view import ServeView, head_is_ready
from common.upgrade import policy as upgrade_policy
from common.upgrade import traffic_record, weighted_route
from common.upgrade.policy import Stored
from common.upgrade.routed_service import RoutedService
from common.upgrade.service_conditions import ConditionType, Reason
from common.upgrade.traffic_record import RecordedUpgrade
from service_reconciler import recorded_decisions, validation
from service_reconciler.reasons import EventReason
from service_reconciler.resources import ray_cluster, services
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.settings import Config

REREAD: Final = timedelta(seconds=10)
"""Interval at which an upgrade's UpgradePolicy with `applyEdits: AtOnce` is read again."""
HA_PROXY: Final = b"RAY_SERVE_ENABLE_HA_PROXY"
"""Ray's environment variable that makes HAProxy the proxy; searched in the JSON of a spec."""


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the active and the pending cluster; empty if there is no such cluster."""

    active: str = ""
    pending: str = ""

    @classmethod
    def from_status(cls, status: RayServiceStatus) -> Self:
        active, pending = status.active_service_status, status.pending_service_status
        return cls(active=active.ray_cluster_name, pending=pending.ray_cluster_name)


class ClusterView(ServeView, frozen=True, kw_only=True):
    """A cluster of the RayService with its pods and the answers of its dashboard."""

    lacks_goal_since: datetime | None = None
    """When this process first saw the cluster without the Serve config that it should get."""
    proxy_answers: tuple[bool, ...] = ()
    """Whether each of the latest health checks of the head's proxy succeeded, newest last."""

    @property
    def head(self) -> Pod | None:
        """The head pod; None unless exactly one head pod exists that is not being deleted."""
        heads = [
            pod
            for pod in self.pods
            if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD
            and pod.metadata.deletion_timestamp is None
        ]
        return heads[0] if len(heads) == 1 else None

    @property
    def offered(self) -> tuple[Pod, ...]:
        """The pods that the cluster's Serve Service selects, ready or not."""
        return tuple(pod for pod in self.pods if pod.metadata.labels.get(labels.SERVE) == "true")

    @property
    def proxies(self) -> tuple[Pod, ...]:
        """The pods that can receive requests: selected by the Serve Service, running and ready."""
        return tuple(pod for pod in self.offered if pod.is_running_and_ready)


class DrainingCluster(msgspec.Struct, frozen=True, kw_only=True):
    """An unneeded cluster that may have requests in flight."""

    cluster: RayCluster
    pods: tuple[Pod, ...]
    """Pods with proxies that may handle requests."""
    ongoing: int | None = None
    """Requests in flight, read after the cluster's deadline; None if unknown."""
    is_silent: bool = False
    """Whether pods were asked for their requests in flight and no pod answered."""
    has_ha_proxy: bool = False
    """Whether HAProxy is the proxy. Its count of requests in flight is updated less often."""

    @property
    def is_graceful(self) -> bool:
        """Whether the user asked for pods of the cluster to be marked as draining."""
        return any(drains(pod) for pod in self.pods)

    @property
    def is_drained_for_good(self) -> bool:
        """Whether the cluster's proxies can never serve again: HAProxy stays in the drain state."""
        is_marked = any(labels.DRAINING in pod.metadata.annotations for pod in self.pods)
        return is_marked and (self.has_ha_proxy or HA_PROXY in bytes(self.cluster.spec_json))


def drains(pod: Pod) -> bool:
    """Return whether the user's annotation allows raybus to mark a pod as draining."""
    return pod.metadata.annotations.get(labels.GRACEFUL_DRAIN) == "true"


class PolicyReading(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading an UpgradePolicy; all fields are None if there is no policy."""

    record: str | None = None
    """The policy as it is recorded in an annotation of the new cluster."""
    problem: Problem[Reason] | None = None
    """Why the policy cannot be used; None if it can be used."""
    stored: Stored | None = None
    """The policy object; None if it was not read in this reconcile."""


class Observed(RoutedService[ClusterView], frozen=True, kw_only=True, dict=True):
    """The observed state of a RayService, from which one reconcile decides."""

    config: Config
    names: Names
    foreign_names: frozenset[str] = frozenset()
    """Clusters that the status names but that the RayService may not control; not in `names`."""
    fresh_name: str = ""
    """A name for a new cluster that no existing cluster of this RayService has."""
    violation: Problem[EventReason] | None = None
    clusters: tuple[RayCluster, ...] = ()
    """All clusters with the labels of the RayService."""
    draining: tuple[DrainingCluster, ...] = ()
    """The unneeded clusters that drain, with their requests in flight."""
    services: tuple[Service, ...] = ()
    """All Services with the labels of the RayService."""
    head_service: Service | None = None
    serve_service: Service | None = None
    preview_service: Service | None = None
    """The Service that has the name of the preview Service, whoever owns it."""
    endpoints: int = 0
    parsed: ParsedConfigs = msgspec.field(default_factory=dict[str, ServeConfig])
    """Parsed Serve configs of the spec and of both clusters, by the text of the config."""
    next_policy: PolicyReading | None = PolicyReading()
    """The UpgradePolicy of the upgrade that is about to begin.

    None if the policy was not read; then no cluster is created for an upgrade.
    """
    edited_policy: PolicyReading | None = None
    """The edited UpgradePolicy of the upgrade in progress; None without an edit to apply."""
    is_namespace_ending: bool = False
    """Whether the namespace is terminating. False, unchecked, while the active cluster exists."""
    clock_set_at: datetime | None = None
    """When the wall clock was last set; timestamps before then are unreliable."""

    @cached_property
    def goal_config(self) -> ServeConfig:
        """The Serve config of the spec."""
        return serve_config.get(self.service.serve_config, self.parsed)

    @cached_property
    def is_incremental(self) -> bool:
        """Whether traffic-manager moves traffic in steps and sends the Serve configs."""
        return serve_writer.is_incremental(self.service, self.config.gates)

    @cached_property
    def upgrade(self) -> RecordedUpgrade | None:
        """The record of the stepwise upgrade in progress; None if there is none."""
        names = self.names
        return (
            traffic_record.upgrade_of(self.record, names.active, names.pending)
            if self.is_incremental
            else None
        )

    @cached_property
    def initializing_limit(self) -> timedelta | None:
        """Time limit of the first start; None without one. Raises `InvalidSpec` for a bad value."""
        return validation.initializing_limit(self.service.metadata.annotations)

    @cached_property
    def all_routes(self) -> tuple[Route, ...]:
        """All routes that may send requests to the clusters."""
        single = (self.route, self.our_route, self.grpc_route)
        return (*(action for action in single if action is not None), *self.users_routes)

    @cached_property
    def own_serve_service(self) -> Service | None:
        """The Serve Service; None if it is missing or belongs to another owner."""
        have = self.serve_service
        return (
            have
            if have is not None and owner.other(have.metadata, self.service.metadata) is None
            else None
        )

    @property
    def serving(self) -> str:
        """Name of the cluster that the Serve Service selects; empty if traffic moves in steps."""
        return "" if self.is_incremental else services.selected(self.serve_service)

    @cached_property
    def undeleted(self) -> tuple[RayCluster, ...]:
        """The clusters that are not being deleted."""
        return tuple(
            cluster for cluster in self.clusters if cluster.metadata.deletion_timestamp is None
        )

    @cached_property
    def unneeded(self) -> tuple[RayCluster, ...]:
        """The clusters that are neither active nor pending and are not being deleted."""
        needed = {self.names.active, self.names.pending}
        return tuple(cluster for cluster in self.undeleted if cluster.metadata.name not in needed)

    @cached_property
    def replaced(self) -> RayCluster | None:
        """The unneeded cluster that the active cluster replaced; None if there is none."""
        old = upgrade_policy.upgraded_from(None if self.active is None else self.active.cluster)
        return next((cluster for cluster in self.unneeded if cluster.metadata.name == old), None)

    @property
    def returning(self) -> tuple[ClusterView, ClusterView] | None:
        """The active and the pending cluster during a return to the replaced cluster; else None.

        The RayService returns if the pending cluster is the one that the active cluster was created
        to replace. The upgrade that created the active cluster is recorded as ended before traffic
        moves back.
        """
        active, back = self.active, self.pending
        if active is None or back is None:
            return None
        return (active, back) if upgrade_policy.upgraded_from(active.cluster) == back.name else None

    @cached_property
    def baking(self) -> tuple[RayCluster, timedelta] | None:
        """The replaced cluster and the time for which the UpgradePolicy keeps it (`bake`).

        None without such a cluster, or if traffic moves in steps, because the bake then comes
        earlier.
        """
        if self.active is None or self.is_incremental:
            return None
        policy, old = upgrade_policy.of_cluster(self.active.cluster), self.replaced
        if policy is None or policy.bake <= timedelta(0) or old is None:
            return None
        return None if marks_of(old) else (old, policy.bake)

    @property
    def policy_read(self) -> PolicyReading | None:
        """The UpgradePolicy as read in this reconcile; None if it was not read."""
        return self.next_policy if self.following is None else self.edited_policy

    @property
    def following(self) -> RayCluster | None:
        """The cluster whose recorded UpgradePolicy applies now; None if there is none.

        This is the pending cluster of an upgrade that goes forward, or the active cluster during
        its bake.
        """
        is_over = recorded_decisions.is_rolling_back(self.service) or recorded_decisions.holds(
            self.service, ConditionType.UPGRADE_ABORTED
        )
        if self.pending is not None:
            return None if self.policy is None or is_over else self.pending.cluster
        return None if self.active is None or self.baking is None else self.active.cluster

    @property
    def returnable(self) -> RayCluster | None:
        """The replaced cluster, if the service may return to it without a new cluster (ADR 44).

        The replaced cluster must be complete, match the RayService and be older than the active
        cluster. Otherwise the return is an upgrade like any other, and the version has to pass its
        gates.
        """
        old, active = self.replaced, self.active
        if old is None or active is None or not is_whole(old):
            return None
        if any(
            draining_cluster.cluster is old and draining_cluster.is_drained_for_good
            for draining_cluster in self.draining
        ):
            return None
        births = (either.metadata.creation_timestamp for either in (old, active.cluster))
        born, later = (moment or EARLIEST for moment in births)
        is_wanted = ray_cluster.match(old, self.service) is Match.FULL
        return old if is_wanted and born <= later else None

    def match(self, view: ClusterView) -> Match:
        """Return how the spec of a cluster compares with the spec of the RayService."""
        return ray_cluster.match(view.cluster, self.service)

    def requests_from(self, cluster: str) -> str | None:
        """Return the route or Service that sends requests to a cluster; None if there is none.

        A route sends requests if it gives the cluster a weight. If the weight was removed, the
        route still counts until its Gateway has accepted this change. A Gateway that does not exist
        is ignored.
        """
        backend = weighted_route.serve_service(self.service.metadata.namespace, cluster)
        upgrade = self.record.upgrade
        had_requests = (
            isinstance(upgrade, RecordedUpgrade)
            and cluster in {upgrade.old, upgrade.new}
            and upgrade.moved_at is not None
        )
        for route in self.all_routes:
            kind = GRPC_ROUTE.kind if isinstance(route, GrpcRoute) else HTTP_ROUTE.kind
            name = f"{kind} {route.metadata.namespaced_name}"
            if traffic_record.weight_of(route, backend) > 0:
                return name
            if had_requests and any(
                not parent.is_gateway or self.gateways.get(parent.place, True)
                for parent in lagging_parents(route, is_settled=self.is_settled)
            ):
                return f"{name}, which its Gateway has not accepted yet as it is now"
        is_selected = services.selected(self.own_serve_service) == cluster
        return f"Service {services.serve_name(self.service)}" if is_selected else None


def marks_of(cluster: RayCluster) -> tuple[str, ...]:
    """Return the names of a cluster's annotations that mark it as unneeded.

    These are the deadline and the start of the drain.
    """
    marks = (labels.DELETE_AFTER, labels.DRAINING_SINCE)
    return tuple(mark for mark in marks if mark in cluster.metadata.annotations)


def is_whole(cluster: RayCluster) -> bool:
    """Return whether a cluster has a ready head and all desired workers, and is not suspended."""
    status, is_suspended = cluster.status, cluster.raw_spec.get("suspend") is True
    has_workers = status.ready_worker_replicas >= status.desired_worker_replicas
    return head_is_ready(cluster) and has_workers and not is_suspended


def names_of(
    service: RayService,
    clusters: tuple[RayCluster, ...],
    serving: str,
    foreign: frozenset[str] = frozenset(),
) -> Names:
    """Return the cluster names of the status, or rebuild them from the clusters (acceptance 93).

    They are rebuilt if the status was wiped while clusters run, or if it names clusters of other
    owners (`foreign`). In that case, the active cluster is `serving`, which the Services select.
    The pending cluster is the newest other cluster without a deletion deadline; only unneeded
    clusters have one.
    """
    names = Names.from_status(service.status)
    is_forged = not foreign.isdisjoint({names.active, names.pending})
    if not is_forged and (names != Names() or service.status.conditions):
        return names
    alive = [
        cluster
        for cluster in clusters
        if cluster.metadata.deletion_timestamp is None
        and owner.may_control(service.metadata, cluster.metadata)
    ]
    active = next(
        (cluster.metadata.name for cluster in alive if cluster.metadata.name == serving), ""
    )
    others = (cluster.metadata for cluster in alive if cluster.metadata.name != active)
    waiting = (meta for meta in others if labels.DELETE_AFTER not in meta.annotations)
    newest = max(
        waiting, key=lambda meta: (meta.creation_timestamp or EARLIEST, meta.name), default=None
    )
    return Names(active=active, pending=newest.name if newest is not None else "")
