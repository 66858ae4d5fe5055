"""The calls of one process to the API server and to Ray, with a boundary before and after each write.

At a boundary the process may stop while all others continue, die, lose the answer, or have its Serve config applied by Ray
long after the call timed out. Reads of a dashboard have one, too: what a pass decides from may be old when it writes.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import Patch
from common.kube.resources import Resource
from common.ray.dashboard import Target
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe

T = TypeVar("T")
CALL_TIMEOUT: Final = 2.0
"""Seconds after which a call without an answer fails."""


class Fate(StrEnum):
    """What becomes of one write."""

    DIE_BEFORE = "dies before"
    DIE_AFTER = "dies after"
    FAIL = "is not sent"
    LOSE = "is done, its answer is lost"
    LATE = "is done later, the caller timed out"
    LATE_DEAD = "is done later, the caller died"
    STOP_BEFORE = "waits before it is sent"
    STOP_AFTER = "is done, the caller waits before it goes on"


class Strike(msgspec.Struct, frozen=True, kw_only=True):
    """A fate of the n-th write of an upgrade, all processes counted together."""

    write: int
    fate: Fate
    seconds: float = 0.0
    down: float = 0.0
    """How long a process that dies stays away."""

    def __str__(self) -> str:
        return f"write {self.write} {self.fate} ({self.seconds:g} s, down {self.down:g} s)"


class Caller(msgspec.Struct):
    """One life of a process."""

    name: str
    is_dead: bool = False


class Schedule(Protocol):
    """Decides what happens at boundaries."""

    def fate(self, caller: Caller, what: str) -> Strike | None:
        """Count a write; return what becomes of it."""
        ...

    async def stop(self, caller: Caller, seconds: float, where: str) -> None:
        """Let others continue for some seconds; with none only those that are due at this moment."""
        ...

    async def pause(self, caller: Caller, where: str) -> None:
        """Stop, if chance wants it."""
        ...

    async def die(self, caller: Caller, seconds: float) -> None:
        """End this life; the next one begins some seconds later. Never returns."""
        ...

    def later(self, seconds: float, carry_out: Callable[[], Awaitable[object]]) -> None:
        """Let Ray carry something out later."""
        ...

    def acts(self, caller: Caller) -> None:
        """Note the caller that acts from now on; raise for a life that is over."""
        ...

    def has_acted(self) -> None:
        """Note that nobody acts any more."""
        ...

    def is_starved(self, caller: Caller) -> bool:
        """Return whether a process gets so little time that no answer of a dashboard is in time."""
        ...


class Boundaries:
    """Carries out writes as fate wants it."""

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


class GatedKube:
    """The API server as one life of a process reaches it; implements `common.kube.client.Kube`."""

    def __init__(self, kube: FakeKube, boundaries: Boundaries) -> None:
        self._kube = kube
        self._at = boundaries

    async def request(self, method: str, path: str, /, **more: Any) -> bytes:
        return await self._kube.request(method, path, **more)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return await self._kube.get(resource, namespace, name)

    async def get_metadata(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return await self._kube.get_metadata(resource, namespace, name)

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int | None = None,
    ) -> bytes:
        return await self._kube.list(
            resource, namespace, label_selector=label_selector, limit=limit
        )

    async def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        return await self._kube.dry_create(resource, namespace, body)

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        return await self._at.write(
            f"create {resource.kind}", lambda: self._kube.create(resource, namespace, body)
        )

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> bytes:
        return await self._at.write(
            f"replace {resource.kind}",
            lambda: self._kube.replace(resource, namespace, body, subresource=subresource),
        )

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Patch
    ) -> bytes:
        return await self._at.write(
            f"patch {resource.kind}", lambda: self._kube.patch(resource, namespace, name, patch)
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> bytes:
        return await self._at.write(
            f"delete {resource.kind}",
            lambda: self._kube.delete(resource, namespace, name, uid=uid, version=version),
        )

    async def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> bytes:
        return await self._at.write(
            f"delete {resource.kind}",
            lambda: self._kube.delete_collection(
                resource, namespace, label_selector=label_selector
            ),
        )

    async def request_token(self, namespace: str, account: str, *, seconds: int) -> bytes:
        return await self._kube.request_token(namespace, account, seconds=seconds)


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
        seconds: float | None = None,
    ) -> bytes:
        async def call() -> bytes:
            return await self._serve.request(target, path, most=most, config=config)

        if target.ip:
            if self._at.is_starved:
                raise errors.Unanswered(f"{target.name} does not answer in time", is_late=True)
            return await call()
        if self._at.is_starved:
            await self._at.time_out(f"request {target.name}")
        if config is None:
            return await self._at.read(f"read {target.name}", call)
        return await self._at.write(f"PUT {target.name}", call, may_be_late=True)


class SkewedClock:
    """The clock of a machine that is ahead of the others."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return self._clock.now() + self.ahead

    def monotonic(self) -> float:
        return self._clock.monotonic()
