"""What a plan may know: one RayService and all that belongs to it, read once."""

from datetime import datetime, timedelta
from functools import cached_property
from typing import Final, Self

import msgspec
from msgspec import UnsetType

from common import labels
from common.annotation_record import EARLIEST
from common.api.core import Pod, Service
from common.api.gateway import GrpcRoute, Route, lagging_parents
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService, RayServiceStatus
from common.errors import Problem
from common.kube.resources import GRPC_ROUTE, HTTP_ROUTE
from common.ray import owner, serve_writer
from common.ray.view import ServeView, head_is_ready
from common.upgrade import policy as upgrade_policy
from common.upgrade import traffic_record, weighted_route
from common.upgrade.policy import Stored
from common.upgrade.routed_service import RoutedService
from common.upgrade.traffic_record import Upgrade
from service_reconciler import decided, validation
from service_reconciler.reasons import ConditionType, EventReason, Reason
from service_reconciler.resources import ray_cluster, services
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.settings import Config

REREAD: Final = timedelta(seconds=10)
"""Between two reads of an UpgradePolicy with edits that apply at once, for each upgrade that follows it."""
HA_PROXY: Final = b"RAY_SERVE_ENABLE_HA_PROXY"
"""The environment variable of Ray that makes HAProxy the proxy, in the text of a spec."""


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """The two clusters of a RayService by name; empty when there is none."""

    active: str = ""
    pending: str = ""

    @classmethod
    def of(cls, status: RayServiceStatus) -> Self:
        """Return the names in a status."""
        active, pending = status.active_service_status, status.pending_service_status
        return cls(active=active.ray_cluster_name, pending=pending.ray_cluster_name)


class ClusterView(ServeView, frozen=True, kw_only=True):
    """A cluster of the RayService, with the state of its pods and the answer of its dashboard."""

    lacks_goal_since: datetime | None = None
    """Since when this process has observed that the cluster, which is to get the Serve config of the spec, does not have it."""
    proxy_answers: tuple[bool, ...] = ()
    """The last health checks of the head's proxy, newest last."""

    @property
    def head(self) -> Pod | None:
        """Return the one head pod, None while there is none or there are two."""
        heads = [
            pod
            for pod in self.pods
            if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD
            and pod.metadata.deletion_timestamp is None
        ]
        return heads[0] if len(heads) == 1 else None

    @property
    def offered(self) -> tuple[Pod, ...]:
        """Return the pods that its Serve Service selects, ready or not."""
        return tuple(each for each in self.pods if each.metadata.labels.get(labels.SERVE) == "true")

    @property
    def proxies(self) -> tuple[Pod, ...]:
        """Return the pods that can be sent requests."""
        return tuple(each for each in self.offered if each.is_running_and_ready)


class DrainingCluster(msgspec.Struct, frozen=True, kw_only=True):
    """An unneeded cluster that may have requests in flight."""

    cluster: RayCluster
    pods: tuple[Pod, ...]
    """Those with proxies that may work on requests."""
    ongoing: int | None = None
    """Requests in flight; asked only when the cluster is due to go, None when unknown."""
    is_silent: bool = False
    """Whether no pod at all reports its number."""
    has_ha_proxy: bool = False
    """Whether HAProxy is the proxy, which reports less often."""

    @property
    def is_graceful(self) -> bool:
        """Return whether its pods can be marked as draining, because the user asked for a graceful drain."""
        return any(drains(pod) for pod in self.pods)

    @property
    def is_drained_for_good(self) -> bool:
        """Return whether its proxies do not serve again: an HAProxy that drains never stops to."""
        is_marked = any(labels.DRAINING in pod.metadata.annotations for pod in self.pods)
        return is_marked and (self.has_ha_proxy or HA_PROXY in bytes(self.cluster.spec_json))


