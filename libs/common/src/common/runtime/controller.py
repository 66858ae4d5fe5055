"""The control loop of a reconciler: feed → informer → work queue → workers → error policy.

`Informer` writes the messages of the held partitions into the cache and enqueues the keys that they
concern. `run` takes keys from the queue and calls the service's reconcile function. Only this
module decides what happens after an error (`common.errors`). When `release` returns, no reconcile
of the released partitions is running, and none starts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from datetime import datetime, timedelta

import structlog

from common import errors
from common.api.meta import ObjectMeta
from common.clock import Clock
from common.observability import tasks
from common.observability.metrics import ReconcileMeter
from common.runtime.cache import Cache, Objects
from common.runtime.informer import Informer
from common.runtime.key import Key, KeyPriority, QuarantinedObject, Watched
from common.runtime.work_queue import WorkQueue, backoff

log = structlog.get_logger()

TIME_LIMIT = 60.0
"""Maximum seconds that one reconcile may take."""
SLOW_RETRY = 5.0
"""Seconds between reconciles of an object that only a user or an administrator can correct."""
GUARD_AFTER_SECONDS = 2.0
"""Seconds without complete state from NATS after which `guard` reconciles a key (see `run`).

A reload of the state takes less time.
"""
STALE_TRIES = 8
"""Number of consecutive conflicts of a key, within a few seconds, from which they are logged as
warnings.
"""
OVERDUE_SECONDS = 120.0
"""Seconds after which a key that still waits or is being reconciled is logged.

All time limits of a reconcile are shorter."""
TIDY_SECONDS = 5.0
"""Seconds between two clean-ups of the cache and of what services remember of deleted objects."""

Reconcile = Callable[[Key, datetime], Awaitable[datetime | None]]
"""Function that reconciles one object; returns when to do so again even without a change."""
Forget = Callable[[Objects], None]
"""Function that drops a service's state of objects that are gone or now reconciled by another
replica.
"""
ReportQuarantine = Callable[[Key, ObjectMeta, str], Awaitable[None]]
"""Function that writes an Event about a root object which waits for an object in quarantine.

