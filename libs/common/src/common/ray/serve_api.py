"""Poll Ray dashboards and Serve proxies at a limited rate, and send Serve configs.

Remembered answers only limit the rate; after a restart everything is polled again. A host that does
not answer is polled less and less often. A slow host is not polled while too many calls to slow
hosts are in progress (`cluster_dashboards`); its previous answer is returned instead.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import msgspec

from common import errors, labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.kube.client import Kube
from common.ray import cluster_traits as traits
from common.ray import (
    dashboard,
    deployed_config,
    ongoing,
    ports,
    revision,
    serve_status,
)
from common.ray.cluster_dashboards import MAX_CONCURRENT_SLOW_CALLS, SLOW, ClusterDashboards
from common.ray.dashboard import Dashboard, Target
from common.ray.ongoing import Ongoing
from common.ray.revision import SendOutcome
from common.ray.revisions import Revisions
from common.ray.serve_config_cache import ServeConfigCache
from common.ray.serve_status import ServeDetails
from common.ray.view import (
    CHECKS_KEPT,
    MAX_RETRY_DELAY,
    Put,
    Reading,
    Refusal,
    V,
    foreign_answer,
    head_is_ready,
    verify_identity,
)
from common.runtime.cache import BoundedDict, Cache, Objects

MAX_PAGES: Final = MAX_CONCURRENT_SLOW_CALLS + 8
"""Maximum metrics pages in memory at the same time, of at most 8 MiB each, over all clusters."""
NAMESPACE_PAGES: Final = MAX_PAGES // 3
"""Maximum metrics pages in memory from hosts of one namespace.

It is well below `MAX_PAGES`, so that hanging hosts of one namespace do not block all others."""
SHORT_PAGE: Final = 64 * 1024
"""Maximum bytes of a page that is parsed in the event loop, which takes a few milliseconds."""
MAX_CONCURRENT_USER_CALLS: Final = 64
"""Maximum concurrent requests to users' applications, over all clusters."""
NAMESPACE_CALLS: Final = MAX_CONCURRENT_USER_CALLS // 4
"""Maximum concurrent requests to users' applications of one namespace."""
MAX_PAUSE: Final = 5.0
"""Maximum seconds between polls of a silent host, so that a recovery is noticed within 10 s."""
RETRY_UNANSWERED: Final = timedelta(seconds=2)
REPEATS_FORGOTTEN: Final = 1200.0
"""Seconds after which another PUT of the same config does not count as a repetition."""
T = TypeVar("T")


class DashboardMemory(msgspec.Struct):
    """What this process remembers of a cluster's dashboard; times are in monotonic seconds."""

    reading: Reading = Reading()
    read_at: float | None = None
    answered_at: float | None = None
    """When Serve last answered; before the first answer, the time of the first poll."""
    given: str | None = None
    """The Serve config that the cluster had at the last poll, as in `ServeView.given`."""
    refusal: Refusal | None = None
    put_at: float | None = None
    put: Put | None = None
    nodes: frozenset[str] = frozenset()
    """Known addresses of the cluster's pods at the last poll."""
    is_slow: bool = False
    """Whether the last poll was slow."""
    takes_slowly: bool = False
    """Whether the last PUT of a config was slow."""


class Checks(msgspec.Struct):
    """The last health checks of one pod's Serve proxy; `answers` has the newest at the end."""

    answers: tuple[bool, ...] = ()
    checked_at: float | None = None
    is_slow: bool = False
    """Whether the last check was slow."""


def address(cluster: RayCluster | None, pod: Pod, port: str, default: int) -> Target:
    """Return an endpoint of a pod of a cluster.

    The port is the one with the name `port` that the pod's Ray container declares, or `default`.
    """
    container = traits.ray_container(cluster, pod)
    declared = container.ports if container is not None else []
    number = next(
        (declared_port.container_port for declared_port in declared if declared_port.name == port),
        default,
    )
    return Target(
        namespace=pod.metadata.namespace, name=pod.metadata.name, ip=pod.status.pod_ip, port=number
    )


