"""Reads of single objects that NATS does not deliver to this service.

Examples are a user's route before it refers to its RayService, and a Gateway that many services
share. Such objects are read from the API server at a limited rate. A cached object is used only if
NATS delivered it. An object that was cached from an answer of the API server would become stale,
because no message updates it.
"""

from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from common import errors
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import Resource
from common.runtime.cache import BoundedDict, Cache, Object

T = TypeVar("T", bound=Object)
UNSEEN: Final = 1.0
"""Seconds until an object that was not found is read again."""


class Lookup:
    """Finds single objects in the cache or at the API server."""

    def __init__(self, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._read = BoundedDict[tuple[str, str, str], tuple[float, bytes | None]](
            size=lambda _, read: len(read[1] or b"")
        )
        """Time and answer of the last read of each object; the answer is None if the object was
        missing or not readable.
        """

    async def find(
        self, resource: Resource, view: type[T], place: tuple[str, str], *, max_age: float
    ) -> T | None:
        """Return an object as NATS delivered it, or as read at most `max_age` seconds ago.

        `place` is its namespace and name; the namespace is "" for a cluster-wide kind. None if the
        object is missing or not readable.
        """
        cached = self._cache.get(view, *place)
        if cached is not None and self._cache.partition_of(view, *place) is not None:
            return cached
        obj = await self._find(resource, view, place, max_age=max_age)
        if cached is None or (obj is not None and obj.metadata.version >= cached.metadata.version):
            return obj
        # The cached object is from a write of this process, after the last read: read again.
        obj = await self._find(resource, view, place, max_age=0.0)
        if obj is None:
            self._cache.forget([cached])
        return obj

    async def known(self, resource: Resource, view: type[T], place: tuple[str, str]) -> T | None:
        """Return an object by namespace and name from the cache, or else from the API server.

        An object that the cache does not have may exist, because messages are missing while no
        watcher runs.
        """
        if self._cache.get(view, *place) is None and (
            obj := await self._find(resource, view, place, max_age=UNSEEN)
        ):
            self._cache.put(obj)
        return self._cache.get(view, *place)

    async def read(self, resource: Resource, view: type[T], place: tuple[str, str]) -> T | None:
        """Read an object by namespace and name from the API server into the cache.

        Returns None if it does not exist.
        """
        with suppress(errors.NotFound):
            obj = msgspec.json.decode(await self._kube.get(resource, *place), type=view)
            self._cache.put(obj)
            return obj
        return None

    async def _find(
        self, resource: Resource, view: type[T], place: tuple[str, str], *, max_age: float
    ) -> T | None:
        key, now = (resource.kind, *place), self._clock.monotonic()
        read_at, body = self._read.pop(key, (now - max_age, None))
        if now - read_at >= max_age:
            read_at, body = now, None
            # `InvalidSpec` means an illegal name, with which no object can exist.
            with suppress(errors.NotFound, errors.Forbidden, errors.InvalidSpec):
                body = await self._kube.get(resource, place[0] or None, place[1])
        self._read[key] = (read_at, body)
        return None if body is None else msgspec.json.decode(body, type=view)
