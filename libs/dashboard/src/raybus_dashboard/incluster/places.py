"""Limits how many resources users occupy concurrently: per user, and in total. Does no I/O."""

import contextlib
from collections import Counter
from collections.abc import Generator

from common import errors


class Places:
    """Counts the occupied places of one kind (`what`, such as `pages`).

    `each` is the maximum of one user, `total` that of all users.
    """

    def __init__(self, what: str, *, each: int, total: int) -> None:
        self._what = what
        self._each = each
        self._total = total
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def occupy(self, user: str) -> Generator[None]:
        """Occupy a place for the duration of a block.

        Raise `Throttled` if the user, or all users together, have too many.
        """
        if self._taken[user] >= self._each:
            raise errors.Throttled(f"you have {self._each} {self._what} open: close one")
        if self._taken.total() >= self._total:
            raise errors.Throttled(
                f"all {self._total} {self._what} of this dashboard are taken: try again later"
            )
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            self._taken += Counter()
