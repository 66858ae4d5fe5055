"""The shell of a reconciler, written once: feed → cache → queue → workers → what an error means.

What the bus tells of the partitions that `hold` took on goes through `Intake` into the cache, and wakes keys. `run` takes keys
from the queue and calls the service's reconcile; it alone decides what happens after an error (`common.errors`). `release`
gives partitions up: when it returns, no look at their keys is under way, and none begins.
"""

import asyncio
from collections.abc import Awaitable, Callable, Set
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from common import errors
from common.api.meta import ObjectMeta
from common.bus.cache import Cache, Objects
from common.bus.feed import Listener
from common.observability.reconcile_meter import ReconcileMeter
from common.runtime import backoff
from common.runtime.clock import Clock
from common.runtime.intake import Intake
from common.runtime.key import Key, Watched
from common.runtime.precedence import AS_THEY_COME, Precedence
from common.runtime.work_queue import WorkQueue

log = structlog.get_logger()
T = TypeVar("T")

SLOW_RETRY = 5.0
"""Seconds between looks at what only a user, or an administrator, can mend."""
SILENCE_SECONDS = 2.0
"""So long the bus may be silent before guards decide from the API server alone; a reload takes less."""
TIDY_SECONDS = 5.0
"""Between two looks at what nobody keeps up to date."""

Forget = Callable[[Objects], None]
"""Drops what a service remembers of objects that somebody else looks after from now on."""


ReportQuarantine = Callable[[ObjectMeta, str], Awaitable[None]]
"""Says on an object that it waits for one in quarantine, and why that is there."""


async def _report_nothing(_about: ObjectMeta, _why: str) -> None:
    pass


def _nothing_to_forget(_objects: Objects) -> None:
    pass


class Reconcile(Protocol):
    """Bring one object a step nearer to its goal; return when to look again, if no change does it earlier."""

    def __call__(self, key: Key, *, now: datetime) -> Awaitable[datetime | None]: ...


