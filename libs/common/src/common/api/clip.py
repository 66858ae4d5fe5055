"""Texts that are too long for the object that they stand in: its beginning and end stay, and what is left out is counted.

etcd takes objects of 1.5 MiB, the schema of a condition messages of 32,768 characters.
"""

from typing import Final

LONGEST_MESSAGE: Final = 8192
"""Characters of a condition's message, or of a reason that stands in a status."""
MARK: Final = " characters left out; the Ray dashboard has them] … "
_MARK_ROOM: Final = 80


def clipped(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; the end gets more room, since the last lines of a traceback matter most."""
    if len(text) <= limit:
        return text
    room = limit - _MARK_ROOM
    if room <= 0:
        return text[:limit]
    head, tail = room // 3, room - room // 3
    return f"{text[:head]} … [{len(text) - room}{MARK}{text[-tail:]}"
