"""A real NATS server with users, TLS, both streams and the mirror for external consumers, and its publishers and readers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from common import errors
from common.bus import streams, subjects
from common.bus.cloud_events import Event
from common.bus.nats import Bus, connect
from common.ray import job_events
from common.upgrade import events as upgrade_events
from nats_admin import event_streams, stream_keeper
from nats_admin.subscribers import NamedSubscriber
from support.servers.relayed import Secured, secured_nats
from support.waiting import eventually_true

TIMEOUT: Final = 30.0


class Outside:
    """The NATS servers with the state that an external consumer finds."""

    def __init__(self, secured: Secured, folder: Path, stack: AsyncExitStack) -> None:
        self.secured = secured
        self.folder = folder
        """Folder with the credentials, as `raybus up --data-dir` writes them."""
        self._stack = stack
        self._buses: dict[str, Bus] = {}

    @property
    def url(self) -> str:
        return self.secured.server.url

    async def bus(self, user: str) -> Bus:
        """Return the connection of a user."""
        if user not in self._buses:
            self._buses[user] = await self._stack.enter_async_context(
                connect(self.secured.settings(user))
            )
        await self._buses[user].session()
        return self._buses[user]

    async def provide(self) -> None:
        """Create the missing streams as soon as the server is reachable."""
        await _persist(self._provide)

    async def admit(self, *subscribers: NamedSubscriber) -> None:
        """Create the consumers of named subscribers."""
        await stream_keeper.ensure_consumers(
            await self.bus("provisioner-outside"),
            [each.build_consumer_config() for each in subscribers],
        )

    async def publish(self, events: Sequence[Event], *, again: str = "") -> None:
        """Publish events as the user of the service that publishes them, and wait until external
        consumers can read them; the event with the id `again` is stored twice.
        """
        await _persist(lambda: self._publish(events, again))
        await self.until_mirrored()

    async def until_mirrored(self) -> None:
        await eventually_true(self._is_mirrored, within=TIMEOUT, every=0.05, what="the mirror")

    async def _provide(self) -> None:
        own, outside = await self.bus("provisioner"), await self.bus("provisioner-outside")
        assert (
            await stream_keeper.ensure_streams(
                own, [streams.build_state_config(), event_streams.build_stream_config()]
            )
            == []
        )
        assert (
            await stream_keeper.ensure_streams(outside, [event_streams.build_mirror_config()]) == []
        )

    async def _publish(self, events: Sequence[Event], again: str) -> None:
        for event in events:
            is_job = event.data.kind in job_events.KINDS
            service = await self.bus("job-reconciler" if is_job else "service-reconciler")
            wire = (job_events.FAMILY if is_job else upgrade_events.FAMILY).encode(event)
            await service.publish(
                wire.subject,
                wire.payload,
                wire.headers,
                expected=None,
                message_id=f"{event.id}{again}",
            )

    async def _is_mirrored(self) -> bool:
        own, outside = await self.bus("provisioner"), await self.bus("subscriber")
        origin, mirror = (
            await own.stream(subjects.EVENTS_STREAM),
            await outside.stream(subjects.EVENTS_STREAM),
        )
        return origin.state.last_seq == mirror.state.last_seq


async def _persist(work: Callable[[], Awaitable[None]]) -> None:
    """Repeat an action until it succeeds while the server is not reachable; the action must be
    repeatable.
    """
    async with asyncio.timeout(TIMEOUT):
        while True:
            try:
                return await work()
            except errors.Retryable:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def outside(
    folder: Path, *, subscribers: tuple[NamedSubscriber, ...] = ()
) -> AsyncGenerator[Outside]:
    """Run a server without events; named subscribers have no consumer before `admit`."""
    async with secured_nats(folder, subscribers=subscribers) as secured, AsyncExitStack() as stack:
        running = Outside(secured, folder, stack)
        await running.provide()
        yield running
