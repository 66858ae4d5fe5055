"""The Lease at the API server: take it, keep it, yield it, let it go."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from time import monotonic
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.opaque import Body
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import LEASE
from watcher import leadership, metrics
from watcher.leadership import Lease, LeaseObservation, LeaseSpec, Role
from watcher.reach import Reach

log = structlog.get_logger()

OURS: Final = (errors.RaybusError, TimeoutError)


class _Read(msgspec.Struct, frozen=True):
    """A Lease as it was read; `metadata` is written back unchanged."""

    metadata: Body
    spec: LeaseSpec = LeaseSpec()

    @property
    def lease(self) -> Lease:
        annotations: dict[str, str] = self.metadata.get("annotations") or {}
        return Lease(self.spec, leadership.role_of(self.spec, annotations.get(leadership.ANNOTATION, "")))


class Leadership:
    """One replica's claim to be the only one that publishes."""

    def __init__(self, kube: Kube, clock: Clock, reach: Reach, *, namespace: str, me: str) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._me = me
        self._reach = reach
        self._seen: LeaseObservation | None = None
        self._valid_until = 0.0
        self._written_at = 0.0
        self.problem: str | None = "the Lease has not been read yet"
        """Why neither we nor another watcher lead; None while one does."""
        self.standing_by: str | None = None
        """The holder of the Lease that this replica stands by for; None while it leads, or has a problem."""

    @property
    def has_valid_lease(self) -> bool:
        """Return whether no other replica can lead now; by the machine's own clock, which runs on while a process is stopped."""
        return monotonic() < self._valid_until

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Wait for the Lease, hold it as long as the block lasts, and let it go when that is cancelled."""
        while (why := self._reach.problem) is not None or not await self._try(Role.LEADS):
            if why is not None:
                await self._try(Role.YIELDS)
                self._set_problem(why)
            await asyncio.sleep(leadership.CHECK_SECONDS)
        log.info("leading", lease=leadership.LEASE_NAME, identity=self._me)
        self._is_leading(1)
        self.problem = self.standing_by = None
        try:
            yield
        except BaseException:
            await self._release()
            raise
        finally:
            self._is_leading(0)
            self._valid_until = 0.0

    async def keep(self) -> str:
        """Renew until that fails for too long, another holder has the Lease, or NATS is out of reach; return why."""
        while True:
            await asyncio.sleep(leadership.CHECK_SECONDS)
            if self._reach.is_lost:
                return self._reach.problem or "NATS was out of reach"
            if self.has_valid_lease and monotonic() < self._written_at + leadership.RENEW_SECONDS:
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._valid_until - monotonic())):
                    if not await self._try(Role.LEADS) and (holder := self._other_holder()) is not None:
                        return f"the Lease now belongs to {holder or 'nobody'}"
            if not self.has_valid_lease:
                return f"the Lease could not be renewed for {leadership.DEADLINE_SECONDS:g} s"

    def lost(self, why: str) -> None:
        """Record that this replica no longer leads."""
        self._set_problem(why)

    # --- one attempt -------------------------------------------------------------------------------------------------

    async def _try(self, role: Role) -> bool:
        """Take or renew the Lease if allowed; return whether that was done. With `Role.YIELDS` it only renews."""
        try:
            async with asyncio.timeout(leadership.DEADLINE_SECONDS):
                return await self._take(role)
        except (errors.Conflict, errors.AlreadyExists):
            return False
        except OURS as problem:
            if role is Role.LEADS:
                self._set_problem(f"{self._where} cannot be had: {problem or 'the API server does not answer'}")
            return False

    async def _take(self, role: Role) -> bool:
        asked = monotonic()
        read = await self._read()
        if read is None:
            if role is Role.LEADS:
                self._wrote(
                    await self._kube.create(LEASE, self._namespace, self._body(self._mine(None), {}, role)), asked
                )
            return role is Role.LEADS
        self._seen = leadership.observe(self._seen, read.lease, now=monotonic())
        if role is Role.YIELDS and (read.spec.holder_identity != self._me or self._has_yielded()):
            return False
        if (holder := leadership.holder_to_wait_for(self._seen, self._me, now=monotonic())) is not None:
            self._wait_for(holder)
            return False
        await self._write(self._mine(read.spec), read, role, asked)
        return True

    def _has_yielded(self) -> bool:
        """Return whether the annotation has the role `YIELDS` and the Lease was renewed within `RENEW_SECONDS`."""
        yields = self._seen is not None and self._seen.lease.role is Role.YIELDS
        return yields and monotonic() < self._written_at + leadership.RENEW_SECONDS

    def _other_holder(self) -> str | None:
        """Return another holder of the Lease: empty when nobody holds it, None when this replica does."""
        holder = self._seen.lease.spec.holder_identity if self._seen is not None else self._me
        return None if holder == self._me else holder or ""

    def _wait_for(self, holder: str) -> None:
        """Stand by for another watcher; a holder of any other kind is a problem."""
        held = f"{self._where} is held by {holder}"
        if self._seen is None or self._seen.lease.role is None:
            self._set_problem(held)
            return
        if self.standing_by is None:
            log.info("standing by", why=held)
        self.problem, self.standing_by = None, held

    async def _release(self) -> None:
        try:
            async with asyncio.timeout(leadership.RENEW_SECONDS):
                while not await self._is_released():
                    pass  # a renewal that was cancelled has still reached the API server in between
        except OURS as problem:
            log.warning("the Lease was not released", error=str(problem) or "the API server does not answer")

    async def _is_released(self) -> bool:
        """Let the Lease go if it is ours; return whether that is done."""
        read = await self._read()
        if read is None or read.spec.holder_identity != self._me:
            return True
        try:
            await self._write(leadership.released(read.spec, at=self._clock.now()), read, Role.LEADS, 0.0)
        except errors.Conflict:
            return False
        log.info("the Lease was released", lease=leadership.LEASE_NAME)
        return True

    # --- the API server ----------------------------------------------------------------------------------------------

    async def _read(self) -> _Read | None:
        try:
            answer = await self._kube.get(LEASE, self._namespace, leadership.LEASE_NAME)
        except errors.NotFound:
            return None
        return msgspec.json.decode(answer, type=_Read)

    async def _write(self, spec: LeaseSpec, read: _Read, role: Role, asked: float) -> None:
        answer = await self._kube.replace(LEASE, self._namespace, self._body(spec, read.metadata, role))
        self._wrote(answer, asked)

    def _wrote(self, answer: bytes, asked: float) -> None:
        """Record our own write; the Lease is ours for some time from the moment that we asked for it."""
        lease = msgspec.json.decode(answer, type=_Read).lease
        self._seen = LeaseObservation(lease, monotonic())
        self._written_at = asked
        self._valid_until = asked + leadership.DEADLINE_SECONDS if lease.role is Role.LEADS else 0.0

    def _mine(self, spec: LeaseSpec | None) -> LeaseSpec:
        return leadership.taken(spec, self._me, at=self._clock.now())

    def _body(self, spec: LeaseSpec, metadata: Body, role: Role) -> Body:
        role_annotation = {leadership.ANNOTATION: leadership.annotation_of(self._me, role)}
        annotations: dict[str, str] = {**(metadata.get("annotations") or {}), **role_annotation}
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        place = {"name": leadership.LEASE_NAME, "namespace": self._namespace}
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {**kept, **place, "annotations": annotations},
            "spec": msgspec.to_builtins(spec),
        }

    @property
    def _where(self) -> str:
        return f"the Lease {self._namespace}/{leadership.LEASE_NAME}"

    def _is_leading(self, number: int) -> None:
        metrics.LEADER.set(number)
        metrics.MASTER.labels(leadership.LEASE_NAME).set(number)

    def _set_problem(self, why: str | None) -> None:
        if why != self.problem:
            log.warning("not leading", why=why)
        self.problem, self.standing_by = why, None
