"""A listener that remembers: what a replica would know, and when it was allowed to decide."""

from typing import Any

import msgspec

Key = tuple[str, str, str]


class Recorder:
    """Implements `common.bus.feed.Listener`; a reload replaces all that was known before."""

    def __init__(self) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        """Kind, namespace and name → the last delivered state."""
        self.is_synced = False
        self.rewinds = 0
        self.reasons: list[str] = []
        """Why each load began."""
        self.syncs: list[int] = []
        """The version of each completed load."""
        self.quarantine: dict[Key, str] = {}
        """Why the state of an object is not known."""
        self.removals: list[tuple[Key, int]] = []
        self.moves: list[tuple[Key, int | None]] = []
        """Objects that left, with the partitions that they went to; None for trees that are not read."""
        self.traces: dict[Key, str] = {}
        """The newest trace of each object."""

    def loading(self, why: str) -> None:
        self.is_synced = False
        self.reasons.append(why)
        self.objects = {}

    def rewound(self) -> None:
        assert not self.is_synced, "what is forgotten would be taken for deleted"
        self.rewinds += 1

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        found = msgspec.json.decode(body, type=dict[str, Any])
        metadata = found["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        self.objects[key] = found
        self.quarantine.pop(key, None)
        self.traces[key] = trace

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        self.quarantine[kind, namespace, name] = why

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        self.removals.append(((kind, namespace, name), version))
        self.traces[kind, namespace, name] = trace
        self.objects.pop((kind, namespace, name), None)
        self.quarantine.pop((kind, namespace, name), None)

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        self.moves.append(((kind, namespace, name), to))
        self.objects.pop((kind, namespace, name), None)

    def synced(self, version: int) -> None:
        self.is_synced = True
        self.syncs.append(version)

    def names(self, kind: str) -> set[str]:
        """Return the names of all known objects of a kind."""
        return {name for of_kind, _, name in self.objects if of_kind == kind}

    def knows(self, kind: str, name: str) -> bool:
        """Return whether decisions may be taken, and an object is known."""
        return self.is_synced and name in self.names(kind)