def drains(pod: Pod) -> bool:
    """Return whether a pod can be marked as draining."""
    return pod.metadata.annotations.get(labels.GRACEFUL_DRAIN) == "true"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What an upgrade is to follow: one that is about to begin, or one that an edit applies to at once."""

    record: str | Problem[Reason] | None
    """The record of the policy, or why there is none; None where none is asked for."""
    stored: Stored | None = None
    """The policy, where it was read just now."""


class Observed(RoutedService[ClusterView], frozen=True, kw_only=True, dict=True):
    """Everything that one reconcile of a RayService is decided from."""

    config: Config
    names: Names
    foreign_names: frozenset[str] = frozenset()
    """Names in the status that are not of clusters which the RayService may control; `names` does not hold them."""
    fresh_name: str = ""
    """A name that no cluster of this RayService has; used if a new one is needed."""
    violation: Problem[EventReason] | None = None
    clusters: tuple[RayCluster, ...] = ()
    """All clusters that carry the RayService's labels."""
    draining: tuple[DrainingCluster, ...] = ()
    """Those of them that are unneeded and drain."""
    services: tuple[Service, ...] = ()
    """All Services that carry the RayService's labels."""
    head_service: Service | None = None
    serve_service: Service | None = None
    endpoints: int = 0
    next_policy: str | Problem[Reason] | UnsetType | None = None
    """The record of the UpgradePolicy for the cluster that is to be created, or why there is none though the user asks for one.

    Unset where it was not read: then no cluster is created for an upgrade.
    """
    policy_read: Reading | None = None
    """That policy as it was read, or the policy of the upgrade in progress after an edit that applies at once; None where none was."""
    is_namespace_ending: bool = False
    """Whether the namespace is being deleted; asked only when the active cluster is gone."""
    clock_set_at: datetime | None = None
    """When the clock on the wall was set; a time that seems long ago may not be."""

    @cached_property
    def is_incremental(self) -> bool:
        """Return whether traffic-manager moves the traffic in steps, and writes to the dashboards."""
        return serve_writer.is_incremental(self.service, self.config.gates)

    @cached_property
    def upgrade(self) -> Upgrade | None:
        """Return what is recorded of the upgrade in steps that is on."""
        names = self.names
        return (
            traffic_record.upgrade_of(self.record, names.active, names.pending)
            if self.is_incremental
            else None
        )

    @cached_property
    def initializing_limit(self) -> timedelta | None:
        """Return how long the first start may take; `InvalidSpec` where a rule is violated."""
        return validation.initializing_limit(self.service.metadata.annotations)

    @cached_property
    def all_routes(self) -> tuple[Route, ...]:
        """Return all routes that may send requests to the clusters."""
        single = (self.route, self.our_route, self.grpc_route)
        return (*(each for each in single if each is not None), *self.users_routes)

    @cached_property
    def own_serve_service(self) -> Service | None:
        """Return the Serve Service, unless it is another owner's."""
        have = self.serve_service
        return (
            have
            if have is not None and owner.other(have.metadata, self.service.metadata) is None
            else None
        )

    @property
    def serving(self) -> str:
        """Return the cluster that the Serve Service selects; where traffic moves in steps no such Service decides."""
        return "" if self.is_incremental else services.selected(self.serve_service)

    @cached_property
    def undeleted(self) -> tuple[RayCluster, ...]:
        """Return the clusters that nobody has deleted."""
        return tuple(each for each in self.clusters if each.metadata.deletion_timestamp is None)

    @cached_property
    def unneeded(self) -> tuple[RayCluster, ...]:
        """Return those of them that are neither active nor pending."""
        needed = {self.names.active, self.names.pending}
        return tuple(each for each in self.undeleted if each.metadata.name not in needed)

    @cached_property
    def replaced(self) -> RayCluster | None:
        """Return the unneeded cluster that the active one was created to replace."""
        old = upgrade_policy.upgraded_from(None if self.active is None else self.active.cluster)
        return next((each for each in self.unneeded if each.metadata.name == old), None)

    @property
    def returning(self) -> tuple[ClusterView, ClusterView] | None:
        """Return the active cluster and the one that it replaced, while the status names both.

        The upgrade between them ends before traffic moves; after that there is none.
        """
        active, back = self.active, self.pending
        if active is None or back is None:
            return None
        return (active, back) if upgrade_policy.upgraded_from(active.cluster) == back.name else None

    @cached_property
    def baking(self) -> tuple[RayCluster, timedelta] | None:
        """Return the replaced cluster that stays for the `bake` of its upgrade's policy, and that time; in steps it passes before the promotion."""
        if self.active is None or self.is_incremental:
            return None
        policy, old = upgrade_policy.of_cluster(self.active.cluster), self.replaced
        if policy is None or policy.bake <= timedelta(0) or old is None:
            return None
        return None if marks_of(old) else (old, policy.bake)

    @property
    def following(self) -> RayCluster | None:
        """Return the cluster with the record of the policy that is in force: of an upgrade that goes forward, or of its bake."""
        is_over = decided.is_rolling_back(self.service) or decided.holds(
            self.service, ConditionType.UPGRADE_ABORTED
        )
        if self.pending is not None:
            return None if self.policy is None or is_over else self.pending.cluster
        return None if self.active is None or self.baking is None else self.active.cluster

    @property
    def returnable(self) -> RayCluster | None:
        """Return the replaced cluster if it is whole and is what the RayService asks for (ADR 44).

        Only the way back is free of a new cluster: the replaced cluster is the older one of both.
        A newer version that is asked for again has to pass its gates again.
        """
        old, active = self.replaced, self.active
        if old is None or active is None or not is_whole(old):
            return None
        if any(each.cluster is old and each.is_drained_for_good for each in self.draining):
            return None
        births = (each.metadata.creation_timestamp for each in (old, active.cluster))
        born, later = (each or EARLIEST for each in births)
        is_wanted = ray_cluster.match(old, self.service) is Match.FULL
        return old if is_wanted and born <= later else None

    def match(self, view: ClusterView) -> Match:
        """Return how a cluster compares with what the RayService asks for."""
        return ray_cluster.match(view.cluster, self.service)

    def requests_from(self, cluster: str) -> str | None:
        """Return what sends requests to a cluster, None when nothing does.

        That is a route with a weight for it, or the Serve Service. A route that took its weight away counts until its Gateway, if it exists,
        has accepted that: until then requests flow as before.
        """
        backend = weighted_route.serve_service(self.service.metadata.namespace, cluster)
        held = self.record.upgrade
        had_requests = (
            isinstance(held, Upgrade)
            and cluster in {held.old, held.new}
            and held.moved_at is not None
        )
        for route in self.all_routes:
            kind = GRPC_ROUTE.kind if isinstance(route, GrpcRoute) else HTTP_ROUTE.kind
            name = f"{kind} {route.metadata.namespaced_name}"
            if traffic_record.weight_of(route, backend) > 0:
                return name
            if had_requests and any(
                not each.is_gateway or self.gateways.get(each.place, True)
                for each in lagging_parents(route, is_settled=self.is_settled)
            ):
                return f"{name}, which its Gateway has not accepted yet as it is now"
        is_selected = services.selected(self.own_serve_service) == cluster
        return f"Service {services.serve_name(self.service)}" if is_selected else None


