"""Measures the memory that a block of code leaves allocated."""

import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def measured() -> Generator[Callable[[], int]]:
    """Yield a function that returns the bytes that were allocated since the block began and are
    still held.
    """
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
