"""Objects that are read one by one: how often they are read, and how much of them is kept."""

from common.api.ray_service import RayService
from common.kube.resources import RAY_SERVICE, Resource
from common.runtime.cache import ROOM, Cache
from common.runtime.lookup import Lookup
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.memory import measured


class LargeObjects(FakeKube):
    """Has an object of about 1 MiB under each name."""

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        self._receive("get", resource, namespace, name)
        return (
            f'{{"metadata": {{"name": "{name}"}}, "spec": {{"a": "{"x" * 1_000_000}"}}}}'.encode()
        )


async def test_what_was_read_is_kept_as_long_as_there_is_room() -> None:
    kube = LargeObjects()
    lookup = Lookup(kube, Cache(), FakeClock())
    with measured() as kept:
        for number in range(100):
            found = await lookup.find(
                RAY_SERVICE, RayService, ("default", f"s{number}"), max_age=60.0
            )
            assert found is not None
        assert kept() < 1.1 * ROOM
    for name, reads in (("s99", 1), ("s0", 2)):
        await lookup.find(RAY_SERVICE, RayService, ("default", name), max_age=60.0)
        assert [each.name for each in kube.requests].count(name) == reads
