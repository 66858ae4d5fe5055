"""Limits how many resources users occupy concurrently: per user, and in total. Does no I/O."""

import contextlib
from collections import Counter
from collections.abc import Generator

from common import errors


class UserLimit:
    """Limits how many resources of one kind (`what`, such as `pages`) users occupy at once.

    `max_per_user` is the limit of one user, `max_total` that of all users.
    """

    def __init__(self, what: str, *, max_per_user: int, max_total: int) -> None:
        self._what = what
        self._max_per_user = max_per_user
        self._max_total = max_total
        self._taken: Counter[str] = Counter()

    @contextlib.contextmanager
    def occupy(self, user: str) -> Generator[None]:
        """Occupy one resource within a `with` block.

        Raise `Throttled` if the user, or all users together, have too many.
        """
        if self._taken[user] >= self._max_per_user:
            raise errors.Throttled(f"you have {self._max_per_user} {self._what} open: close one")
        if self._taken.total() >= self._max_total:
            raise errors.Throttled(
                f"all {self._max_total} {self._what} of this dashboard are taken: try again later"
            )
        self._taken[user] += 1
        try:
            yield
        finally:
            self._taken[user] -= 1
            self._taken += Counter()
