"""Which objects of which trees are to be moved: a few of each tree in turn, so that a large tree, or one that moves all the time, delays no other."""

import asyncio
from collections.abc import Iterable
from typing import Final

from watcher.addressing import Ref

AT_ONCE: Final = 32
"""Objects of one tree before the next tree has its turn."""


class Moves:
    """Trees that change their place."""

    def __init__(self) -> None:
        self._trees: dict[Ref, dict[Ref, None]] = {}
        self._arrived = asyncio.Event()

    def add(self, tree: Ref, below: Iterable[Ref]) -> None:
        """Have some objects of a tree moved; one that waits already waits once."""
        self._trees.setdefault(tree, {}).update(dict.fromkeys(below))
        self._arrived.set()

    def is_done(self, tree: Ref) -> bool:
        """Return whether nothing of a tree waits."""
        return tree not in self._trees

    async def take(self) -> tuple[Ref, list[Ref]]:
        """Wait for a tree; return it with the objects that are moved now."""
        while not self._trees:
            self._arrived.clear()
            await self._arrived.wait()
        tree = next(iter(self._trees))
        waiting = self._trees.pop(tree)
        taken = [ref for ref, _ in zip(waiting, range(AT_ONCE), strict=False)]
        for ref in taken:
            del waiting[ref]
        if waiting:
            self._trees[tree] = waiting
        return tree, taken
