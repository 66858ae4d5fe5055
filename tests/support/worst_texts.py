"""The texts that cost a reader the most time: a head, a pump repeated as often as fits, and a tail.

A pattern that backtracks, and a loop that searches anew from each position, are slow on such a
text: the pump lets them begin at many places, the tail lets all of them fail. `find` tries all
combinations at a small size, where a quadratic reader already takes hundred times as long as a
linear one, and returns the slowest ones.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product
from typing import Final, NamedTuple

from common import errors

HEADS: Final = ("", '"', "{", "a=", "--token=", "https://", "applications: ", "name: ")
PUMPS: Final = (
    *("1", "1.", ".", "a", "a-", "-", "_", " ", "\n", "\t", "\r\n", "0", "é", "\x00", "\x1b["),
    *('"', '\\"', '["', "[", "{", "[]", "{a: ", "'loc': (", "a -> ", "a: ", "a:", "a,", "a="),
    "a b",
    *("$", "${", "$(", "%", "&a ", "*a ", "/", "../", ":", "://", "://a:", "@", "a@", "<!", "]("),
    "`",
    *("--token", "--a=", "token=", "password: ", "failed to pull ", "1h", "1e", "\x1b]", "\u202e"),
)
TAILS: Final = ("", "\n", "!", '"')
SMALL: Final = 1_000
"""Length of the tried texts in characters. A quadratic reader takes several ms for one."""
TOO_SLOW: Final = 0.5
"""Seconds of processor time for a small text, above which no other text is tried."""


class WorstText(NamedTuple):
    """The parts of a text that can have any length."""

    head: str
    pump: str
    tail: str

    def of_size(self, size: int) -> str:
        """Return the text with this number of characters, or a few less."""
        room = size - len(self.head) - len(self.tail)
        return self.head + self.pump * (room // len(self.pump)) + self.tail

    def __str__(self) -> str:
        return f"{self.head!r}, {self.pump!r} again and again, {self.tail!r}"


def candidates() -> Iterator[WorstText]:
    """Yield all combinations of head, pump and tail."""
    return (WorstText(*parts) for parts in product(HEADS, PUMPS, TAILS))


def seconds(
    read: Callable[[str], object], text: str, *, refusals: tuple[type[Exception], ...] = ()
) -> float:
    """Return the seconds of processor time that a reader takes for a text, which it may refuse."""
    began = time.process_time()
    with suppress(errors.RaybusError, *refusals):
        read(text)
    return time.process_time() - began


def find(
    read: Callable[[str], object],
    *,
    refusals: tuple[type[Exception], ...] = (),
    tried: tuple[WorstText, ...] = tuple(candidates()),
    size: int = SMALL,
    count: int = 2,
) -> list[WorstText]:
    """Return the texts that cost a reader the most time, the slowest one first."""
    found: list[tuple[float, WorstText]] = []
    for text in tried:
        found.append((seconds(read, text.of_size(size), refusals=refusals), text))
        if found[-1][0] > TOO_SLOW:
            break
    return [text for _, text in sorted(found, key=lambda each: -each[0])[:count]]
