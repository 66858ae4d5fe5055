"""The port through which a controller receives the state stream (no I/O).

A feed calls its listener in this order: `loading`, then `take` with the last message of every
object in the partition, then `synced`, then `take` for each change. After a gap, a server restart,
a lost stream or an unknown epoch it begins again with `loading`. Between `loading` and `synced` a
controller must not decide: the state is incomplete, and an object that is missing from it may
exist. An empty stream has no sync marker, so no reader decides on it.

An epoch is `<uid of the cluster>/<namespace>/<random>`; uid and namespace identify the raybus
installation. If two installations shared a stream, each would read the other's objects as its own.
So the watcher of the second installation refuses to publish, and readers refuse to decide. An epoch
without uid and namespace, because they could not be determined, is accepted by every installation.
"""

from typing import Final, Protocol

from common.bus.messages import ObjectMessage

FOREIGN: Final = "the state stream is that of another raybus"
NOT_READ: Final = -1
"""Partition number in the tombstone of an object that moved to a tree which is not read."""


def new_epoch(installation: str, random: str) -> str:
    """Return a new epoch (value in sync markers) of an installation; `random` makes it unique."""
    return f"{installation}/{random}" if installation else random


def explain_foreign_epoch(epoch: str, ours: str) -> str | None:
    """Return why an epoch belongs to another installation, with the remedy.

    None if the epoch belongs to installation `ours`, or if one of the two installations is unknown.
    """
    theirs = epoch.rpartition("/")[0]
    if not theirs or not ours or theirs == ours:
        return None
    return (
        f"{FOREIGN} (cluster and namespace {theirs}, we are {ours}): give each its own NATS by "
        "RAYBUS_NATS_URL, or delete "
        "the stream RAY_STATE if the other one is gone"
    )


class PartitionListener(Protocol):
    """Receives the state of one partition.

    Methods are called from one event loop and must not block.
    """

    def loading(self, reason: str) -> None:
        """Stop deciding until `synced` is called; `reason` says why."""

    def rewound(self) -> None:
        """Forget all objects: resourceVersions began again at a lower number. A reload follows."""

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        """Take the last message of an object.

        `trace` is the traceparent of its change, or empty. If a new root owner moves an object to
        another subject, a tombstone is published under the old one. It is not delivered if the
        object stays in this partition. If the new tree is of a kind that is not read, the
        tombstone's `moved_to.partition` is `NOT_READ`.
        """

    def synced(self, version: int) -> None:
        """Start deciding: all objects of the API server's list at `version` have been delivered."""


class Feed(Protocol):
    """The state stream, as one replica of a service reads it."""

    async def follow(self, partition: int, listener: PartitionListener) -> None:
        """Deliver a partition to the listener until cancelled.

        Errors that a retry can correct are not raised.
        """
