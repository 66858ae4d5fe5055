"""Reads of single objects that the bus does not deliver to this service.

Examples are a user's route before it names its RayService, and a Gateway that many services share.
They are read from the API server at a limited rate. A cached object is used only if the bus
delivered it. An object that entered the cache from an answer of the API server would become stale,
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
"""Seconds until a missing object is read again."""


class Lookup:
    """Finds single objects in the cache or at the API server."""

    def __init__(self, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._read = BoundedDict[tuple[str, str, str], tuple[float, bytes | None]](
            size=lambda _, read: len(read[1] or b"")
        )
        """Time and answer of the last read of each object; None: the object was missing or not
        readable.
        """

    async def find(
        self, resource: Resource, view: type[T], place: tuple[str, str], *, max_age: float
    ) -> T | None:
        """Return an object by namespace and name, at most `max_age` seconds old.

        None if it is missing or not readable. An object of a cluster-wide kind has the namespace
        "".
        """
        cached = self._cache.get(view, *place)
        if cached is not None and self._cache.partition_of(view, *place) is not None:
            return cached
        obj = await self._find(resource, view, place, max_age=max_age)
        if cached is None or (obj is not None and obj.metadata.version >= cached.metadata.version):
            return obj
        # A write of this process is newer than the last read.
        obj = await self._find(resource, view, place, max_age=0.0)
        if obj is None:
            self._cache.forget([cached])
        return obj

    async def known(self, resource: Resource, view: type[T], place: tuple[str, str]) -> T | None:
        """Return an object by namespace and name from the cache, or else from the API server.

        While no watcher runs, the stream is behind, so an object that the cache does not have may
        exist.
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
            # No object can have an illegal name (`InvalidSpec`).
            with suppress(errors.NotFound, errors.Forbidden, errors.InvalidSpec):
                body = await self._kube.get(resource, place[0] or None, place[1])
        self._read[key] = (read_at, body)
        return None if body is None else msgspec.json.decode(body, type=view)
