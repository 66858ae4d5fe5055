"""Progress of a reader's load: pure, so that "may I decide?" has a table of tests.

A load is complete when all that the stream held when it began has been taken, and every followed partition has the
watcher's marker with one and the same epoch. An empty stream has no markers, so no reader decides on it.
"""

from common.bus.feed import Synced


class Progress:
    """One load of some partitions, from `loading` to `synced` and on until the epoch changes."""

    def __init__(self, partitions: frozenset[int]) -> None:
        self._partitions = partitions
        self._is_read = False
        self._markers: dict[int, Synced] = {}
        self._epoch: str | None = None

    @property
    def is_complete(self) -> bool:
        """Return whether `complete` has returned a version."""
        return self._epoch is not None

    def read(self) -> None:
        """Record that all that the stream held at the start has been taken."""
        self._is_read = True

    def marked(self, partition: int, marker: Synced) -> str | None:
        """Take a marker; return why everything must be loaded again, if it must."""
        if partition not in self._partitions:
            return None
        self._markers[partition] = marker
        if self._epoch is not None and marker.epoch != self._epoch:
            return f"the watcher began epoch {marker.epoch}"
        return None

    def complete(self) -> int | None:
        """Return the version of the list that the load holds, once; None while something is missing, and afterwards."""
        if self._epoch is not None or not self._is_read or len(self._markers) < len(self._partitions):
            return None
        epochs = {marker.epoch for marker in self._markers.values()}
        if len(epochs) != 1:
            return None
        self._epoch = epochs.pop()
        return min(marker.version for marker in self._markers.values())

    @property
    def history(self) -> str:
        """Return which history the versions of a complete load are of."""
        return next((marker.history for marker in self._markers.values()), "")

    def missing(self) -> str:
        """Return what the load still waits for."""
        if not self._is_read:
            return "the stream is still being read"
        absent = len(self._partitions) - len(self._markers)
        if absent:
            return f"the watcher has not yet published {absent} of {len(self._partitions)} partitions"
        return "the watcher is publishing a new epoch"
