"""What a contender asked of the API server, by the API server's own audit log.

The user agent separates the programs of the rig from the contender; whatever else has asked is the contender.
Watches are opened once and do not grow with the clusters; Leases are renewed by the clock: both are left out.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

_OF_THE_RIG: Final = ("bench", "kube-", "kwok", "localcluster", "Python-urllib")
_WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    user_agent: str = ""
    object_ref: _Reference = _Reference()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A contender's requests in some time, without watches and Leases."""

    by_kind: dict[str, int]
    """Such as `create pods` or `update rayclusters/status`; the most frequent first."""

    @property
    def requests(self) -> int:
        """Return how many there were."""
        return sum(self.by_kind.values())

    @property
    def status_writes(self) -> int:
        """Return how many of them wrote a RayCluster's status."""
        return sum(
            count for kind, count in self.by_kind.items() if kind.endswith("rayclusters/status")
        )

    @property
    def changes(self) -> dict[str, int]:
        """Return those that write."""
        return {
            kind: count for kind, count in self.by_kind.items() if kind.partition(" ")[0] in _WRITES
        }


class AuditLog:
    """The log of one API server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def here(self) -> int:
        """Return a mark to count from."""
        return self._path.stat().st_size

    def since(self, mark: int) -> Asked:
        """Count what the contender has asked since a mark."""
        found = Counter(_kind(line) for line in self._lines(mark) if _counts(line))
        return Asked(by_kind=dict(found.most_common()))

    def watches(self, agent: str) -> int:
        """Count the collections that are watched by clients with a user agent that begins so; one that was reopened counts once."""
        found = (
            line
            for line in self._lines(0)
            if line.verb == "watch" and line.user_agent.startswith(agent)
        )
        return len({(line.user_agent, line.object_ref.resource) for line in found})

    def _lines(self, mark: int) -> Iterator[_Line]:
        decoder = msgspec.json.Decoder(_Line)
        with self._path.open("rb") as lines:
            lines.seek(mark)
            for line in lines:
                if line.endswith(b"\n"):  # the last one may be half written
                    yield decoder.decode(line)


def _counts(line: _Line) -> bool:
    agent = line.user_agent
    return (
        line.verb != "watch"
        and line.object_ref.resource != "leases"
        and not agent.startswith(_OF_THE_RIG)
    )


def _kind(line: _Line) -> str:
    what = line.object_ref
    return f"{line.verb} {what.resource}{'/' if what.subresource else ''}{what.subresource}".strip()