class NamespaceSemaphore:
    """A semaphore that also limits how many of its permits one namespace may hold."""

    def __init__(self, total: int, *, of_namespace: int) -> None:
        self._all = asyncio.Semaphore(total)
        self._limit = of_namespace
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """The semaphore of each namespace that holds or awaits a permit."""

    @asynccontextmanager
    async def hold(self, namespace: str) -> AsyncGenerator[None]:
        """Hold a permit during a block.

        A caller waits for a permit of its namespace first and for a common one afterwards, so that
        callers of a busy namespace hold no common permits while they wait.
        """
        part = self._of.get(namespace) or asyncio.Semaphore(self._limit)
        self._of[namespace] = part
        async with part, self._all:
            yield


class ServeApi:
    """Polls the dashboards and proxies of this replica's clusters, and sends Serve configs."""

    def __init__(self, dashboards: Dashboard, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._dashboard = dashboards
        self._cache = cache
        self._clock = clock
        self._heads = ClusterDashboards(dashboards, kube, cache, clock)
        self._slots = self._heads.slots
        self.revisions = Revisions(kube, cache)
        self.configs = ServeConfigCache()
        self._clusters = BoundedDict[str, DashboardMemory]()
        self._pods = BoundedDict[str, Checks]()
        self._slow_metrics = BoundedDict[str, bool]()
        self._pages = NamespaceSemaphore(MAX_PAGES, of_namespace=NAMESPACE_PAGES)
        self._calls = NamespaceSemaphore(MAX_CONCURRENT_USER_CALLS, of_namespace=NAMESPACE_CALLS)
        # One thread: more would not be faster, because all threads share the interpreter lock.
        self._page_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metrics-page")

    async def poll_pair(
        self, active: V | None, pending: V | None, *, max_ages: tuple[float, float], now: datetime
    ) -> tuple[V | None, V | None]:
        """Poll the dashboards of both clusters of a RayService and return the new views.

        `max_ages` are the maximum ages of remembered answers in seconds, for the active and the
        pending cluster. An answer that came from the wrong one of the two clusters is removed. If
        neither dashboard answers, the failed reads do not count against the clusters: the cause may
        lie outside of both, such as a process without CPU time (ADR 41).
        """
        async with asyncio.TaskGroup() as group:
            polls = [
                None
                if view is None
                else group.create_task(self.poll(view, max_age=max_age, now=now))
                for view, max_age in zip((active, pending), max_ages, strict=True)
            ]
        active, pending = (None if poll is None else poll.result() for poll in polls)
        if active and pending and active.serve.is_silent and pending.serve.is_silent:
            active, pending = self._excused(active), self._excused(pending)
        return verify_identity(active, pending), verify_identity(pending, active)

    def _excused(self, view: V) -> V:
        memory = self._memory(view.cluster)
        memory.reading = msgspec.structs.replace(view.serve, excused=view.serve.failures)
        return msgspec.structs.replace(view, serve=memory.reading)

    async def poll(self, view: V, *, max_age: float, now: datetime) -> V:
        """Return the view with the dashboard's latest answer and the config that the cluster has.

        The dashboard is polled if its answer is older than `max_age` seconds, or if it is unknown
        whether Ray accepted the newest recorded config. It is not polled while the head is not
        ready, nor during the pause after a failed poll.
        """
        if not head_is_ready(view.cluster):
            return view
        records = await self.revisions.list_records(view.cluster)
        memory, began = self._memory(view.cluster), self._clock.monotonic()
        memory.nodes = view.nodes
        failing = (
            min(MAX_PAUSE, 0.25 * 2.0**memory.reading.failures) if memory.reading.problem else 0.0
        )
        is_open = bool(records) and records[0].outcome is SendOutcome.SENT
        pause = max(0.0 if is_open else max_age, failing)
        is_due = memory.read_at is None or began - memory.read_at >= pause
        if is_due and not self._slots.is_full(slow=memory.is_slow):
            memory.answered_at = began if memory.answered_at is None else memory.answered_at
            try:
                details = serve_status.decode(
                    await self._heads.request(view.cluster, dashboard.STATUS, slow=memory.is_slow)
                )
                memory.reading = Reading(details=details)
                if memory.put is not None and memory.put.reported is None:
                    memory.put = msgspec.structs.replace(
                        memory.put, reported=deployed_config.fingerprint(details)
                    )
                memory.answered_at = self._clock.monotonic()
            except errors.RaybusError as problem:
                failures, is_refused = (
                    min(memory.reading.failures + 1, 30),
                    isinstance(problem, errors.Unauthenticated),
                )
                memory.reading = Reading(
                    problem=str(problem),
                    failures=failures,
                    excused=memory.reading.excused,
                    is_unauthenticated=is_refused,
                )
            memory.read_at = self._clock.monotonic()
            memory.is_slow = memory.read_at - began > SLOW
        given = revision.current(records, memory.reading.details, parse=self.configs.parse)
        memory.given = None if given is None else given.serve_config
        put_ago = (
            None
            if memory.put_at is None
            else timedelta(seconds=self._clock.monotonic() - memory.put_at)
        )
        return msgspec.structs.replace(
            view,
            serve=memory.reading,
            given=memory.given,
            record=records[0].revision if records else 0,
            strategy={} if given is None else given.upgrade_strategy,
            refused=memory.refusal,
            put_at=None if put_ago is None else now - put_ago,
            put=memory.put,
        )

    def last_reading(self, cluster: RayCluster) -> tuple[ServeDetails | None, float] | None:
        """Return the result of the last poll of Serve, and the seconds since Serve last answered.

        The result is None if the last poll failed. If this process has parsed the cluster's config,
        the result has only the applications in it. Before the first answer, the seconds count from
        the first poll. Return None if the cluster was never polled.
        """
        memory = self._clusters.get(cluster.metadata.uid)
        if memory is None or memory.answered_at is None:
            return None
        details, given = memory.reading.details, memory.given
        config = None if given is None else self.configs.get(given)
        if details is not None and config is not None:
            details = serve_status.of_applications(details, config.applications)
        return details, self._clock.monotonic() - memory.answered_at

    async def check_proxy(self, pod: Pod, *, max_age: float) -> tuple[bool, ...]:
        """Return the results of the last health checks of a pod's proxy, newest last.

        The proxy is checked now if the last check was at least `max_age` seconds ago. A slow proxy
        is checked at most every `MAX_PAUSE` seconds.
        """
        checks = self._pods[pod.metadata.uid] = self._pods.get(pod.metadata.uid) or Checks()
        now = self._clock.monotonic()
        pause = max(max_age, MAX_PAUSE) if checks.is_slow else max_age
        if (
            checks.checked_at is not None and now - checks.checked_at < pause
        ) or self._slots.is_full(slow=checks.is_slow):
            return checks.answers
        answer: bool | None = False
        if pod.status.pod_ip and pod.status.phase == "Running":
            proxy = address(self._cluster_of(pod), pod, "serve", ports.SERVE)
            try:
                async with self._slots.hold(slow=checks.is_slow):
                    await self._dashboard.request(
                        proxy, dashboard.PROXY_HEALTH, most=dashboard.MAX_HEALTH_SIZE
                    )
                answer = True
            # if this process was delayed, the failed check says nothing about the proxy
            except errors.RaybusError as problem:
                if isinstance(problem, errors.Unanswered) and problem.is_late:
                    answer = None
        if answer is not None:
            checks.answers = (*checks.answers, answer)[-CHECKS_KEPT:]
        checks.checked_at = self._clock.monotonic()
        checks.is_slow = checks.checked_at - now > SLOW
        return checks.answers

    async def ongoing_requests(self, pod: Pod) -> Ongoing | None:
        """Return the requests in flight that a pod reports.

        None if the pod does not report them, or if the pod is slow and too many slow hosts are
        being polled.
        """
        node = address(self._cluster_of(pod), pod, "metrics", ports.METRICS)
        return await self.metrics(node, pod.metadata.uid, ongoing.count)

    async def metrics(self, node: Target, uid: str, read: Callable[[bytes], T | None]) -> T | None:
        """Get the metrics page of the pod with this UID, and return the result of `read` for it.

        None if there is no page, or if the pod is slow and too many slow hosts are being polled. A
        long page is parsed in a thread. The number of pages in memory is limited.
        """
        is_slow = self._slow_metrics.get(uid, False)
        if not node.ip or self._slots.is_full(slow=is_slow):
            return None
        async with self._pages.hold(node.namespace), self._slots.hold(slow=is_slow):
            began = self._clock.monotonic()
            try:
                page = await self._dashboard.request(
                    node, dashboard.METRICS, most=dashboard.MAX_METRICS_SIZE
                )
            except errors.RaybusError:
                return None
            finally:
                self._slow_metrics[uid] = self._clock.monotonic() - began > SLOW
            if len(page) <= SHORT_PAGE:
                return read(page)
            return await asyncio.get_running_loop().run_in_executor(self._page_thread, read, page)

    async def call(self, proxy: Target, path: str) -> None:
        """Send a request to a user's application through one proxy.

        Raises `Unavailable` or `Rejected` if the answer is not 200. The first answer of a model may
        take long, so these requests have their own limit and do not delay other requests.
        """
        async with self._calls.hold(proxy.namespace):
            await self._dashboard.request(
                proxy, path, most=dashboard.MAX_STATUS_SIZE, seconds=dashboard.WARM_UP_SECONDS
            )

    async def submit(
        self, cluster: RayCluster, config: str, *, target_capacity: int | None = None
    ) -> None:
        memory = self._memory(cluster)
        memory.read_at = None
        began, is_full = (
            self._clock.monotonic(),
            self._slots.is_full(slow=memory.takes_slowly),
        )
        try:
            if memory.refusal is not None and is_full:
                raise errors.Unavailable(memory.refusal.text)
            if (
                problem := foreign_answer(cluster, memory.nodes, memory.reading.details)
            ) is not None:
                raise errors.Unavailable(problem)
            body = (await self.configs.read(config))[config].to_json()
            if target_capacity is not None:
                body = {**body, "target_capacity": target_capacity}
            await self._heads.request(
                cluster, dashboard.APPLICATIONS, slow=memory.takes_slowly, config=body
            )
        except errors.OwnershipLost:
            raise  # nothing was sent
        except errors.RaybusError as problem:
            is_answer = isinstance(problem, errors.Terminal)
            retry_at = self._clock.now() + (MAX_RETRY_DELAY if is_answer else RETRY_UNANSWERED)
            memory.refusal = Refusal(
                config=config, text=str(problem), retry_at=retry_at, is_answer=is_answer
            )
            raise
        finally:
            memory.takes_slowly = is_full or self._clock.monotonic() - began > SLOW
        now, last = self._clock.monotonic(), memory.put
        is_repeated = last is not None and (last.config, last.capacity) == (config, target_capacity)
        is_recent = memory.put_at is not None and now - memory.put_at < REPEATS_FORGOTTEN
        count = last.count + 1 if last is not None and is_repeated and is_recent else 1
        before = (
            last.reported or last.reported_before
            if last is not None and last.config == config
            else None
        )
        memory.put = Put(
            config=config, capacity=target_capacity, count=count, reported_before=before
        )
        memory.refusal, memory.put_at = None, now

    def refuse(self, cluster: RayCluster, config: str, problem: errors.RaybusError) -> None:
        """Remember that a config was not sent because of `problem`; delay the next attempt."""
        wait = RETRY_UNANSWERED if isinstance(problem, errors.AlreadyExists) else MAX_RETRY_DELAY
        retry_at = self._clock.now() + wait
        self._memory(cluster).refusal = Refusal(
            config=config, text=str(problem), retry_at=retry_at, is_answer=False
        )

    def forget(self, objects: Objects) -> None:
        """Drop the state of clusters and pods that are deleted or now polled by another replica."""
        for uid in (obj.metadata.uid for obj in objects):
            self.revisions.forget(uid)
            self._heads.forget(uid)
            for remembered in (self._clusters, self._pods, self._slow_metrics):
                remembered.pop(uid, None)

    def _cluster_of(self, pod: Pod) -> RayCluster | None:
        name = pod.metadata.labels.get(labels.CLUSTER, "")
        return self._cache.get(RayCluster, pod.metadata.namespace, name)

    def _memory(self, cluster: RayCluster) -> DashboardMemory:
        memory = self._clusters[cluster.metadata.uid] = (
            self._clusters.get(cluster.metadata.uid) or DashboardMemory()
        )
        return memory
