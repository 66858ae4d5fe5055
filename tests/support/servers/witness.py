"""Reads every message of the state stream, and reports what must never happen: a version that
decreases, an object that is lost.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from secrets import token_hex

import msgspec

from common import errors
from common.api.meta import ObjectMeta, version_number
from common.bus import messages, subjects
from common.bus.consumer import StreamSource, consume
from common.bus.messages import Message, ObjectState, Synced, Tombstone
from common.bus.nats import Bus, StoredMessage
from common.bus.subjects import MARKED_TREES, PARTITIONS
from common.kube.client import KubeClient
from common.kube.resources import Resource
from support.waiting import eventually_true

Shown = frozenset[tuple[str, str, str]]
"""Kind, name and version of each object."""


MARKERS = PARTITIONS * len(MARKED_TREES)
"""Number of sync markers in a complete stream."""


class _Item(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class _List(msgspec.Struct, frozen=True):
    items: list[_Item]


class Witness:
    """Reader that records the messages published under each subject, and the faults in them."""

    def __init__(self) -> None:
        self.last: dict[str, Message] = {}
        self.regressions: list[str] = []
        self.interruptions: list[str] = []
        """Reasons for which the reading had to be restarted."""
        self.arrived_at: dict[tuple[str, str], float] = {}
        """By name and version: the time at which the version was first received."""
        self._arrived = asyncio.Event()

    def take(self, stored: StoredMessage) -> None:
        message = messages.decode(stored.subject, stored.headers, stored.payload)
        before = self.last.get(stored.subject)
        if isinstance(message, ObjectState | Tombstone):
            if isinstance(before, ObjectState | Tombstone) and version_number(
                message.version
            ) < version_number(before.version):
                self.regressions.append(
                    f"{stored.subject}: {message.version} after {before.version}"
                )
            self.arrived_at.setdefault(
                (message.name, message.version), asyncio.get_running_loop().time()
            )
        self.last[stored.subject] = message
        self._arrived.set()

    def epoch(self) -> str | None:
        """Return the epoch of each marker: every partition has one for each kind of tree."""
        epochs = {message.epoch for message in self.last.values() if isinstance(message, Synced)}
        marked = sum(isinstance(message, Synced) for message in self.last.values())
        return epochs.pop() if len(epochs) == 1 and marked == MARKERS else None

    def shown(self) -> Shown:
        """Return all objects in the stream."""
        states = [message for message in self.last.values() if isinstance(message, ObjectState)]
        return frozenset((state.kind, state.name, state.version) for state in states)

    async def until_received(self, name: str, version: str, *, within: float) -> float:
        """Wait for a version of an object; return the time at which it was received."""
        async with asyncio.timeout(within):
            while (name, version) not in self.arrived_at:
                self._arrived.clear()
                await self._arrived.wait()
        return self.arrived_at[name, version]


@asynccontextmanager
async def witnessed(bus: Bus) -> AsyncGenerator[Witness]:
    """Read for the duration of a block; if the server stops answering, resume with the last message
    of each subject.
    """
    witness = Witness()
    begun = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_read(bus, witness, begun))
        await begun.wait()
        try:
            yield witness
        finally:
            reading.cancel()


async def _read(bus: Bus, witness: Witness, begun: asyncio.Event) -> None:
    while True:
        source = StreamSource(
            stream=subjects.STATE_STREAM, filter=subjects.ALL_STATE, name=f"witness-{token_hex(6)}"
        )
        try:
            async with consume(bus, source, take=witness.take, read=begun.set) as reading:
                witness.interruptions.append(await reading.until_broken())
        except errors.Retryable as problem:
            witness.interruptions.append(str(problem))


async def agree(
    witness: Witness,
    kube: KubeClient,
    namespace: str,
    resources: dict[Resource, str],
    *,
    within: float = 60.0,
) -> None:
    """Wait until the stream contains the same objects as a list."""

    async def is_equal() -> bool:
        return await listed(kube, namespace, resources) == witness.shown()

    await eventually_true(is_equal, within=within, every=0.2, what="a stream that equals a list")


async def listed(kube: KubeClient, namespace: str, resources: dict[Resource, str]) -> Shown:
    """Return the objects of some kinds that the API server lists, by their selectors."""
    found: set[tuple[str, str, str]] = set()
    for resource, selector in resources.items():
        answer = msgspec.json.decode(
            await kube.list(resource, namespace, label_selector=selector), type=_List
        )
        found |= {
            (resource.kind, item.metadata.name, item.metadata.resource_version)
            for item in answer.items
        }
    return frozenset(found)
