"""Read everything for one reconcile of a RayService, once, into one frozen `Observed`.

The cache may be stale when a replica begins to reconcile a RayService. The replica therefore reads
the RayService from the API server in the first reconcile, and again before it deletes an unneeded
cluster (spec rayservice §16.4). A cluster that the status names counts as gone only if the API
server does not have it either.
"""

import asyncio
import random
from collections.abc import Mapping
from datetime import datetime
from itertools import chain

import msgspec

from common import errors, labels, names
from common.api.core import EndpointSlice, Pod, Service
from common.api.gateway import HttpRoute
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.clock import ClockWatch
from common.kube.resources import (
    CONTROLLER_REVISION,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    find_name_violation,
)
from common.ray import goal_revision, ongoing, owner, poll_interval, ports, serve_proxies, submit
from common.ray.goal_revision import Goal, HashedGoal
from common.ray.serve_api import address
from common.ray.view import head_is_ready
from common.runtime.cache import BoundedDict, Objects
from common.runtime.key import Key
from common.upgrade import gate_types, gates, gateways, traffic_record, webhook, weighted_route
from common.upgrade import policy as upgrade_policy
from common.upgrade.candidate import candidate_of
from common.upgrade.gate_types import AnyGate, Gate
from common.upgrade.gates import GateResult
from common.upgrade.policy import UpgradePolicy, WarmUpProgress
from common.upgrade.service_conditions import ConditionType
from common.upgrade.sources import Sources
from common.upgrade.webhook import Strategy
from common.upgrade.weighted_route import Place
from service_reconciler import recorded_decisions, validation
from service_reconciler.observed import (
    ClusterView,
    DrainingCluster,
    Names,
    Observed,
    PolicyReading,
    drains,
    names_of,
)
from service_reconciler.policies import Policies
from service_reconciler.promotion import cleanup_schedule, promote, rollback
from service_reconciler.resources import services
from service_reconciler.resources.ray_cluster import Match
from service_reconciler.settings import Config

FRESH = 0.2
"""Maximum age in seconds of a dashboard's answer that is used for the pending cluster."""
RECENT = 0.9
STEADY = 4.5
FOREIGN_ROUTE = 2.0
"""Maximum age in seconds of the cached copy of a user's route that is not on the bus.

The watcher publishes the route only once it has the label of its RayService.
"""
IDLE_PHASES = frozenset({"", "Pending", "Succeeded", "Failed"})
"""Phases of pods in which no container runs.

The phase is empty until the kubelet first reports the pod.
"""


