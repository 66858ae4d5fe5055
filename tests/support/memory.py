"""What a block of code leaves in memory."""

import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def measured() -> Generator[Callable[[], int]]:
    """Give what returns the bytes that were allocated since the block began and are still held."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
