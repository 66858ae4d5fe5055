"""What a pod costs in a reconciler's cache: the pods of the run go the way that the bus takes them, into a cache of our own."""

import gc
import tracemalloc

import msgspec

from common.api.core import Pod
from common.kube.resources import POD
from common.runtime.cache import Cache
from watcher import published


class _Listed(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw]


def kib_each(listed: bytes) -> float:
    """Return the KiB that each pod of a list takes; 0 when there is none."""
    messages = [
        published.trim(POD, bytes(raw)) for raw in msgspec.json.decode(listed, type=_Listed).items
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
