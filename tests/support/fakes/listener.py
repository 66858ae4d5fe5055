"""A listener that records what a replica would know, and when it could take decisions."""

from typing import Any

import msgspec

from common.api.meta import version_number
from common.bus.messages import ObjectMessage, ObjectState, Quarantined, Tombstone
from common.bus.subjects import TreeLocation

Key = tuple[str, str, str]


class Recorder:
    """Implements `common.bus.feed.Listener`; a reload replaces everything recorded before."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        """Last delivered state of each object, by kind, namespace and name."""
        self.is_synced = False
        self.rewinds = 0
        self.reasons: list[str] = []
        """Reason of each load."""
        self.syncs: list[int] = []
        """The version of each completed load."""
        self.quarantine: dict[Key, str] = {}
        """By object: the reason why its state is not known."""
        self.removals: list[tuple[Key, int]] = []
        self.moves: list[tuple[Key, TreeLocation | None]] = []
        """Objects that left the partition, with the place where each went."""
        self.traces: dict[Key, str] = {}
        """Newest trace of each object."""

    def loading(self, reason: str) -> None:
        self.is_synced = False
        self.reasons.append(reason)
        self.objects = {}

    def rewound(self) -> None:
        assert not self.is_synced, "what is forgotten would be taken for deleted"
        self.rewinds += 1

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        key = (message.kind, message.namespace, message.name)
        match message:
            case ObjectState():
                self.objects[key] = msgspec.json.decode(message.body, type=dict[str, Any])
                self.traces[key] = trace
                self.quarantine.pop(key, None)
            case Quarantined():
                self.quarantine[key] = message.why
            case Tombstone(moved_to=None):
                self.removals.append((key, version_number(message.version)))
                self.traces[key] = trace
                self.objects.pop(key, None)
                self.quarantine.pop(key, None)
            case Tombstone(moved_to=to):
                self.moves.append((key, to))
                self.objects.pop(key, None)

    def synced(self, version: int) -> None:
        self.is_synced = True
        self.syncs.append(version)

    def names(self, kind: str) -> set[str]:
        """Return the names of all known objects of a kind."""
        return {name for of_kind, _, name in self.objects if of_kind == kind}

    def knows(self, kind: str, name: str) -> bool:
        """Return whether decisions may be taken and an object is known."""
        return self.is_synced and name in self.names(kind)
