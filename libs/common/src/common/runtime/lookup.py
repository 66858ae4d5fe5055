"""Objects that the bus does not deliver to us: a user's route before it names its RayService, a Gateway that many share.

They are read from the API server, no more often than is asked for. What the bus delivers is taken from the cache; what only an
answer brought is not, since no message would report its change.
"""

from contextlib import suppress
from typing import Final, TypeVar

import msgspec

from common import errors
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import Resource
from common.runtime.cache import Cache, Object, Remembered

T = TypeVar("T", bound=Object)
UNSEEN: Final = 1.0
"""Seconds until a missing object that another one names is read again."""


class Lookup:
    """Finds single objects, in the cache or at the API server."""

    def __init__(self, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._kube = kube
        self._cache = cache
        self._clock = clock
        self._read = Remembered[tuple[str, str, str], tuple[float, bytes | None]](
            size=lambda _, read: len(read[1] or b"")
        )
        """When each object was read, and what the answer was; None stands for nothing there."""

    async def find(
        self, resource: Resource, view: type[T], place: tuple[str, str], *, max_age: float
    ) -> T | None:
        """Return an object by namespace and name, from at most so many seconds ago; None when there is none to be seen."""
        cached = self._cache.get(view, *place)
        if cached is not None and self._cache.partition_of(view, *place) is not None:
            return cached
        found = await self._find(resource, view, place, max_age=max_age)
        if cached is None or (
            found is not None and found.metadata.version >= cached.metadata.version
        ):
            return found
        found = await self._find(
            resource, view, place, max_age=0.0
        )  # what we read is older than a write of our own
        if found is None:
            self._cache.forget([cached])
        return found

    async def known(self, resource: Resource, view: type[T], place: tuple[str, str]) -> T | None:
        """Return an object that something names; what the bus has not brought is asked for.

        The stream of a watcher that was away for long is behind until the next one has listed all: what is missing may well exist.
        """
        if self._cache.get(view, *place) is None and (
            found := await self._find(resource, view, place, max_age=UNSEEN)
        ):
            self._cache.put(found)
        return self._cache.get(view, *place)

    async def read(self, resource: Resource, view: type[T], place: tuple[str, str]) -> T | None:
        """Return an object as the API server has it now, and let the cache know; None when it is gone."""
        with suppress(errors.NotFound):
            found = msgspec.json.decode(await self._kube.get(resource, *place), type=view)
            self._cache.put(found)
            return found
        return None

    async def _find(
        self, resource: Resource, view: type[T], place: tuple[str, str], *, max_age: float
    ) -> T | None:
        key, now = (resource.kind, *place), self._clock.monotonic()
        read_at, body = self._read.pop(key, (now - max_age, None))
        if now - read_at >= max_age:
            read_at, body = now, None
            with suppress(
                errors.NotFound, errors.Forbidden, errors.InvalidSpec
            ):  # no object can have a refused name
                body = await self._kube.get(resource, *place)
        self._read[key] = (read_at, body)
        return None if body is None else msgspec.json.decode(body, type=view)
