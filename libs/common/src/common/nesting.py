"""Depth of a JSON text, and what is left of one that nests too deep: pure, without recursion, in time linear in its length.

A decoder recurses into each level, so a few kilobytes of brackets exhaust its stack: `RecursionError` ends the process unless the text
is checked before. No kind that raybus reads nests 30 levels deep; `LIMIT` leaves room for what a later Kubernetes adds.
"""

import re
from itertools import accumulate
from typing import Final

LIMIT: Final = 100
"""Levels."""
CUT: Final = b'"raybus: nested too deep"'
"""Stands in the output of `pruned` for a value below the limit."""

_USUAL: Final = 20
"""Levels that are counted the fast way."""
_STEP: Final = {ord("["): 1, ord("]"): -1}
_BRACKETS: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_UP_TO_A_BRACKET: Final = re.compile(rb'[^\[\]{}"]*(?:"(?:[^"\\]|\\.)*"[^\[\]{}"]*)*([\[\]{}])', re.DOTALL)


def is_too_deep(text: bytes, limit: int = LIMIT) -> bool:
    """Return whether a JSON text nests more than `limit` levels."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    outside = b"".join(text.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2])  # of strings
    brackets = outside.translate(_BRACKETS, _ALL_BUT_BRACKETS)
    usual = min(limit, _USUAL)
    for _ in range(usual):
        brackets = brackets.replace(b"[]", b"")  # takes away the innermost level
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > limit - usual


def pruned(text: bytes, limit: int = LIMIT) -> bytes:
    """Return a JSON text with `CUT` for every value that begins below `limit` levels; the rest is unchanged."""
    kept: list[bytes] = []
    depth = begin = 0
    for found in _UP_TO_A_BRACKET.finditer(text):
        if found[1] in b"[{":
            depth += 1
            if depth == limit + 1:
                kept += [text[begin : found.end() - 1], CUT]
        else:
            depth -= 1
            if depth == limit:
                begin = found.end()
    return b"".join([*kept, text[begin:]])
