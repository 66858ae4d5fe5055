"""What a replica is told by the state stream: the port between the bus and a service's shell.

A feed calls its listener in this order, for ever: `loading`, then `changed`, `quarantined`, `removed` and `moved` for the last state of every
object in the partitions, then `synced`, then the same as things happen. On a gap, a server restart, a lost
stream or an unknown epoch it calls `loading` again. Between `loading` and `synced` nothing may be decided: the state is
incomplete, and an object that is missing may well exist.
"""

from typing import Protocol

import msgspec


class Synced(msgspec.Struct, frozen=True, kw_only=True):
    """The watcher's word that a partition holds everything that a list at `version` held.

    `epoch` changes whenever the watcher had to list anew (start, lost stream); a reader that meets a new one reloads. What a watcher of an
    earlier release does not say has the value that is right for it.
    """

    epoch: str
    version: int
    partitions: int = 64
    """Into how many the watcher divides; a reader that divides otherwise would look for objects where they are not."""
    renewed: float = 0.0
    """Every so many seconds the watcher says so again while the stream holds all that the API server tells; 0: it does not."""
    history: str = ""
    """Changes when versions began again at a lower one, as they do when etcd is restored from a backup; then newer is no longer greater."""
    forms: dict[str, str] = {}
    """The form in which the watcher publishes each kind (`common.bus.forms`); empty: it is of a build that did not number them."""


class Listener(Protocol):
    """Who is told; called from one event loop, must return at once."""

    def loading(self, why: str) -> None:
        """Stop deciding: what follows is a reload, for the reason given."""
        ...

    def rewound(self) -> None:
        """Forget all, whatever its version: versions began again at a lower one. A reload follows."""
        ...

    def changed(self, kind: str, body: bytes, *, trace: str) -> None:
        """Take the state of an object, as trimmed JSON; `kind` is Kubernetes' own word, such as `RayCluster`.

        `trace` is the traceparent of the change, empty when the message has none.
        """
        ...

    def quarantined(self, kind: str, namespace: str, name: str, *, body: bytes, why: str) -> None:
        """Take note that an object exists whose state is not published; `body` is JSON with as much of its metadata as is known."""
        ...

    def removed(self, kind: str, namespace: str, name: str, *, version: int, trace: str) -> None:
        """Take note that an object was gone at a resourceVersion."""
        ...

    def moved(self, kind: str, namespace: str, name: str, *, to: int | None) -> None:
        """Take note that an object left for a partition that this feed does not follow.

        None stands for a tree of a kind that the reader does not read, in whichever partition.
        """
        ...

    def synced(self, version: int) -> None:
        """Start deciding: all that a list at `version` held has been told."""
        ...


class Feed(Protocol):
    """The state stream as a replica follows it."""

    async def follow(self, partitions: frozenset[int], listener: Listener) -> None:
        """Tell the listener about some partitions until cancelled; never raise for what a retry can mend."""
        ...
