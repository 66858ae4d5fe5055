"""Readers know exactly the existing objects, whichever watches were down while objects changed
their labels or were deleted.
"""

from random import Random
from typing import Any

import msgspec

from common.api.core import Service
from common.api.meta import version_number
from common.bus import subjects
from common.bus.messages import Message, ObjectState, Quarantined, Synced, Tombstone
from common.kube import resources
from common.runtime.cache import Cache
from watcher.relay import Relay, RelaySource

NAMES = ("x", "y")
SELECTED = ("a", "b")
"""The label value that each of the two watches selects."""


class Change(msgspec.Struct, frozen=True):
    """A change of an object at the API server; None if the object does not exist."""

    version: int
    name: str
    before: str | None
    after: str | None

    def raw(self, label: str | None) -> bytes:
        """Return the object as a watch event contains it."""
        return _an_object(self.name, self.version, label)


class World:
    """An API server, the watcher's relay with two watches of one kind, and a reader that also
    writes.
    """

    def __init__(self) -> None:
        self.changes = [Change(1, "nobody", None, None)]
        self.objects: dict[str, tuple[str, int]] = {}
        """By name: the label value and the version of each object."""
        self.cache = Cache()
        self.stream: dict[str, Message] = {}
        self.begin()

    def begin(self) -> None:
        """Let another watcher take over, which has not listed anything yet."""
        self.relay = Relay(self, _refuse)  # pyright: ignore[reportArgumentType]  (what it needs of an outbox)
        self.sources = [RelaySource(self.relay, each, resources.SERVICE) for each in range(2)]
        self.positions: list[int | None] = [None, None]
        """The number of changes that each watch has reported; None before its first list."""

    # --- what the relay needs of an outbox -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return 0

    def list_stored(self) -> dict[str, str]:
        return {
            where: message.kind
            for where, message in self.stream.items()
            if isinstance(message, ObjectState)
        }

    def put(self, subject: str, message: Message, *, received: int = 0, wait: float = 0.0) -> None:
        """Store a message, and deliver it to the reader."""
        del received, wait
        self.stream[subject] = message
        where = subjects.parse_state(subject)
        assert where is not None
        partition = where.place.partition
        match message:
            case ObjectState():
                self.cache.put(msgspec.json.decode(message.body, type=Service), partition=partition)
            case Tombstone(moved_to=None):
                version = version_number(message.version)
                self.cache.remove(Service, "ns", message.name, version=version, partition=partition)
            case Tombstone() | Quarantined() | Synced():
                raise AssertionError(f"unexpected: {message}")

    # --- what happens --------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        return self.changes[-1].version

    def change(self, name: str, after: str | None) -> None:
        """Let another party create, change or delete an object."""
        before = self.objects.get(name, (None, 0))[0]
        if before is None and after is None:
            return
        self.changes.append(Change(self.version + 1, name, before, after))
        if after is None:
            del self.objects[name]
        else:
            self.objects[name] = (after, self.version)

    def rewrite(self, name: str) -> None:
        """Let the reader change an object that it knows, except for the label by which the watches
        select.
        """
        if (label := self._writable(name)) is not None:
            self.change(name, label)
            self.cache.put(msgspec.json.decode(_an_object(name, self.version, label), type=Service))

    def delete(self, name: str) -> None:
        """Let the reader delete an object that it knows."""
        if self._writable(name) is not None:
            version = self.objects[name][1]
            self.change(name, None)
            self.cache.remove(Service, "ns", name, version=version)

    def _writable(self, name: str) -> str | None:
        """Return the label of an object whose current version the reader knows; None if another
        party was faster.
        """
        known = self.cache.get(Service, "ns", name)
        label, version = self.objects.get(name, (None, 0))
        return label if known is not None and known.metadata.version == version else None

    def list(self, watch: int) -> None:
        """Let a watch list its selection again."""
        shown = {
            name: version
            for name, (label, version) in self.objects.items()
            if label == SELECTED[watch]
        }
        for name, version in shown.items():
            self.sources[watch].present(_an_object(name, version, SELECTED[watch]))
        self.sources[watch].listed({("ns", name) for name in shown}, str(self.version))
        is_first = self.positions[watch] is None
        self.positions[watch] = len(self.changes)
        if is_first and None not in self.positions:
            self.relay.everything_is_listed()

    def follow(self, watch: int) -> None:
        """Let a watch report the next change, or a bookmark if there is none."""
        position, mine = self.positions[watch], SELECTED[watch]
        if position is None:
            return
        if position == len(self.changes):
            self.sources[watch].reached(str(self.version))
            return
        change = self.changes[position]
        self.positions[watch] = position + 1
        if change.after == mine:
            self.sources[watch].present(change.raw(change.after))
        elif change.before == mine:
            self.sources[watch].gone(change.raw(change.before))

    def settle(self) -> None:
        """Let both watches report everything."""
        for watch in range(2):
            if self.positions[watch] is None:
                self.list(watch)
        for _ in range(len(self.changes) + 1):
            self.follow(0)
            self.follow(1)


def _an_object(name: str, version: int, label: str | None) -> bytes:
    metadata: dict[str, Any] = {"name": name, "namespace": "ns", "uid": "u"}
    return msgspec.json.encode(
        {"metadata": {**metadata, "resourceVersion": str(version), "labels": {"in": label or ""}}}
    )


def _refuse(why: str) -> None:
    raise AssertionError(why)


def _step(world: World, draw: Random) -> None:
    """Let one random event happen."""
    name, watch = draw.choice(NAMES), draw.randrange(2)
    match draw.randrange(12):
        case 0:
            world.begin()
        case 1 | 2 | 3:
            world.list(watch)
        case 4 | 5 | 6:
            world.follow(watch)
        case 7 | 8:
            world.rewrite(name)
        case 9:
            world.delete(name)
        case _:
            world.change(name, draw.choice([*SELECTED, "neither", None]))


async def test_a_reader_ends_with_what_there_is() -> None:
    for seed in range(4000):
        world, draw = World(), Random(seed)
        for _ in range(draw.randrange(4, 24)):
            _step(world, draw)
        world.settle()

        known = {
            each.metadata.name: each.metadata.version for each in world.cache.list_all(Service)
        }
        there = {name: at for name, (label, at) in world.objects.items() if label in SELECTED}
        assert known == there, f"seed {seed}"