def marks_of(cluster: RayCluster) -> tuple[str, ...]:
    """Return the annotations by which a cluster is marked as unneeded: its deadline, its drain."""
    marks = (labels.DELETE_AFTER, labels.DRAINING_SINCE)
    return tuple(each for each in marks if each in cluster.metadata.annotations)


def is_whole(cluster: RayCluster) -> bool:
    """Return whether a cluster has a ready head and all workers that it is to have."""
    status, is_suspended = cluster.status, cluster.raw_spec.get("suspend") is True
    has_workers = status.ready_worker_replicas >= status.desired_worker_replicas
    return head_is_ready(cluster) and has_workers and not is_suspended


def names_of(
    service: RayService,
    clusters: tuple[RayCluster, ...],
    serving: str,
    foreign: frozenset[str] = frozenset(),
) -> Names:
    """Return the names in status; rebuild them when they were wiped under running clusters, or replaced by others' (acceptance 93).

    The Services select the cluster that serves. An unneeded cluster has a deadline, so one without it was pending.
    """
    names = Names.of(service.status)
    is_forged = not foreign.isdisjoint({names.active, names.pending})
    if not is_forged and (names != Names() or service.status.conditions):
        return names
    alive = [
        each
        for each in clusters
        if each.metadata.deletion_timestamp is None
        and owner.may_control(service.metadata, each.metadata)
    ]
    active = next((each.metadata.name for each in alive if each.metadata.name == serving), "")
    others = (each.metadata for each in alive if each.metadata.name != active)
    waiting = (each for each in others if labels.DELETE_AFTER not in each.annotations)
    newest = max(
        waiting, key=lambda each: (each.creation_timestamp or EARLIEST, each.name), default=None
    )
    return Names(active=active, pending=newest.name if newest is not None else "")