class Controller:
    """One kind's reconciles in one replica."""

    def __init__(  # noqa: PLR0913  (each of the others is what one service does differently)
        self,
        name: str,
        watched: Watched,
        *,
        cache: Cache,
        clock: Clock,
        precedence: Precedence = AS_THEY_COME,
        forget: Forget = _nothing_to_forget,
        report_quarantine: ReportQuarantine = _report_nothing,
    ) -> None:
        self.name = name
        self._clock = clock
        self._meter = ReconcileMeter(name)
        self._queue: WorkQueue[Key] = WorkQueue(
            group_of=lambda key: key.namespace,
            size_of=_unless_it_fails(precedence.size_of, 1),
            rests=_unless_it_fails(precedence.rests, False),  # noqa: FBT003  (an answer)
            meter=self._meter,
        )
        self._sets_rested_apart = precedence.sets_rested_apart
        self._meter.follow(self._queue)
        self._intake = Intake(name, watched, cache=cache, wake=self._wake)
        self._forget = forget
        self._report_quarantine = report_quarantine
        self._looks: dict[Key, asyncio.Timeout] = {}
        """The looks under way, each with its time limit."""
        self._ended = asyncio.Event()
        """Set whenever a look ends."""

    # --- which partitions are ours -----------------------------------------------------------------------------------

    def hold(self, partition: int) -> Listener:
        """Take on the keys of a partition, from the moment when it has been told completely; return whom to tell."""
        return self._intake.hold(partition)

    def stop(self, partitions: Set[int]) -> frozenset[int]:
        """Begin no more looks in some partitions; return those of them where a look is still under way."""
        self._intake.stop(partitions)
        return frozenset(each for each in partitions if self._intake.keys_in({each}, self._looks))

    async def release(self, partitions: Set[int], *, patience: float = 0.0) -> None:
        """Stop and forget some partitions, once their looks have ended; after `patience` seconds those are cut short."""
        self.stop(partitions)
        limit = asyncio.get_running_loop().time() + patience
        for key in self._intake.keys_in(partitions, self._looks):
            self._looks[key].reschedule(min(limit, self._looks[key].when() or limit))
        while self._intake.keys_in(partitions, self._looks):
            self._ended.clear()
            await self._ended.wait()
        gone, keys = self._intake.forget(partitions)
        for key in keys:
            self._queue.forget(key)
        self._forget(gone)

    @property
    def kinds(self) -> frozenset[str]:
        """Return the kinds that decisions are about."""
        return self._intake.kinds

    @property
    def held(self) -> frozenset[int]:
        """Return the partitions that are ours."""
        return self._intake.held

    @property
    def loading(self) -> int:
        """Count our partitions that are not told completely yet; what readiness asks."""
        return self._intake.loading

    def wake(self, key: Key) -> None:
        """Ask for a look at a key, for a reason that no message brings (a poll, a timer)."""
        self._queue.add(key)

    def _wake(self, key: Key, is_new: bool) -> None:  # noqa: FBT001  (the port of `Intake`)
        self._queue.add(key, is_new=is_new)

    # --- what the workers do -----------------------------------------------------------------------------------------

    async def run(
        self, reconcile: Reconcile, *, workers: int, time_limit: float = 60.0, guard: Reconcile | None = None
    ) -> None:
        """Reconcile keys until cancelled, at most `workers` at once, and as many that had reached their goal before.

        `time_limit` seconds bound one reconcile. While the bus is silent `guard` reconciles the keys that are due.
        """
        lanes = [self._queue.take, self._queue.take_rested] if self._sets_rested_apart else [self._queue.take]
        self._meter.workers(workers * len(lanes))
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tidy())
            for take in lanes:
                for _ in range(workers):
                    group.create_task(self._work(take, reconcile, guard, time_limit))

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_SECONDS)
            self._intake.tidy()

    async def _work(
        self, take: Callable[[], Awaitable[Key]], reconcile: Reconcile, guard: Reconcile | None, time_limit: float
    ) -> None:
        while True:
            key = await take()
            silent_since = None if guard is None else self._intake.silent_since(key)
            if self._intake.may_look(key):
                chosen = reconcile
            elif silent_since is None:  # once its partition is told completely, every key is woken
                await self._report_waiting(key)
                self._queue.done(key)
                continue
            elif asyncio.get_running_loop().time() < silent_since + SILENCE_SECONDS:
                self._queue.done(key, look_again_at=silent_since + SILENCE_SECONDS)
                continue
            else:
                chosen = guard or reconcile
            with (
                structlog.contextvars.bound_contextvars(object=str(key)),
                self._intake.look(key),
            ):
                await self._look(chosen, key, time_limit)

    async def _report_waiting(self, key: Key) -> None:
        if (held := self._intake.quarantine_of(key)) is not None:
            try:
                await self._report_quarantine(*held)
            except Exception as problem:  # noqa: BLE001  (an Event is never worth a worker)
                log.warning("the quarantine was not reported", object=str(key), error=repr(problem))

    async def _look(self, reconcile: Reconcile, key: Key, time_limit: float) -> None:
        now = self._clock.now()
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(time_limit) as self._looks[key]:
                again = await reconcile(key, now=now)
        except Exception as problem:  # noqa: BLE001  (the one place that decides what an error means)
            result = self._failed(key, problem)
        else:
            self._queue.done(key, look_again_at=self._loop_time(again))
            result = "success" if again is None else "requeue_after"
        finally:
            del self._looks[key]
            self._ended.set()
        if not self._queue.waits(key):
            self._intake.rested(key)
        self._meter.looked(result, self._clock.monotonic() - started)

    def _failed(self, key: Key, problem: Exception) -> str:
        match problem:
            case errors.Conflict() | errors.AlreadyExists() | errors.NotFound():
                wait = self._queue.retry(key)
                log.debug("the read was old", error=str(problem), retry_after=wait)
            case errors.NotOurs(after=after):
                wait = self._queue.retry(key, after=after or 0.0)
                log.debug("the partition is not surely ours", error=str(problem), retry_after=wait)
            case errors.Retryable(after=after):
                wait = self._queue.retry(key, after=after or 0.0)
                log.warning("retrying", error=str(problem), retry_after=wait)
            case errors.Terminal():
                wait = self._queue.retry(key, after=min(SLOW_RETRY, 0.25 * 2 ** self._queue.failures(key)))
                log.warning("the user must mend this", error=str(problem), retry_after=wait)
            case TimeoutError() if not self._intake.may_look(key):
                wait = self._queue.retry(key)
                log.info("a look was cut short, its partition goes to somebody else")
            case TimeoutError():
                wait = self._queue.retry(key, after=1.0)
                log.error("a reconcile took too long", retry_after=wait)
            case _:
                wait = self._queue.retry(key, after=min(backoff.LONGEST, 2.0 ** self._queue.failures(key)))
                self._meter.violated()
                log.error("a reconcile failed by our own fault", retry_after=wait, exc_info=problem)
        self._meter.failed()
        return "error"

    def _loop_time(self, moment: datetime | None) -> float | None:
        if moment is None:
            return None
        wait = max(timedelta(0), moment - self._clock.now())
        return asyncio.get_running_loop().time() + wait.total_seconds()


def _unless_it_fails(ask: Callable[[Key], T], otherwise: T) -> Callable[[Key], T]:
    """Keep an object that cannot be judged from stopping the queue: its reconcile will say what is wrong."""

    def answer(key: Key) -> T:
        try:
            return ask(key)
        except Exception:  # noqa: BLE001  (whatever it is, it is one key's)
            return otherwise

    return answer
