"""What one page is sent: at first all, then what has changed since; pure.

standing  how far what is shown can be trusted
rows      the rows that changed, and the names of those that are gone; `all` with the first
detail    the RayService that the page has chosen
beat      nothing has changed
"""

from typing import Final

import msgspec

from raybus_cli.dashboard.board import Board, Standing
from raybus_cli.dashboard.model import Detail, Row

BEAT: Final = b"event: beat\ndata: {}\n\n"
"""By which both sides know that the other is there."""


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in the list."""

    all: bool
    rows: list[Row]
    gone: list[str]


class Feed:
    """Remembers what a page has been sent."""

    def __init__(self, board: Board, chosen: str | None) -> None:
        self._board = board
        self._chosen = chosen
        self._standing: Standing | None = None
        self._rows: dict[str, Row] | None = None
        self._detail: Detail | None = None

    def news(self) -> bytes:
        """Return what the page does not know yet, as Server-Sent Events; empty when it knows all."""
        return self._of_standing() + self._of_rows() + self._of_detail()

    def _of_standing(self) -> bytes:
        if self._board.standing == self._standing:
            return b""
        self._standing = self._board.standing
        return event("standing", self._standing)

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
