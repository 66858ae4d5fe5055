"""Send requests to the dashboards of RayClusters, with a limit on concurrent calls.

A request goes to the address of the head pod, with the cluster's token. Slow hosts share a few of
the concurrent calls, so that they never delay other hosts (spec rayservice W20; acceptance 89).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final, TypeAlias

import msgspec

from common import errors, labels
from common.api.core import EndpointSlice, Service, ServicePort
from common.api.meta import Items
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import ENDPOINT_SLICE, SERVICE
from common.ray import dashboard, dashboard_token
from common.ray.dashboard import Dashboard, Target
from common.ray.dashboard_token import Tokens
from common.ray.view import dashboard_service, foreign_service, head_addresses
from common.runtime.cache import BoundedDict, Cache
from common.runtime.lookup import Lookup

MAX_CONCURRENT_CALLS: Final = 128
"""Maximum concurrent calls, over all clusters."""
MIN_WORKERS: Final = 32
"""Minimum workers of a service whose reconciles may wait seconds for a dashboard's answer."""
MAX_CONCURRENT_SLOW_CALLS: Final = MIN_WORKERS // 2
"""Maximum concurrent calls to hosts whose last call was slow: half of the minimum workers."""
SLOW: Final = 1.0
"""Seconds after which a call counts as slow, whatever its outcome."""
READ_INTERVAL: Final = 5.0
"""Seconds until an object that NATS has not delivered is read from the API server again."""
MAX_SLICES: Final = 100
"""Maximum EndpointSlices of a head Service that are read. A head has one pod, so there are few."""

Slices: TypeAlias = Iterable[EndpointSlice]


class CallSlots:
    """Limits the number of calls in progress, and how many of them go to slow hosts."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._slow = 0

    def is_full(self, *, slow: bool) -> bool:
        """Return whether a call to a `slow` host must wait; always False if it is not slow."""
        return slow and self._slow >= MAX_CONCURRENT_SLOW_CALLS

    @asynccontextmanager
    async def hold(self, *, slow: bool) -> AsyncGenerator[None]:
        """Wait until another call may begin, and count it as in progress until the block ends.

        `slow` says whether the last call to the host was slow.
        """
        self._slow += slow
        try:
            async with self._all:
                yield
        finally:
            self._slow -= slow


class ClusterDashboards:
    """Sends requests to the dashboards of the clusters that this replica reconciles.

    With `reads_missing`, a head Service that NATS has not delivered is read from the API server,
    together with its EndpointSlices.
    """

    def __init__(
        self,
        dashboards: Dashboard,
        kube: Kube,
        cache: Cache,
        clock: Clock,
        *,
        reads_missing: bool = False,
    ) -> None:
        self._dashboard = dashboards
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._tokens = Tokens(kube, clock)
        self._lookup = Lookup(kube, cache, clock) if reads_missing else None
        self._slices = BoundedDict[tuple[str, str], tuple[float, list[EndpointSlice]]]()
        """Time and result of the last read of a Service's EndpointSlices, by namespace and name."""
        self.slots = CallSlots()

    def forget(self, cluster_uid: str) -> None:
        """Drop the token of a cluster that is deleted or now polled by a different replica."""
        self._tokens.forget(cluster_uid)

    async def request(
        self,
        cluster: RayCluster,
        path: str,
        *,
        slow: bool,
        config: Json | None = None,
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        """Send a request to the dashboard of a cluster, as `Dashboard.request` does.

        If the dashboard rejects the token, the request is sent once more with a newer token. A
        `slow` host is one that was slow the last time.
        """
        head = await self._find_head(cluster)
        async with self.slots.hold(slow=slow):
            try:
                return await self._send(head, path, config=config, post=post, seconds=seconds)
            except errors.Unauthenticated as problem:
                refusal = problem
            if (other := await self._tokens.another(cluster, head.token)) is not None:
                try:
                    head = msgspec.structs.replace(head, token=other)
                    return await self._send(head, path, config=config, post=post, seconds=seconds)
                except errors.Unauthenticated as problem:
                    refusal = problem
        text = (
            f"the dashboard at {head.name}:{head.port} refuses raybus: "
            f"{dashboard_token.remedy(cluster)} ({refusal})"
        )
        raise errors.Unauthenticated(text) from refusal

    async def _send(
        self,
        head: Target,
        path: str,
        *,
        config: Json | None,
        post: Json | None,
        seconds: float | None,
    ) -> bytes:
        return await self._dashboard.request(
            head,
            path,
            most=dashboard.MAX_STATUS_SIZE,
            config=config,
            post=post,
            seconds=seconds,
        )

    async def _find_head(self, cluster: RayCluster) -> Target:
        meta, name = cluster.metadata, dashboard_service(cluster)
        service = await self._find_service(meta.namespace, name)
        if service is None:
            raise errors.NotFound(
                f"the head Service {name} of RayCluster {meta.name} does not exist yet"
            )
        if (problem := foreign_service(service, cluster)) is not None:
            raise errors.InvalidSpec(problem)
        port = next(
            (named_port for named_port in service.spec.ports if named_port.name == "dashboard"),
            None,
        )
        if port is None:
            raise errors.InvalidSpec(
                f"dashboard port is not found in Service {service.metadata.name}"
            )
        token = await self._tokens.read_token(cluster)
        return Target(
            namespace=meta.namespace,
            name=service.metadata.name,
            port=_pod_port(service, port),
            head_ip=_head_ip(cluster, service, await self._list_slices(service)),
            token=token,
        )

    async def _find_service(self, namespace: str, name: str) -> Service | None:
        if self._lookup is None:
            return self._cache.get(Service, namespace, name)
        return await self._lookup.find(SERVICE, Service, (namespace, name), max_age=READ_INTERVAL)

    async def _list_slices(self, service: Service) -> Slices:
        place = service.metadata.namespace, service.metadata.name
        if self._lookup is None or self._cache.partition_of(Service, *place) is not None:
            return self._cache.list(EndpointSlice, place[0], {labels.SERVICE_NAME: place[1]})
        now, known = self._clock.monotonic(), self._slices.get(place)
        if known is None or now - known[0] >= READ_INTERVAL:
            body = await self._kube.list(
                ENDPOINT_SLICE,
                place[0],
                label_selector=f"{labels.SERVICE_NAME}={place[1]}",
                limit=MAX_SLICES,
            )
            known = now, msgspec.json.decode(body, type=Items[EndpointSlice]).items
            self._slices[place] = known
        return known[1]


def _head_ip(cluster: RayCluster, service: Service, slices: Slices) -> str:
    """Return the address of the head pod; empty if unknown.

    Only addresses in EndpointSlices that the head Service owns are trusted, because whoever can
    write the cluster's status could put any address there.
    """
    addresses = head_addresses(service, slices)
    reported = cluster.status.head.pod_ip
    if reported in addresses:
        return reported
    return min(addresses) if len(addresses) == 1 else ""


def _pod_port(service: Service, port: ServicePort) -> int:
    """Return the pod's port for a Service's port; a headless Service does not translate ports."""
    if service.spec.cluster_ip != "None" and isinstance(port.target_port, int):
        return port.target_port or port.port
    return port.port
