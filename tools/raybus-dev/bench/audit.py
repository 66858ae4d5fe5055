"""Counts the requests that an operator sends to the API server, from the server's audit log.

The benchmark's own programs are recognised by their user agents; all other requests are the
operator's. Watches and Lease renewals are not counted, because their number does not depend on the
number of clusters.
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
    stage: str = ""
    user_agent: str = ""
    object_ref: _Reference = _Reference()


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that an operator sent to the API server, without watches and Lease renewals."""

    by_kind: dict[str, int]
    """Count by verb and resource, such as `create pods`; highest count first."""

    @property
    def requests(self) -> int:
        """Total number of requests."""
        return sum(self.by_kind.values())

    @property
    def status_writes(self) -> int:
        """Number of requests that wrote the status of a RayCluster."""
        return sum(
            count for kind, count in self.by_kind.items() if kind.endswith("rayclusters/status")
        )

    @property
    def changes(self) -> dict[str, int]:
        """The entries of `by_kind` that are writes: create, update, patch and delete."""
        return {
            kind: count for kind, count in self.by_kind.items() if kind.partition(" ")[0] in _WRITES
        }


class AuditLog:
    """Reads the audit log of one API server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def here(self) -> int:
        """Return the current size of the log in bytes, as a position for `since`."""
        return self._path.stat().st_size

    def since(self, mark: int) -> Asked:
        """Count the operator's requests after `mark`, a position that `here` returned."""
        counts = Counter(_get_kind(line) for line in self._read_lines(mark) if _is_counted(line))
        return Asked(by_kind=dict(counts.most_common()))

    def watches(self, agent: str) -> int:
        """Count the kinds of objects watched by clients whose user agent begins with `agent`.

        A watch that was reopened counts once.
        """
        lines = (
            line
            for line in self._read_lines(0)
            if line.verb == "watch" and line.user_agent.startswith(agent)
        )
        return len({(line.user_agent, line.object_ref.resource) for line in lines})

    def _read_lines(self, mark: int) -> Iterator[_Line]:
        decoder = msgspec.json.Decoder(_Line)
        with self._path.open("rb") as lines:
            lines.seek(mark)
            for line in lines:
                if line.endswith(b"\n"):  # the last one may be half written
                    yield decoder.decode(line)


def _is_counted(line: _Line) -> bool:
    agent = line.user_agent
    return (
        line.stage != "ResponseStarted"  # a second line follows at the end of the response
        and line.verb != "watch"
        and line.object_ref.resource != "leases"
        and not agent.startswith(_OF_THE_RIG)
    )


def _get_kind(line: _Line) -> str:
    what = line.object_ref
    return f"{line.verb} {what.resource}{'/' if what.subresource else ''}{what.subresource}".strip()
