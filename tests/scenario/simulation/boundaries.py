"""The calls of one process to the API server and to Ray, with a boundary around each write.

At a boundary the process may stop while all others continue, die, lose the answer, or have its
Serve config applied by Ray long after the call timed out. Reads of a dashboard have a boundary too:
their answers may be old when the process writes.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NoReturn, Protocol, TypeVar

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube.resources import Resource
from common.ray.dashboard import Target
from support.fakes.clock import FakeClock
from support.fakes.intercepted_kube import InterceptedKube, Send
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe

T = TypeVar("T")
CALL_TIMEOUT: Final = 2.0
"""Seconds after which a call without an answer fails."""


class Fate(StrEnum):
    """The outcome of one write."""

    DIE_BEFORE = "dies before"
    DIE_AFTER = "dies after"
    FAIL = "is not sent"
    LOSE = "is done, its answer is lost"
    LATE = "is done later, the caller timed out"
    LATE_DEAD = "is done later, the caller died"
    STOP_BEFORE = "waits before it is sent"
    STOP_AFTER = "is done, the caller waits before it goes on"


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome for the n-th write of an upgrade, counted over all processes."""

    write: int
    fate: Fate
    seconds: float = 0.0
    down: float = 0.0
    """Seconds for which a process that dies stays away."""

    def __str__(self) -> str:
        return f"write {self.write} {self.fate} ({self.seconds:g} s, down {self.down:g} s)"


class Caller(msgspec.Struct):
    """One life of a process, from its start to its death."""

    name: str
    is_dead: bool = False


class Schedule(Protocol):
    """Decides what happens at boundaries."""

    def fate(self, caller: Caller, what: str) -> Strike | None:
        """Count a write, and return its outcome."""
        ...

    async def stop(self, caller: Caller, seconds: float, where: str) -> None:
        """Let other processes continue for some seconds.

        With 0 seconds, only the processes that are due now continue.
        """
        ...

    async def pause(self, caller: Caller, where: str) -> None:
        """Stop here with some probability."""
        ...

    async def die(self, caller: Caller, seconds: float) -> None:
        """End this life; the next one begins some seconds later. Never returns."""
        ...

    def later(self, seconds: float, carry_out: Callable[[], Awaitable[object]]) -> None:
        """Let Ray carry something out later."""
        ...

    def acts(self, caller: Caller) -> None:
        """Record which caller acts from now on; raise if its life is over."""
        ...

    def has_acted(self) -> None:
        """Record that no caller acts any more."""
        ...

    def is_starved(self, caller: Caller) -> bool:
        """Return whether a process gets so little time that no answer of a dashboard is in time."""
        ...


class Boundaries:
    """Carries out writes with the outcomes of the schedule."""

    def __init__(self, schedule: Schedule, caller: Caller) -> None:
        self._schedule = schedule
        self._caller = caller

    async def write(
        self, what: str, carry_out: Callable[[], Awaitable[T]], *, may_be_late: bool = False
    ) -> T:
        """Carry out one write."""
        strike = self._schedule.fate(self._caller, what)
        fate, seconds, down = (
            (strike.fate, strike.seconds, strike.down) if strike is not None else (None, 0.0, 0.0)
        )
        if fate is Fate.STOP_BEFORE:
            await self._schedule.stop(self._caller, seconds, f"before {what}")
        else:
            await self._schedule.pause(self._caller, f"before {what}")
        if fate in {Fate.LATE, Fate.LATE_DEAD} and may_be_late:
            self._schedule.later(max(seconds, CALL_TIMEOUT + 1), carry_out)
            if fate is Fate.LATE_DEAD:
                await self._schedule.die(self._caller, down)
            await self.time_out(what)
        if fate is Fate.DIE_BEFORE:
            await self._schedule.die(self._caller, down)
        if fate is Fate.FAIL:
            raise errors.Unavailable(f"{what}: the connection failed")
        answer = await self._act(carry_out)
        if fate is Fate.DIE_AFTER:
            await self._schedule.die(self._caller, down)
        if fate is Fate.LOSE:
            raise errors.Unavailable(f"{what}: the connection was lost")
        if fate is Fate.STOP_AFTER:
            await self._schedule.stop(self._caller, seconds, f"after {what}")
        else:
            await self._schedule.pause(self._caller, f"after {what}")
        return answer

    @property
    def is_starved(self) -> bool:
        return self._schedule.is_starved(self._caller)

    async def time_out(self, what: str) -> NoReturn:
        """Wait for as long as a call may take, and fail."""
        await self._schedule.stop(self._caller, CALL_TIMEOUT, f"waiting for {what}")
        raise errors.Unavailable(f"{what}: no answer within {CALL_TIMEOUT:g} s")

    async def read(self, what: str, carry_out: Callable[[], Awaitable[T]]) -> T:
        """Carry out one read; the answer may be old when it arrives."""
        answer = await carry_out()
        await self._schedule.pause(self._caller, f"after {what}")
        return answer

    async def _act(self, carry_out: Callable[[], Awaitable[T]]) -> T:
        self._schedule.acts(self._caller)
        try:
            return await carry_out()
        finally:
            self._schedule.has_acted()


class GatedKube(InterceptedKube):
    """The API server as one life of a process reaches it."""

    def __init__(self, kube: FakeKube, boundaries: Boundaries) -> None:
        super().__init__(kube)
        self._at = boundaries

    async def intercept(self, verb: str, resource: Resource, name: str, send: Send) -> bytes:
        if verb in {"get", "list"}:
            return await send()
        what = "delete" if verb == "deletecollection" else verb
        return await self._at.write(f"{what} {resource.kind}", send)


class GatedServe:
    """The dashboards as one life of a process reaches them; implements `common.ray.dashboard.Dashboard`."""

    def __init__(self, serve: FakeServe, boundaries: Boundaries) -> None:
        self._serve = serve
        self._at = boundaries

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        async def call() -> bytes:
            return await self._serve.request(target, path, most=most, config=config, post=post)

        if target.ip:
            if self._at.is_starved:
                raise errors.Unanswered(f"{target.name} does not answer in time", is_late=True)
            return await call()
        if self._at.is_starved:
            await self._at.time_out(f"request {target.name}")
        if config is None and post is None:
            return await self._at.read(f"read {target.name}", call)
        method = "PUT" if post is None else "POST"
        return await self._at.write(f"{method} {target.name}", call, may_be_late=True)


class SkewedClock:
    """The clock of a machine that is ahead of the others."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()
