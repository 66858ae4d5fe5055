"""Measures the memory that a pod takes in a reconciler's cache.

The pods of a benchmark run are trimmed as the watcher trims them, and put into a new cache.
"""

import gc
import tracemalloc

import msgspec

from common.api.core import Pod
from common.kube.resources import POD
from common.runtime.cache import Cache
from watcher import publish_filter


class _Listed(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


def kib_each(listed: bytes) -> float:
    """Return the KiB of memory per cached pod. `listed` is a pod list in JSON; 0 if it is empty."""
    messages = [
        publish_filter.trim(POD, bytes(raw))
        for raw in msgspec.json.decode(listed, type=_Listed).items
    ]
    cache = Cache()
    gc.collect()
    tracemalloc.start()
    try:
        for message in messages:
            cache.put(msgspec.json.decode(message, type=Pod))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return taken / 1024 / len(cache) if len(cache) else 0.0
