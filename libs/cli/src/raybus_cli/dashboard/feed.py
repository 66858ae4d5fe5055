"""The events that one page receives: at first all, then the changes; pure.

sources   the age of the shown state, and the errors of its sources
rows      the changed rows, and the names of the removed ones; `all` with the first
detail    the selected RayService
beat      nothing has changed
"""

from typing import Final

import msgspec

from raybus_cli.dashboard.board import Board, Sources
from raybus_cli.dashboard.model import Detail, Row

BEAT: Final = b"event: beat\ndata: {}\n\n"
"""The heartbeat of the connection."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in the list."""

    all: bool
    rows: list[Row]
    gone: list[str]


class Feed:
    """The events that a page has received."""

    def __init__(self, board: Board, chosen: str | None) -> None:
        self._board = board
        self._chosen = chosen
        self._sources: Sources | None = None
        self._rows: dict[str, Row] | None = None
        self._detail: Detail | None = None

    def changes(self, *, has_detail: bool = True) -> bytes:
        """Return what the page has not received yet, as Server-Sent Events; empty without a change."""
        return self._of_sources() + self._of_rows() + (self._of_detail() if has_detail else b"")

    def _of_sources(self) -> bytes:
        if self._board.sources == self._sources:
            return b""
        self._sources = self._board.sources
        return event("sources", self._sources)

    def _of_rows(self) -> bytes:
        if not self._board.is_listed or self._board.rows == self._rows:
            return b""
        before, self._rows = self._rows, dict(self._board.rows)
        known = before or {}
        changed = [row for key, row in self._rows.items() if known.get(key) != row]
        gone = [key for key in known if key not in self._rows]
        return event("rows", Rows(all=before is None, rows=changed, gone=gone))

    def _of_detail(self) -> bytes:
        found = self._board.details.get(self._chosen or "")
        if found is None or found == self._detail:
            return b""
        self._detail = found
        return event("detail", found)


def event(name: str, data: msgspec.Struct) -> bytes:
    """Write an event; JSON has no line breaks outside of its strings, and escapes them inside."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
