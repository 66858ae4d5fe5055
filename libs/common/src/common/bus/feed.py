"""What a replica reads of the state stream: the port between the bus and a service's controller. Pure.

A feed calls its listener in this order: `loading`, then `changed`, `quarantined`, `removed` and `moved` for the last state of every
object in the partition, then `synced`, then the same as things happen. On a gap, a server restart, a lost
stream or an unknown epoch it calls `loading` again. Between `loading` and `synced` nothing may be decided: the state is
incomplete, and an object that is missing may well exist. An empty stream has no marker, so no reader decides on it.

An epoch is the watcher's installation and a random part: `<uid of the cluster>/<namespace>/<random>`. Two installations on
one stream would take each other's objects for their own, so the watcher of the second refuses to write, and readers refuse to
decide. An installation that could not be learnt is empty, and so is that of an older watcher: then nothing is refused.
"""

from typing import Final, Protocol

FOREIGN: Final = "the state stream is that of another raybus"


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

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        """Take the state of an object, as trimmed JSON; `kind` is Kubernetes' name, such as `RayCluster`.

        `trace` is the traceparent of the change, empty when the message has none.
        """

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        """Record that an object exists without a published state; `body` is JSON with as much of its metadata as is known."""

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        """Record that an object was gone at a resourceVersion."""

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        """Record that an object moved to a partition that this feed does not follow.

        None stands for a tree of a kind that the reader does not read, in whichever partition.
        """

    def synced(self, version: int) -> None:
        """Start deciding: all that a list at `version` held has been delivered."""


class Feed(Protocol):
    """The state stream as a replica follows it."""

    async def follow(self, partition: int, listener: Listener) -> None:
        """Deliver a partition to the listener until cancelled; never raise for what a retry can correct."""
