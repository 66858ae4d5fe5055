"""The shell of a reconciler, written once: feed → cache → queue → workers → what an error means.

`Controller` is a `Listener` of the bus: it keeps the cache, turns each change into the keys that want a look, and holds
the workers back while the state is incomplete. `run` takes keys from the queue and calls the service's reconcile; it
alone decides what happens after an error (`common.errors`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

import msgspec
import structlog

from common import errors
from common.bus import cache as caches
from common.bus.cache import Cache, Object
from common.observability import metrics
from common.observability.reconcile_meter import ReconcileMeter
from common.runtime import trace as traces
from common.runtime.clock import Clock
from common.runtime.key import Key, KeysOf
from common.runtime.work_queue import WorkQueue, one_size

log = structlog.get_logger()

SLOW_RETRY = 5.0
"""Seconds between looks at what only a user, or an administrator, can mend."""


class Reconcile(Protocol):
    """Bring one object a step nearer to its goal; return when to look again, if no change does it earlier."""

    def __call__(self, key: Key, *, now: datetime) -> Awaitable[datetime | None]: ...


class Controller:
    """One kind's reconciles in one replica."""

    def __init__(
        self,
        name: str,
        *,
        kinds: Mapping[str, type[Object]],
        keys_of: KeysOf,
        cache: Cache,
        clock: Clock,
        size_of: Callable[[Key], int] = one_size,
    ) -> None:
        self.name = name
        self._kinds = kinds
        self._keys_of = keys_of
        self._cache = cache
        self._clock = clock
        self._meter = ReconcileMeter(name)
        self._queue: WorkQueue[Key] = WorkQueue(
            group_of=lambda key: key.namespace, size_of=size_of, meter=self._meter
        )
        self._meter.follow(self._queue)
        self._traces: dict[Key, str] = {}
        """The newest change that woke each key."""
        self._synced = asyncio.Event()
        self._loaded: set[caches.Key] | None = None
        """What a running reload has brought so far; None when no reload runs."""

    # --- what the bus tells ------------------------------------------------------------------------------------------

    def loading(self, why: str) -> None:
        """Hold the workers back until `synced`."""
        log.info("state is loading", why=why)
        self._synced.clear()
        self._loaded = set()

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        """Put an object into the cache and wake the keys that it concerns."""
        view = self._kinds.get(kind)
        if view is None:
            return
        try:
            obj = msgspec.json.decode(body, type=view)
        except msgspec.DecodeError as problem:
            metrics.UNDECODABLE.labels(self.name, kind).inc()
            log.warning("a message does not decode and is skipped", kind=kind, error=str(problem))
            return
        is_new = False
        if self._loaded is not None:
            self._loaded.add((view, obj.metadata.namespace, obj.metadata.name))
        else:
            is_new = self._cache.get(view, obj.metadata.namespace, obj.metadata.name) is None
        if self._cache.put(obj):
            self._wake(obj, trace, is_new=is_new)

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        """Take an object out of the cache and wake the keys that it concerned."""
        view = self._kinds.get(kind)
        if view is None:
            return
        known = self._cache.get(view, namespace, name)
        if self._cache.remove(view, namespace, name, version=version) and known is not None:
            self._wake(known, trace)

    def synced(self, version: int) -> None:
        """Let the workers go on, and have every key looked at once."""
        if self._loaded is not None:
            for gone in self._cache.keep_only(self._loaded, listed_at=version):
                self._wake(gone)
        self._loaded = None
        for view in self._kinds.values():
            for obj in self._cache.all(view):
                self._wake(obj)
        self._synced.set()
        log.info("state is synced", objects=len(self._cache), version=version)

    @property
    def is_synced(self) -> bool:
        """Tell whether decisions may be taken; what readiness asks."""
        return self._synced.is_set()

    def wake(self, key: Key) -> None:
        """Ask for a look at a key, for a reason that no message brings (a poll, a timer)."""
        self._queue.add(key)

    def _wake(self, obj: Object, trace: str = "", *, is_new: bool = False) -> None:
        own = Key(obj.metadata.namespace, obj.metadata.name)
        for key in self._keys_of(obj):
            if trace:
                self._traces[key] = trace
            self._queue.add(key, is_new=is_new and key == own)

    # --- what the workers do -----------------------------------------------------------------------------------------

    async def run(self, reconcile: Reconcile, *, workers: int, time_limit: float = 60.0) -> None:
        """Reconcile keys until cancelled, at most `workers` at once; `time_limit` seconds bound one reconcile."""
        self._meter.workers(workers)
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(reconcile, time_limit))

    async def _work(self, reconcile: Reconcile, time_limit: float) -> None:
        while True:
            await self._synced.wait()
            key = await self._queue.take()
            if not self.is_synced:  # a reload began while we waited; it wakes every key again
                self._queue.done(key)
                continue
            with (
                structlog.contextvars.bound_contextvars(object=str(key)),
                traces.bound(self._traces.get(key, "")),
            ):
                await self._look(reconcile, key, time_limit)

    async def _look(self, reconcile: Reconcile, key: Key, time_limit: float) -> None:
        now = self._clock.now()
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(time_limit):
                again = await reconcile(key, now=now)
        except Exception as problem:  # noqa: BLE001  (the one place that decides what an error means)
            result = self._failed(key, problem)
        else:
            self._queue.done(key, look_again_at=self._loop_time(again))
            result = "success" if again is None else "requeue_after"
        self._meter.looked(result, self._clock.monotonic() - started)

    def _failed(self, key: Key, problem: Exception) -> str:
        match problem:
            case errors.Conflict() | errors.AlreadyExists() | errors.NotFound():
                wait = self._queue.retry(key)
                log.debug("the read was old", error=str(problem), retry_after=wait)
            case errors.Retryable(after=after):
                wait = self._queue.retry(key, after=after or 0.0)
                log.warning("retrying", error=str(problem), retry_after=wait)
            case errors.Terminal():
                wait = self._queue.retry(key, after=min(SLOW_RETRY, 0.25 * 2 ** self._queue.failures(key)))
                log.warning("the user must mend this", error=str(problem), retry_after=wait)
            case TimeoutError():
                wait = self._queue.retry(key, after=1.0)
                log.error("a reconcile took too long", retry_after=wait)
            case _:
                wait = self._queue.retry(key, after=1.0)
                self._meter.violated()
                log.error("a reconcile failed by our own fault", retry_after=wait, exc_info=problem)
        self._meter.failed()
        return "error"

    def _loop_time(self, moment: datetime | None) -> float | None:
        if moment is None:
            return None
        wait = max(timedelta(0), moment - self._clock.now())
        return asyncio.get_running_loop().time() + wait.total_seconds()
