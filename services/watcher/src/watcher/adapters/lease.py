"""The Lease at the API server: take it, keep it, let it go."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec
import structlog

from common import errors
from common.api.opaque import Body
from common.kube.client import Kube
from common.kube.resources import LEASE
from common.runtime.clock import Clock
from watcher import leadership, metrics
from watcher.leadership import LeaseSpec, Sighting

log = structlog.get_logger()


class _Meta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: LeaseSpec = LeaseSpec()


class Leadership:
    """One replica's claim to be the only one that publishes."""

    def __init__(self, kube: Kube, clock: Clock, *, namespace: str, me: str) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._me = me
        self._seen: Sighting | None = None
        self.problem: str | None = "the Lease is not yet taken"
        """Why we do not lead; None while we do."""

    @contextlib.asynccontextmanager
    async def held(self) -> AsyncGenerator[None]:
        """Wait for the Lease, then hold it as long as the block lasts; let it go at the end."""
        while not await self._try():  # noqa: ASYNC110  (the Lease changes at the API server, nobody can wake us)
            await asyncio.sleep(leadership.RENEW_SECONDS)
        log.info("leading", lease=leadership.LEASE_NAME, identity=self._me)
        metrics.LEADER.set(1)
        self.problem = None
        try:
            yield
        finally:
            metrics.LEADER.set(0)
            self.problem = "the Lease was let go"
            with contextlib.suppress(errors.RaybusError, TimeoutError):
                async with asyncio.timeout(leadership.RENEW_SECONDS):
                    await self._release()

    def lost(self, why: str) -> None:
        """Take note that the Lease was lost."""
        self._note(why)

    async def keep(self) -> str:
        """Renew until that fails for too long, or somebody else has the Lease; return why."""
        sure = self._clock.monotonic()
        while True:
            await asyncio.sleep(leadership.RENEW_SECONDS)
            asked = self._clock.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(sure + leadership.DEADLINE_SECONDS):
                    if await self._try():
                        sure = asked
                    elif self._seen is not None and self._seen.spec.holder_identity != self._me:
                        return f"the Lease now belongs to {self._seen.spec.holder_identity or 'nobody'}"
            if self._clock.monotonic() >= sure + leadership.DEADLINE_SECONDS:
                return f"the Lease could not be renewed for {leadership.DEADLINE_SECONDS:g} s"

    async def _try(self) -> bool:
        """Take or renew the Lease; tell whether it is ours."""
        try:
            lease = await self._read()
            if lease is None:
                await self._kube.create(LEASE, self._namespace, self._body(self._mine(None), None))
                return True
            now = self._clock.monotonic()
            self._seen = leadership.see(self._seen, lease.spec, now=now)
            holder = leadership.holder_to_wait_for(self._seen, self._me, now=now)
            if holder is not None:
                self._note(f"the Lease {self._namespace}/{leadership.LEASE_NAME} is held by {holder}")
                return False
            await self._write(self._mine(lease.spec), lease)
        except (errors.Conflict, errors.AlreadyExists):
            return False
        except errors.RaybusError as problem:
            self._note(f"the Lease {self._namespace}/{leadership.LEASE_NAME} cannot be had: {problem}")
            return False
        return True

    async def _release(self) -> None:
        lease = await self._read()
        if lease is not None and lease.spec.holder_identity == self._me:
            await self._write(leadership.released(lease.spec, at=self._clock.now()), lease)
            log.info("the Lease was let go", lease=leadership.LEASE_NAME)

    async def _read(self) -> _Lease | None:
        try:
            answer = await self._kube.get(LEASE, self._namespace, leadership.LEASE_NAME)
        except errors.NotFound:
            return None
        return msgspec.json.decode(answer, type=_Lease)

    async def _write(self, spec: LeaseSpec, read: _Lease) -> None:
        answer = await self._kube.replace(LEASE, self._namespace, self._body(spec, read.metadata.resource_version))
        self._seen = Sighting(msgspec.json.decode(answer, type=_Lease).spec, self._clock.monotonic())

    def _mine(self, spec: LeaseSpec | None) -> LeaseSpec:
        return leadership.taken(spec, self._me, at=self._clock.now())

    def _body(self, spec: LeaseSpec, resource_version: str | None) -> Body:
        metadata = {"name": leadership.LEASE_NAME, "namespace": self._namespace}
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": metadata,
            "spec": msgspec.to_builtins(spec),
        }

    def _note(self, why: str) -> None:
        if why != self.problem:
            log.warning("not leading", why=why)
        self.problem = why