class Observer:
    """Reads everything from which one reconcile of a RayService makes its plan."""

    def __init__(self, sources: Sources, config: Config) -> None:
        self._sources = sources
        self._cache, self._lookup, self._serve = sources.cache, sources.lookup, sources.serve
        self._watch = ClockWatch(sources.clock)
        self._policies = Policies(sources.kube, sources.outbound, sources.clock)
        self._config = config
        self._fetched: set[Key] = set()
        self._lacking = BoundedDict[str, datetime]()
        """When this process first saw a cluster without the Serve config of the spec.

        The keys are cluster uids.
        """

    def forget(self, objects: Objects) -> None:
        """Drop the state of objects that were deleted or that another replica now reconciles."""
        for obj in objects:
            self._lacking.pop(obj.metadata.uid, None)
            self._policies.forget(obj.metadata.uid)
            if isinstance(obj, RayService):
                self._fetched.discard(Key(obj.metadata.namespace, obj.metadata.name))

    async def observe(self, key: Key, now: datetime) -> Observed | None:
        """Observe a RayService; None if it does not exist.

        If another operator manages the RayService, the result is None, except during a deletion.
        The result then lets the plan remove raybus's finalizer.
        """
        service = await self._read_service(key)
        if service is None:
            return None
        if service.manager != labels.MANAGED_BY_US:
            return Observed(service=service, config=self._config, names=Names())
        observed = await self._start_observation(service)
        if any(
            due is not None and due <= now
            for due in map(cleanup_schedule.due_at, observed.unneeded)
        ):
            service = await self._lookup.read(RAY_SERVICE, RayService, (key.namespace, key.name))
            if service is None:
                return None
            observed = await self._start_observation(service)
        active, pending = await self._observe_clusters(observed, now=now)
        is_abandoned = active is None and bool(observed.names.active) and not observed.names.pending
        views = [view for view in (active, pending) if view is not None]
        parsed = await self._sources.serve.configs.read(
            service.serve_config, *(view.given for view in views)
        )
        active, pending = (
            None if view is None else msgspec.structs.replace(view, parsed=parsed)
            for view in (active, pending)
        )
        meta, marks, is_incremental = (
            service.metadata,
            owner.marks(key.name),
            observed.is_incremental,
        )
        route = await gateways.weighted(
            self._sources, service, is_wanted=is_incremental, max_age=FOREIGN_ROUTE
        )
        violation = validation.violation(service, self._config.gates)
        parents = weighted_route.parents_of(service, route) if is_incremental else ()
        routed = [view.cluster for view in views] if is_incremental else []
        is_free = pending is None and violation is None
        next_policy = await self._read_next_policy(observed, active) if is_free else None
        policy = (
            upgrade_policy.of_upgrade(active.name, pending.cluster) if active and pending else None
        )
        observed = msgspec.structs.replace(
            observed,
            observed_at=now,
            fresh_name=_draw_name(key.name, observed.clusters),
            violation=violation,
            draining=await self._observe_draining(observed, now=now),
            active=active,
            pending=pending,
            parsed=parsed,
            services=tuple(self._cache.list(Service, key.namespace, marks)),
            preview_service=await self._find_preview_service(meta, policy),
            gateways=await gateways.read(
                self._sources, meta, parents, is_moving=pending is not None
            ),
            route=route,
            our_route=self._cache.get(HttpRoute, key.namespace, names.http_route(key.name))
            if weighted_route.is_users(service)
            else route,
            users_routes=tuple(self._cache.list(HttpRoute, key.namespace, marks)),
            grpc_route=await gateways.grpc(self._sources, service, routed),
            endpoints=self._count_endpoints(observed),
            side_routes=await gateways.beside(
                self._sources, service, policy if is_incremental else None
            ),
            policy=policy,
            next_policy=next_policy,
            is_namespace_ending=is_abandoned and await self._is_namespace_ending(service),
            clock_set_at=self._watch.set_at(),
            rest=poll_interval.at_rest(self._cache.count(RayService), now=now),
        )
        if (followed := observed.following) is not None:
            observed = msgspec.structs.replace(
                observed, edited_policy=await self._policies.edit_of(followed)
            )
        observed = msgspec.structs.replace(observed, warm_up=await self._read_warm_up(observed))
        return msgspec.structs.replace(observed, answers=await self._read_gate_results(observed))

    async def _find_preview_service(
        self, service: ObjectMeta, policy: UpgradePolicy | None
    ) -> Service | None:
        """Return the Service with the name of the preview Service, whoever owns that Service.

        The bus delivers only raybus's Services. If the policy asks for a preview Service, its name
        is also looked up at the API server, since another owner may have a Service of that name.
        """
        place = (service.namespace, names.preview_service(service.name))
        is_wanted = policy is not None and policy.preview.service
        return await (self._find_service(place) if is_wanted else self._find_cached_service(place))

    async def _find_cached_service(self, place: Place) -> Service | None:
        """Return the Service with this name; None if the cache has no Service of this name.

        If the name was taken when raybus created its Service, the cache has another owner's
        Service. The bus delivers no changes of that Service, so it is read from the API server
        again.
        """
        is_known = self._cache.get(Service, *place) is not None
        return await self._find_service(place) if is_known else None

    async def _find_service(self, place: Place) -> Service | None:
        """Return the Service of this name, whoever owns it; None if there is none."""
        return await self._lookup.find(
            SERVICE, Service, place, max_age=gateways.MAX_FOREIGN_AGE_AT_REST
        )

    async def _read_gate_results(self, observed: Observed) -> Mapping[AnyGate, GateResult]:
        """Return the results of the gates that must pass before all traffic moves at once.

        Metrics are read as soon as the cluster can serve, and include the requests of its warm-up.
        Gates that send a request, such as webhook gates, wait until the warm-up is complete.
        """
        policy, active, pending = observed.policy, observed.active, observed.pending
        decisive = () if policy is None else upgrade_policy.decide_before(policy)
        if (
            policy is None
            or active is None
            or pending is None
            or not decisive
            or observed.is_incremental
        ):
            return {}
        if has_failed := recorded_decisions.has_failed_gate(observed.service):
            # The failure is recorded, and the record counts from now on.
            self._sources.inquiries.forget(pending.cluster.metadata.uid)
        is_over = (
            observed.serving == pending.name
            or recorded_decisions.holds(observed.service, ConditionType.UPGRADE_ABORTED)
            or has_failed
        )
        if (
            is_over
            or observed.controls.promotes
            or promote.explain_not_serving(observed, pending) is not None
            or (candidate := candidate_of(pending)) is None
        ):
            return {}
        results: dict[AnyGate, GateResult] = {}
        if measured := [gate for gate in decisive if isinstance(gate, Gate)]:
            nodes = (
                {
                    pod.metadata.uid: address(view.cluster, pod, "metrics", ports.METRICS)
                    for pod in view.proxies
                }
                for view in (active, pending)
            )
            window = await self._sources.windows.read_window(
                candidate, *nodes, is_unused=not pending.was_edited
            )
            results |= {
                gate: promote.judge_gate(gate, window or gates.NO_WINDOW, observed.warm_up)
                for gate in measured
            }
        if promote.explain_not_askable(observed, pending) is None and (
            asked := gate_types.asking(decisive)
        ):
            step = webhook.build_checkpoint(
                observed.service,
                policy,
                active.cluster,
                pending.cluster,
                candidate=candidate,
                strategy=Strategy.BLUE_GREEN,
                weight=0,
                preview=observed.preview_service,
            )
            results |= await self._sources.inquiries.ask(step, asked)
        return results

    async def _read_warm_up(self, observed: Observed) -> WarmUpProgress | None:
        """Return the progress of the pending cluster's warm-up.

        The warm-up starts once the cluster can serve. None if traffic moves in steps, if there is
        no warm-up, or if the cluster cannot serve yet.
        """
        policy, pending = observed.policy, observed.pending
        if policy is None or policy.warm_up is None or pending is None or observed.is_incremental:
            return None
        if promote.explain_not_serving(observed, pending) is not None:
            return None
        if recorded_decisions.has_failed_gate(observed.service):
            self._sources.warm_ups.forget(pending.cluster.metadata.uid)
            return None
        if (candidate := candidate_of(pending)) is None:
            return None
        at, head = serve_proxies.reported(pending.serve.details), pending.cluster.status.head.pod_ip
        proxies = [
            msgspec.structs.replace(
                address(pending.cluster, pod, "serve", ports.SERVE), port=at.port
            )
            for pod in pending.proxies
            if at.is_at(pod.status.pod_ip, head)
        ]
        return await self._sources.warm_ups.advance(candidate, proxies, policy.warm_up)

    async def _read_service(self, key: Key) -> RayService | None:
        service = self._cache.get(RayService, key.namespace, key.name)
        if service is None:
            self._fetched.discard(key)
            return None
        if key not in self._fetched:
            service = await self._lookup.read(RAY_SERVICE, RayService, (key.namespace, key.name))
            self._fetched.add(key)
        if service is None or service.manager == labels.MANAGED_BY_US:
            return service
        meta = service.metadata
        is_held = meta.deletion_timestamp is not None
        return service if is_held and labels.RAYSERVICE_FINALIZER in meta.finalizers else None

    async def _read_next_policy(
        self, observed: Observed, active: ClusterView | None
    ) -> PolicyReading | None:
        """Return the UpgradePolicy of an upgrade that is about to begin; None if no upgrade begins.

        The conditions of the RayService are ignored: in the reconcile that begins an upgrade, they
        still describe the previous spec.
        """
        if active is None:
            return PolicyReading()
        is_upgrade = (
            rollback.replaces_clusters(observed) and observed.match(active) is Match.DIFFERENT
        )
        return await self._policies.record_for(observed.service) if is_upgrade else None

    async def _is_namespace_ending(self, service: RayService) -> bool:
        """Return whether the namespace is terminating, so that no object can be created in it.

        It is asked because Kubernetes may delete the RayClusters of such a namespace before the
        RayService.
        """
        meta, nothing = service.metadata, HashedGoal(goal=Goal(), hash="")
        body = goal_revision.build(meta, nothing, 0, replaces="")
        if meta.deletion_timestamp is not None:
            return False
        try:
            await self._sources.kube.dry_create(CONTROLLER_REVISION, meta.namespace, body)
        except errors.NamespaceTerminating:
            return True
        except (errors.Terminal, errors.AlreadyExists):
            return False  # Any other refusal is reported when a cluster is created.
        return False

    async def _start_observation(self, service: RayService) -> Observed:
        """Return an `Observed` with only the RayService, its two Services and its clusters."""
        meta, foreign = service.metadata, set[str]()
        for role in (service.status.active_service_status, service.status.pending_service_status):
            if name := role.ray_cluster_name:
                cluster = await self._lookup.known(RAY_CLUSTER, RayCluster, (meta.namespace, name))
                is_others = cluster is not None and not owner.may_control(meta, cluster.metadata)
                foreign |= {name} if is_others or find_name_violation(RAY_CLUSTER, name) else set()
        head = await self._find_cached_service((meta.namespace, names.head_service(meta.name)))
        serve = await self._find_cached_service((meta.namespace, services.serve_name(service)))
        clusters = tuple(self._cache.list(RayCluster, meta.namespace, owner.marks(meta.name)))
        serving = services.selected(serve) or services.selected(head)
        return Observed(
            service=service,
            config=self._config,
            names=names_of(service, clusters, serving, frozenset(foreign)),
            foreign_names=frozenset(foreign),
            clusters=clusters,
            head_service=head,
            serve_service=serve,
        )

    async def _observe_clusters(
        self, observed: Observed, *, now: datetime
    ) -> tuple[ClusterView | None, ClusterView | None]:
        service, clusters = observed.service, observed.names
        namespace, ages = (
            service.metadata.namespace,
            (RECENT if clusters.pending else STEADY, FRESH),
        )
        views: list[ClusterView | None] = []
        for name in (clusters.active, clusters.pending):
            cluster = self._cache.get(RayCluster, namespace, name) if name else None
            pods = (
                self._cache.list(Pod, namespace, {labels.CLUSTER: name})
                if cluster is not None
                else ()
            )
            views.append(
                None if cluster is None else ClusterView(cluster=cluster, pods=tuple(pods))
            )
        checks: list[asyncio.Task[tuple[bool, ...]] | None] = []
        async with asyncio.TaskGroup() as group:
            polled = group.create_task(self._serve.poll_pair(*views, max_ages=ages, now=now))
            for view, age in zip(views, ages, strict=True):
                is_checked = (
                    view is not None
                    and head_is_ready(view.cluster)
                    and not service.excludes_head_pod
                )
                head = view.head if view is not None and is_checked else None
                check = (
                    None
                    if head is None
                    else self._serve.check_proxy(head, max_age=max(age, RECENT))
                )
                checks.append(None if check is None else group.create_task(check))
        active, pending = polled.result()
        answers = [() if check is None else check.result() for check in checks]
        goes_to = (
            None
            if recorded_decisions.holds(service, ConditionType.UPGRADE_ABORTED)
            else pending or active
        )
        return (
            self._add_checks(active, answers[0], service, is_goal=active is goes_to, now=now),
            self._add_checks(pending, answers[1], service, is_goal=pending is goes_to, now=now),
        )

    def _add_checks(
        self,
        view: ClusterView | None,
        answers: tuple[bool, ...],
        service: RayService,
        *,
        is_goal: bool,
        now: datetime,
    ) -> ClusterView | None:
        """Return a cluster with the health checks of the head's proxy; None without a cluster.

        `answers` are the results of these checks. If the cluster lacks the Serve config of the spec
        although it should have it (`is_goal`), the result also tells since when.
        """
        if view is None:
            return None
        uid, since = view.cluster.metadata.uid, None
        if not is_goal or not head_is_ready(view.cluster) or submit.has(view, service.serve_config):
            self._lacking.pop(uid, None)
        else:
            since = self._lacking[uid] = self._lacking.get(uid, now)
        return msgspec.structs.replace(view, proxy_answers=answers, lacks_goal_since=since)

    async def _observe_draining(
        self, observed: Observed, *, now: datetime
    ) -> tuple[DrainingCluster, ...]:
        """Return the unneeded clusters that drain, with their requests in flight.

        Behind a weighted route all unneeded clusters drain, otherwise those with pods that can be
        marked as draining.
        """
        namespace = observed.service.metadata.namespace
        route = self._cache.get(HttpRoute, namespace, weighted_route.name_of(observed.service))
        is_weighted = route is not None and traffic_record.ANNOTATION in route.metadata.annotations
        draining_clusters: list[DrainingCluster] = []
        for cluster in observed.unneeded:
            pods = self._cache.list(Pod, namespace, {labels.CLUSTER: cluster.metadata.name})
            if at_work := tuple(pod for pod in pods if is_weighted or drains(pod)):
                draining_clusters.append(
                    await self._add_in_flight(
                        DrainingCluster(cluster=cluster, pods=at_work), now=now
                    )
                )
        return tuple(draining_clusters)

    async def _add_in_flight(self, draining: DrainingCluster, *, now: datetime) -> DrainingCluster:
        """Add the requests in flight to a draining cluster whose deadline has passed.

        A pod whose containers have not started or have ended handles no request, so it is not
        asked. The count of any other pod is unknown until the pod answers, even if its node is lost
        (phase `Unknown`).
        """
        due = cleanup_schedule.due_at(draining.cluster)
        if due is None or due > now:
            return draining
        running = [pod for pod in draining.pods if pod.status.phase not in IDLE_PHASES]
        counts = await ongoing.ask(self._serve.ongoing_requests, running)
        answers = [count for count in counts if count is not None]
        total = ongoing.total(answers)
        return msgspec.structs.replace(
            draining,
            ongoing=total.requests if len(answers) == len(counts) else None,
            has_ha_proxy=total.has_ha_proxy,
            is_silent=bool(counts) and not answers,
        )

    def _count_endpoints(self, observed: Observed) -> int:
        """Return the number of ready pods behind the Serve Services of the RayService.

        If traffic moves in steps, the pods of the first cluster count only once that cluster is
        active. Pods behind a Service of another owner do not count.
        """
        namespace, clusters, own = (
            observed.service.metadata.namespace,
            observed.names,
            observed.own_serve_service,
        )
        backends = [own.metadata.name] if own is not None else []
        if observed.is_incremental:
            cluster_names = (clusters.active, clusters.pending) if clusters.active else ()
            backends = [
                names.serve_service(cluster_name) for cluster_name in cluster_names if cluster_name
            ]
        slices = (
            self._cache.list(EndpointSlice, namespace, {labels.SERVICE_NAME: backend})
            for backend in backends
        )
        return ports.pod_count(chain.from_iterable(slices))


def _draw_name(service: str, clusters: tuple[RayCluster, ...]) -> str:
    taken = {cluster.metadata.name for cluster in clusters}
    while True:
        number = random.SystemRandom().randrange(len(names.SAFE_ALPHABET) ** 5)
        name = f"{service}-{names.suffix(number)}"
        if name not in taken:
            return name
