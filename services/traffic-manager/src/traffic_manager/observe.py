"""Observation of a RayService: all reads of one reconcile, combined into one frozen value.

The cache may lag right after a start, so the first reconcile of a RayService in this replica reads
the RayService and its route from the API server. Stale capacities would do more harm than stale
weights, because no resourceVersion protects the write of a capacity. The RayService is also read
again after objects were created for it: it may have been deleted without the deletion being on the
bus yet, and the garbage collector then removes every new object.
"""

from contextlib import suppress
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET

from common import errors, labels, names
from common.api.core import EndpointSlice, Service
from common.api.gateway import GrpcRoute, HttpRoute
from common.api.meta import Items, ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus, RayService
from common.kube import answers
from common.kube.resources import (
    ENDPOINT_SLICE,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.names import SideRole
from common.ray import owner, poll_interval, ports, serve_proxies, serve_writer
from common.ray.dashboard import Target
from common.runtime.cache import BoundedDict, Object, Objects
from common.runtime.key import Key
from common.upgrade import gate_types, gateways, side_routes, webhook, weighted_route
from common.upgrade import policy as upgrade_policy
from common.upgrade.candidate import candidate_of
from common.upgrade.gate_types import Gate
from common.upgrade.policy import OnFailure, UpgradePolicy
from common.upgrade.service_conditions import ConditionType
from common.upgrade.sources import Sources
from common.upgrade.traffic_record import WHOLE, ClusterTraffic, Record
from common.upgrade.webhook import Strategy
from traffic_manager.observed import HealthMemory, Observed, ServedCluster
from traffic_manager.status import health, traffic_record

OPTIONAL_KINDS: Final = (GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind)
"""Kinds that the API server may not know, because the Gateway API is installed separately."""
UPGRADE_MAX_AGE: Final = 0.2
"""Maximum age in seconds of a dashboard answer that is used during an upgrade."""
STEADY_MAX_AGE: Final = 4.5
"""Maximum age in seconds of a dashboard answer that is used while no upgrade is in progress."""
UNLABELLED_ROUTE_MAX_AGE: Final = 0.5
"""Maximum age in seconds of the cached copy of a user's route without the RayService's labels.

The watcher publishes the route only once it has these labels.
"""
MISSING_KIND_RETRY_INTERVAL: Final = 30.0
"""Seconds until the next attempt to create an object whose kind the API server did not know."""


class Observer:
    """Reads everything from which one reconcile of a RayService makes its plan."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._kube, self._clock = sources.kube, sources.clock
        self._cache, self._lookup = sources.cache, sources.lookup
        self._fetched: set[Key] = set()
        self._absent_since = BoundedDict[tuple[str, str], float]()
        """Monotonic time of the last attempt to create an object of an unknown kind.

        The keys are the RayService's uid and the kind that the API server did not know.
        """
        self._memories = BoundedDict[str, HealthMemory]()
        """Health history of each cluster, by RayCluster uid."""

    def forget(self, objects: Objects) -> None:
        """Drop the state of objects that were deleted or that another replica now reconciles."""
        for obj in objects:
            self._memories.pop(obj.metadata.uid, None)
            if isinstance(obj, RayService):
                self._fetched.discard(Key(obj.metadata.namespace, obj.metadata.name))
                for kind in OPTIONAL_KINDS:
                    self._absent_since.pop((obj.metadata.uid, kind), None)

    def record_missing_kind(self, service: ObjectMeta, kind: str) -> bool:
        """Record that the API server does not know a kind; return True if that is new."""
        key = (service.uid, kind)
        is_new = key not in self._absent_since
        self._absent_since[key] = self._clock.monotonic()
        return is_new

    def record_known_kind(self, service: ObjectMeta, kind: str) -> None:
        """Record that the API server knows a kind, because an object of this kind was created.

        The next reconcile reads the RayService from the API server again.
        """
        self._absent_since.pop((service.uid, kind), None)
        self._fetched.discard(Key(service.namespace, service.name))

    async def observe_directly(self, key: Key, now: datetime) -> Observed | None:
        """Observe an upgrade with reads from the API server; None if no upgrade is in progress.

        This is used while the bus is silent, when nothing else updates the cache.
        """
        known = self._cache.get(RayService, key.namespace, key.name)
        if known is None or not known.status.pending_service_status.ray_cluster_name:
            return None
        self._fetched.discard(key)
        service = await self._read_service(key)
        if service is None:
            return None
        for role in (service.status.active_service_status, service.status.pending_service_status):
            if role.ray_cluster_name:
                await self._refresh(RAY_CLUSTER, RayCluster, (key.namespace, role.ray_cluster_name))
                backend = names.serve_service(role.ray_cluster_name)
                selector = f"{labels.SERVICE_NAME}={backend}"
                body = await self._kube.list(ENDPOINT_SLICE, key.namespace, label_selector=selector)
                items = msgspec.json.decode(body, type=Items[EndpointSlice]).items
                slices = {item.metadata.name: item for item in items}
                known = self._cache.list(
                    EndpointSlice, key.namespace, {labels.SERVICE_NAME: backend}
                )
                self._cache.forget(old for old in known if old.metadata.name not in slices)
                for endpoint_slice in slices.values():
                    self._cache.put(endpoint_slice)
        await self._refresh(GRPC_ROUTE, GrpcRoute, (key.namespace, names.grpc_route(key.name)))
        for role in SideRole:
            for name in (names.side_route, names.former_side_route):
                await self._refresh(HTTP_ROUTE, HttpRoute, (key.namespace, name(key.name, role)))
        return await self.observe(key, now=now)

    async def _refresh(
        self, resource: Resource, view: type[Object], place: tuple[str, str]
    ) -> None:
        """Read a cached object again from the API server; drop it from the cache if it is gone.

        `place` is its namespace and name. An object that is not cached is left to `observe`.
        """
        known = self._cache.get(view, *place)
        if known is not None and await self._lookup.read(resource, view, place) is None:
            self._cache.forget([known])

    async def observe(self, key: Key, now: datetime) -> Observed | None:
        """Observe a RayService; None if it does not exist or another operator manages it."""
        service = await self._read_service(key)
        if service is None or service.manager != labels.MANAGED_BY_US:
            return None
        service, active, pending = await self._observe_clusters(service, now=now)
        meta = service.metadata
        views = [view for view in (active, pending) if view is not None]
        parsed = await self._sources.serve.configs.read(
            service.serve_config, *(view.given for view in views)
        )
        active, pending = (
            None if view is None else msgspec.structs.replace(view, parsed=parsed)
            for view in (active, pending)
        )
        is_users, is_incremental = (
            weighted_route.is_users(service),
            serve_writer.is_recorded(service),
        )
        route = await gateways.weighted(
            self._sources, service, is_wanted=is_incremental, max_age=UNLABELLED_ROUTE_MAX_AGE
        )
        routed = [view.cluster for view in views] if is_incremental else []
        ours, marks = names.http_route(key.name), owner.marks(key.name)
        marked = self._cache.list(HttpRoute, key.namespace, marks)
        metas = (cluster.metadata for cluster in self._cache.list(RayCluster, key.namespace, marks))
        clusters = frozenset(
            metadata.name for metadata in metas if owner.other(metadata, meta) is None
        )
        places = weighted_route.parents_of(service, route) if is_incremental or is_users else ()
        asked_at = {
            kind: self._absent_since.get((meta.uid, kind), float("-inf")) for kind in OPTIONAL_KINDS
        }
        observed = Observed(
            service=service,
            observed_at=now,
            active=active,
            pending=pending,
            gateways=await gateways.read(
                self._sources, meta, places, is_moving=pending is not None
            ),
            route=route,
            our_route=self._cache.get(HttpRoute, key.namespace, ours) if is_users else route,
            users_routes=tuple(route for route in marked if route.metadata.name != ours),
            clusters=clusters,
            overwriter=await self._find_overwriter(service, route, clusters),
            grpc_route=await gateways.grpc(self._sources, service, routed),
            unknown_kinds=frozenset(
                kind
                for kind, at in asked_at.items()
                if self._clock.monotonic() - at < MISSING_KIND_RETRY_INTERVAL
            ),
            rest=poll_interval.at_rest(self._cache.count(RayService), now=now),
        )
        named = [
            name for name in observed.record.clusters if name not in {view.name for view in views}
        ]
        others = {name: self._cache.get(RayCluster, key.namespace, name) for name in named}
        own = [
            cluster
            for cluster in others.values()
            if cluster is not None and owner.may_control(meta, cluster.metadata)
        ]
        return msgspec.structs.replace(
            await self._add_policy(observed, now=now),
            active=self._update_memory(active, observed.record, now=now),
            pending=self._update_memory(pending, observed.record, now=now),
            others=tuple(ServedCluster(cluster=cluster) for cluster in own),
            gone=frozenset(others).difference(cluster.metadata.name for cluster in own),
        )

    async def _read_service(self, key: Key) -> RayService | None:
        """Return a RayService; None if it does not exist.

        The first call for a RayService reads it and its route from the API server; later calls use
        the cache.
        """
        service = self._cache.get(RayService, key.namespace, key.name)
        if service is None:
            self._fetched.discard(key)
            return None
        if key in self._fetched:
            return service
        service = await self._lookup.read(RAY_SERVICE, RayService, (key.namespace, key.name))
        if service is None:
            return None
        name = weighted_route.name_of(service)
        with suppress(errors.NotFound):
            route = msgspec.json.decode(
                await self._kube.get(HTTP_ROUTE, key.namespace, name), type=HttpRoute
            )
            # the bus brings no updates of a route without labels, so such a route is not cached
            if (
                name == names.http_route(key.name)
                or route.metadata.labels.get(labels.ORIGIN_NAME) == key.name
            ):
                self._cache.put(route)
        self._fetched.add(key)
        return service

    async def _observe_clusters(
        self, service: RayService, *, now: datetime
    ) -> tuple[RayService, ServedCluster | None, ServedCluster | None]:
        """Return the RayService, its active and its pending cluster; None for a missing cluster.

        A dashboard answer that came from the wrong one of the two clusters is dropped. If the
        status names a cluster that the RayService may not control, the returned status lacks that
        name; service-reconciler corrects the stored status.
        """
        meta, status, views = service.metadata, service.status, list[ServedCluster | None]()
        for role in ("active_service_status", "pending_service_status"):
            name, view = getattr(status, role).ray_cluster_name, None
            cluster = (
                await self._lookup.known(RAY_CLUSTER, RayCluster, (meta.namespace, name))
                if name
                else None
            )
            if cluster is not None and owner.may_control(meta, cluster.metadata):
                backend = names.serve_service(name)
                serve = await self._find_serve_service(meta, cluster.metadata)
                is_foreign = serve is not None and not _is_own(serve, meta, cluster.metadata)
                slices = (
                    []
                    if is_foreign
                    else self._cache.list(
                        EndpointSlice, meta.namespace, {labels.SERVICE_NAME: backend}
                    )
                )
                view = ServedCluster(
                    cluster=cluster,
                    serve_service=serve,
                    has_foreign_service=is_foreign,
                    endpoints=ports.pods(slices),
                    unready=ports.unready_addresses(slices),
                    has_slices=bool(slices),
                )
            elif cluster is not None:
                status = msgspec.structs.replace(status, **{role: ClusterServiceStatus()})
            views.append(view)
        if status is not service.status:
            service = msgspec.structs.replace(service, status=status)
        max_age = (
            UPGRADE_MAX_AGE if status.pending_service_status.ray_cluster_name else STEADY_MAX_AGE
        )
        return service, *await self._sources.serve.poll_pair(
            *views, max_ages=(max_age, max_age), now=now
        )

    async def _find_serve_service(self, service: ObjectMeta, cluster: ObjectMeta) -> Service | None:
        """Return the Service with the name of a cluster's Serve Service, whoever owns that Service.

        If the name was taken when the Service was created, the cache has another owner's Service.
        The bus delivers no changes of that Service, so it is read from the API server again.
        """
        place = (service.namespace, names.serve_service(cluster.name))
        known = self._cache.get(Service, *place)
        if known is None or _is_own(known, service, cluster):
            return known
        return await self._lookup.find(
            SERVICE, Service, place, max_age=gateways.MAX_FOREIGN_AGE_AT_REST
        )

    async def _add_policy(self, observed: Observed, *, now: datetime) -> Observed:
        """Add to `observed` the UpgradePolicy of the upgrade and the inputs of its gates."""
        pair, policy = observed.pair, None
        if pair is not None:
            policy = upgrade_policy.of_upgrade(pair[0].name, pair[1].cluster)
        beside = await gateways.beside(self._sources, observed.service, policy)
        observed = msgspec.structs.replace(observed, policy=policy, side_routes=beside)
        if SideRole.MIRROR in side_routes.wanted(observed.service, policy):
            gateway_class = await gateways.read_class(self._sources, observed.gateway)
            observed = msgspec.structs.replace(observed, gateway_class=gateway_class)
        if pair is None or policy is None:
            return observed
        active, pending = pair
        meta, share = pending.cluster.metadata, observed.record.clusters.get(pending.name)
        if share is None:
            return observed
        known = share.config if share.config is not UNSET and share.uid == meta.uid else None
        if (candidate := candidate_of(pending, known)) is None:
            return observed
        renewed = traffic_record.adopt_config(
            observed.record,
            meta,
            candidate,
            keeps_failure=policy.on_failure is OnFailure.ROLLBACK,
            now=now,
        )
        observed = msgspec.structs.replace(observed, candidate=candidate, renewed_record=renewed)
        share = observed.record.clusters[pending.name]
        warm_up = window = None
        if (
            share.weight == 0
            and policy.warm_up is not None
            and health.can_serve(pending, share.capacity)
        ):
            at, head = serve_proxies.reported(pending.serve.details), pending.cluster.status.head
            nodes = _list_targets(pending, at.port).values()
            proxies = [node for node in nodes if at.is_at(node.ip, head.pod_ip)]
            warm_up = await self._sources.warm_ups.advance(candidate, proxies, policy.warm_up)
        measures = any(isinstance(gate, Gate) for gate in policy.gates)
        if measures and (share.weight > 0 or beside.mirror is not None):
            exporters = (
                _list_targets(
                    view, ports.of_head(view.cluster.raw_spec).get("metrics", ports.METRICS)
                )
                for view in (active, pending)
            )
            is_whole = share.weight == WHOLE
            window = await self._sources.windows.read_window(
                candidate, *exporters, moved_at=share.same_since, is_whole=is_whole
            )
        observed = msgspec.structs.replace(observed, warm_up=warm_up, window=window)
        asked = gate_types.asking(policy.gates, is_before=share.weight == 0)
        if not asked or not _may_ask(observed, pending, policy, share):
            return observed
        at = webhook.build_checkpoint(
            observed.service,
            policy,
            active.cluster,
            pending.cluster,
            candidate=candidate,
            strategy=Strategy.STEPS,
            weight=share.weight,
            since=share.same_since,
            preview=self._cache.get(
                Service, meta.namespace, names.preview_service(observed.service.metadata.name)
            ),
        )
        return msgspec.structs.replace(
            observed, answers=await self._sources.inquiries.ask(at, asked)
        )

    async def _find_overwriter(
        self, service: RayService, route: HttpRoute | None, clusters: frozenset[str]
    ) -> str | None:
        """Return the field manager that removed raybus's backends from the route; None if none did.

        The route is read from the API server, because messages on the bus carry no managed fields.
        """
        if route is None or weighted_route.refusal(service, route) is not None:
            return None
        if not weighted_route.is_overwritten(
            route, weighted_route.own_backends(service, clusters, (route,))
        ):
            return None
        try:
            return answers.find_rules_writer(
                await self._kube.get(HTTP_ROUTE, route.metadata.namespace, route.metadata.name)
            )
        except errors.NotFound:
            return None

    def _update_memory(
        self, view: ServedCluster | None, record: Record, *, now: datetime
    ) -> ServedCluster | None:
        """Return a cluster with its health history, to which this observation has been added."""
        if view is None:
            return None
        uid, share = view.cluster.metadata.uid, record.clusters.get(view.name)
        memory = self._memories.get(uid, HealthMemory())
        baseline = health.build_baseline(
            msgspec.structs.replace(view, memory=memory), 0 if share is None else share.weight
        )
        if baseline is not None:
            whole = baseline.replicas if baseline.weight == WHOLE else memory.whole
            memory = HealthMemory(
                healthy_since=_limit_to_now(memory.healthy_since, now=now),
                baseline=baseline,
                whole=whole,
            )
        elif health.is_unknown(view):
            memory = msgspec.structs.replace(memory, healthy_since=None)
        else:
            unhealthy_since = _limit_to_now(memory.unhealthy_since, now=now)
            memory = msgspec.structs.replace(
                memory, unhealthy_since=unhealthy_since, healthy_since=None
            )
        self._memories[uid] = memory
        return msgspec.structs.replace(view, memory=memory)


def _may_ask(
    observed: Observed, pending: ServedCluster, policy: UpgradePolicy, share: ClusterTraffic
) -> bool:
    """Return whether gates and webhooks may send their requests now.

    Requests are allowed at each step of an upgrade that goes forward. Before the first traffic,
    they are allowed once the pending cluster can serve.
    """
    upgrade = observed.upgrade
    is_over = (
        observed.is_aborted
        or observed.is_true(ConditionType.ROLLBACK_IN_PROGRESS)
        or (upgrade is not None and bool(upgrade.failed))
    )
    aim = None if upgrade is None else upgrade.aim or None
    if (
        is_over
        or observed.controls.promotes
        or not upgrade_policy.is_stop(policy, share.weight, aim)
    ):
        return False
    is_warm = policy.warm_up is None or (observed.warm_up is not None and observed.warm_up.is_over)
    return share.weight > 0 or (is_warm and health.can_serve(pending, share.capacity))


def _is_own(have: Service, service: ObjectMeta, cluster: ObjectMeta) -> bool:
    """Return whether a Service belongs to a cluster or to its RayService."""
    return owner.owns(cluster, have.metadata) or owner.owns(service, have.metadata)


def _list_targets(view: ServedCluster, port: int) -> dict[str, Target]:
    """Return the ready pods behind a cluster's Serve Service as targets at `port`, by pod uid."""
    namespace, pods = view.cluster.metadata.namespace, view.endpoints.items()
    return {
        pod.uid: Target(namespace=namespace, name=pod.name, ip=address, port=port)
        for address, pod in pods
    }


def _limit_to_now(moment: datetime | None, *, now: datetime) -> datetime:
    """Return the start time `moment`; `now` if it is None or in the future.

    A start time in the future stems from a clock that was set back.
    """
    return now if moment is None or moment > now else moment
