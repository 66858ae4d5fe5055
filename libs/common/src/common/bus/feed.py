"""What a replica reads of the state stream: the port between the bus and a service's controller. Pure.

A feed calls its listener in this order: `loading`, then `take` with the last message about every object in the partition, then
`synced`, then `take` as things happen. On a gap, a server restart, a lost stream or an unknown epoch it calls `loading` again.
Between `loading` and `synced` nothing may be decided: the state is incomplete, and an object that is missing may well exist. An
empty stream has no marker, so no reader decides on it.

An epoch is the watcher's installation and a random part: `<uid of the cluster>/<namespace>/<random>`. Two installations on
one stream would take each other's objects for their own, so the watcher of the second refuses to write, and readers refuse to
decide. An installation that could not be learnt is empty, and so is that of an older watcher: then nothing is refused.
"""

from typing import Final, Protocol

from common.bus.messages import ObjectMessage

FOREIGN: Final = "the state stream is that of another raybus"
NOT_READ: Final = -1
"""Stands for the partition of an object that moved to a tree of a kind that the reader does not read, in whichever partition."""


def new_epoch(installation: str, random: str) -> str:
    """Return a new epoch."""
    return f"{installation}/{random}" if installation else random


def foreign(epoch: str, ours: str) -> str | None:
    """Return what is wrong with an epoch that is not of our installation, and the remedy; None when it is ours or unknown."""
    theirs = epoch.rpartition("/")[0]
    if not theirs or not ours or theirs == ours:
        return None
    return (
        f"{FOREIGN} (cluster and namespace {theirs}, we are {ours}): give each its own NATS by RAYBUS_NATS_URL, or delete "
        "the stream RAY_STATE if the other one is gone"
    )


class Listener(Protocol):
    """Receives the state of a partition; called from one event loop, must return at once."""

    def loading(self, why: str) -> None:
        """Stop deciding: what follows is a reload, for the reason given."""

    def rewound(self) -> None:
        """Forget all, whatever its version: versions began again at a lower one. A reload follows."""

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        """Take the last message about an object; `trace` is the traceparent of its change, empty when the message has none.

        A move within the partition is not delivered, since the new subject delivers the state. In one to a tree that the reader does not
        read the partition is `NOT_READ`.
        """

    def synced(self, version: int) -> None:
        """Start deciding: all that a list at `version` held has been delivered."""


class Feed(Protocol):
    """The state stream as a replica follows it."""

    async def follow(self, partition: int, listener: Listener) -> None:
        """Deliver a partition to the listener until cancelled; never raise for what a retry can correct."""