The arguments are the key and the metadata of the root object, and the reason."""


class Controller:
    """Reconciles the objects of one kind in one replica."""

    def __init__(  # noqa: PLR0913  (each parameter is a difference between services)
        self,
        name: str,
        watched: Watched,
        *,
        cache: Cache,
        clock: Clock,
        rank: Callable[[Key], KeyPriority] | None = None,
        forget: Sequence[Forget] = (),
        report_quarantine: ReportQuarantine | None = None,
        release: Reconcile | None = None,
    ) -> None:
        self.name = name
        self._clock = clock
        self._forget = forget
        self._report_quarantine = report_quarantine
        self._release = release
        """Removes raybus's finalizer from a deleted root that waits for an object in quarantine."""
        self._meter = ReconcileMeter(name)
        self.queue: WorkQueue[Key] = WorkQueue(
            group_of=lambda key: key.namespace, rank=rank, meter=self._meter
        )
        self._meter.follow(
            self.queue.__len__, self.queue.get_longest_wait, self.queue.get_running_times
        )
        self.informer = Informer(name, watched, cache=cache, queue=self.queue)
        self._running: dict[Key, asyncio.Timeout] = {}
        """The time limit of each running reconcile, by its key."""
        self._ended = asyncio.Event()

    # --- partitions ---------------------------------------------------------------------------

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        """Start no more reconciles in these partitions; return those with a running reconcile."""
        self.informer.stop(partitions)
        return frozenset(
            partition
            for partition in partitions
            if self.informer.keys_in({partition}, self._running)
        )

    async def release(self, partitions: Set[int], *, grace_seconds: float = 0.0) -> None:
        """Stop these partitions, wait for their running reconciles, and drop their objects.

        Reconciles that still run after `grace_seconds` are cancelled.
        """
        self.stop(partitions)
        limit = asyncio.get_running_loop().time() + grace_seconds
        for key in self.informer.keys_in(partitions, self._running):
            self._running[key].reschedule(min(limit, self._running[key].when() or limit))
        while self.informer.keys_in(partitions, self._running):
            self._ended.clear()
            await self._ended.wait()
        self._drop(self.informer.forget(partitions))

    def _drop(self, objects: Objects) -> None:
        for forget in self._forget:
            forget(objects)

    # --- workers ------------------------------------------------------------------------------

    async def run(
        self, reconcile: Reconcile, *, workers: int, guard: Reconcile | None = None
    ) -> None:
        """Reconcile keys until cancelled, with `workers` workers for each way of taking keys.

        The ways are: new and known keys, keys of namespaces in which no key is being reconciled,
        and steady keys (see `WorkQueue`). While NATS is silent, `guard` reconciles the due keys.
        """
        self._meter.workers.set(workers * len(self.queue.lanes))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tidy())
            for take in self.queue.lanes:
                for _ in range(workers):
                    group.create_task(self._work(take, reconcile, guard))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self.informer.tidy()
            self._drop(self.informer.cache.take_removed())
            if overdue := self.queue.find_overdue(OVERDUE_SECONDS):
                # Log only one of them: thousands of keys wait while thousands of clusters start.
                key, state = overdue[0]
                log.warning(
                    "reconcile makes no progress", object=str(key), state=state, keys=len(overdue)
                )

    async def _work(
        self, take: Callable[[], Awaitable[Key]], reconcile: Reconcile, guard: Reconcile | None
    ) -> None:
        while True:
            async with tasks.survive_stray_cancellation(f"worker of {self.name}"):
                # A reconcile that finds nothing to do awaits nothing. Without this sleep, thousands
                # of such reconciles would delay the Leases and probes of the process.
                await asyncio.sleep(0)
                key = await take()
                chosen = await self._choose_reconcile(key, reconcile, guard)
                if chosen is None:
                    continue
                now, started = self._clock.now(), self._clock.monotonic()
                result, requeue_at = "error", None
                with (
                    structlog.contextvars.bound_contextvars(object=str(key)),
                    self.informer.traces.reconciling(key),
                ):
                    try:
                        async with asyncio.timeout(TIME_LIMIT) as self._running[key]:
                            retry_at = await chosen(key, now)
                    except Exception as problem:  # noqa: BLE001  (decides about all errors)
                        self._schedule_retry(key, problem)
                    except asyncio.CancelledError as problem:
                        if not tasks.is_stray():
                            raise
                        self._schedule_retry(key, problem)
                    else:
                        result = "success" if retry_at is None else "requeue_after"
                        if retry_at is not None:
                            wait = max(timedelta(0), retry_at - self._clock.now()).total_seconds()
                            requeue_at = asyncio.get_running_loop().time() + wait
                        self.queue.done(key, requeue_at=requeue_at)
                    finally:
                        del self._running[key]
                        self._ended.set()
                    if not self.queue.is_waiting(key):
                        self.informer.idle(key)
                    self._meter.results[result].inc()
                    self._meter.seconds.observe(self._clock.monotonic() - started)

    async def _choose_reconcile(
        self, key: Key, reconcile: Reconcile, guard: Reconcile | None
    ) -> Reconcile | None:
        """Return the function with which to reconcile a key now; None if the key must wait."""
        if self.informer.may_reconcile(key):
            return reconcile
        self.informer.defer(key)
        if (quarantined := self.informer.quarantine.find(key)) is not None:
            return await self._handle_quarantine(key, quarantined)
        if guard is None or (silent_since := self.informer.silent_since(key)) is None:
            self.queue.done(key)
            return None
        if asyncio.get_running_loop().time() < silent_since + GUARD_AFTER_SECONDS:
            self.queue.done(key, requeue_at=silent_since + GUARD_AFTER_SECONDS)
            return None
        return guard

    async def _handle_quarantine(
        self, key: Key, quarantined: QuarantinedObject
    ) -> Reconcile | None:
        """Write an Event on the root object `key` about the object in quarantine.

        Return the function that removes raybus's finalizer from a deleted root object. None if the
        service has no such function, or if this replica no longer follows the key's partition.
        """
        chosen = None
        try:
            await self._report_on_root(key, quarantined)
            if self.informer.is_followed(key):
                chosen = self._release
        finally:  # also after a stray cancellation, which restarts the worker
            if chosen is None:  # without this, the key would stay marked as busy
                self.queue.done(key)
        return chosen

    async def _report_on_root(self, key: Key, quarantined: QuarantinedObject) -> None:
        if self._report_quarantine is None:
            return
        root = self.informer.root(key)
        try:
            await self._report_quarantine(
                key, quarantined.metadata if root is None else root.metadata, quarantined.why
            )
        except Exception as problem:  # noqa: BLE001  (reporting an Event must not stop the worker)
            log.warning("cannot report the quarantine", object=str(key), error=repr(problem))

    def _schedule_retry(self, key: Key, problem: BaseException) -> None:
        """Decide when to reconcile a key again after an error.

        Concurrent reads raise a group of errors. If all of them are raybus errors, only the first
        one counts.
        """
        causes = list(errors.leaves(problem))
        if all(isinstance(cause, errors.RaybusError) for cause in causes):
            problem = causes[0]
        before = self.queue.count_failures(key)
        min_wait, level, traceback = 0.0, logging.WARNING, None
        match problem:
            case errors.Conflict() | errors.AlreadyExists() | errors.NotFound():
                text, level = (
                    "the cache was stale",
                    logging.WARNING if before + 1 >= STALE_TRIES else logging.DEBUG,
                )
            case errors.OwnershipLost(after=after):
                text, min_wait, level = (
                    "partition ownership not confirmed; retrying",
                    after or 0.0,
                    logging.DEBUG,
                )
            case errors.Retryable(after=after):
                text, min_wait = "retrying", after or 0.0
            case errors.NamespaceTerminating():
                text, min_wait = "the namespace is being deleted", SLOW_RETRY
                level = logging.DEBUG if before else logging.INFO
            case errors.Terminal():
                text, min_wait = (
                    "the user must correct this",
                    backoff(before, first=0.25, longest=SLOW_RETRY),
                )
            case TimeoutError() if not self.informer.is_followed(key):
                text, level = (
                    "a reconcile was cancelled, because its partition goes to another replica",
                    logging.INFO,
                )
            case TimeoutError():
                text, min_wait, level = "a reconcile took too long", 1.0, logging.ERROR
            case _:
                text, level, traceback = (
                    "reconcile failed: internal error",
                    logging.ERROR,
                    problem,
                )
                min_wait = backoff(before, first=1.0)
                self._meter.invariants.inc()
        wait = self.queue.retry(key, after=min_wait)
        log.log(level, text, error=str(problem), retry_after=wait, exc_info=traceback)
        self._meter.errors.inc()
        self._meter.retries.inc()
