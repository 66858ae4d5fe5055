"""All reads of one look at a RayService: from the cache, and from the memory of what was told."""

from common.api.ray_service import RayService
from common.bus.cache import Cache
from common.runtime.key import Key
from traffic_manager.observed import Observed


class Told:
    """Which generation of each RayService its users were told about; forgotten with the process and with the object."""

    def __init__(self) -> None:
        self._generations: dict[Key, int] = {}

    def generation(self, key: Key) -> int | None:
        """Return the generation that was told last."""
        return self._generations.get(key)

    def note(self, key: Key, generation: int) -> None:
        """Remember that a generation was told."""
        self._generations[key] = generation

    def forget(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._generations.pop(key, None)


def observe(key: Key, cache: Cache, told: Told) -> Observed | None:
    """Return what is known of a RayService, None when it is gone or going."""
    service = cache.get(RayService, key.namespace, key.name)
    if service is None:
        told.forget(key)
        return None
    if service.metadata.deletion_timestamp is not None:
        return None
    return Observed(service=service, told_generation=told.generation(key))
