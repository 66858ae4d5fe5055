"""Until weighted routes are built, their users are told so, once for each generation, and nothing is touched."""

from typing import Any

import msgspec
import pytest

from common.api.ray_service import RayService
from common.kube.resources import RAY_SERVICE
from common.runtime.key import Key
from support.builders.ray_service import a_ray_service
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from traffic_manager.wiring import assemble

INCREMENTAL = {"type": "NewClusterWithIncrementalUpgrade"}
PLAIN: dict[str, Any] = {}
KEY = Key("default", "demo")


async def told_after(*specs: dict[str, Any], looks: int = 3) -> FakeKube:
    """Apply specs in turn, with some looks after each."""
    clock, kube = FakeClock(), FakeKube()
    app = assemble(kube, clock=clock, instance="test")
    for spec in specs:
        old = kube.objects.get((RAY_SERVICE.kind, "default", "demo"), {})
        new = a_ray_service(**spec)
        stored = kube.put(RAY_SERVICE, {**new, "metadata": {**new["metadata"], **old.get("metadata", {})}})
        app.cache.put(msgspec.json.decode(msgspec.json.encode(stored), type=RayService))
        for _ in range(looks):
            assert await app.reconciler(KEY, now=clock.now()) is None
    return kube


@pytest.mark.parametrize(
    ("specs", "times"),
    [
        pytest.param([{"upgradeStrategy": INCREMENTAL}], 1, id="once, however often it is looked at"),
        pytest.param(
            [{"upgradeStrategy": INCREMENTAL}, {"upgradeStrategy": INCREMENTAL, "suspend": True}], 2, id="again"
        ),
        pytest.param([PLAIN], 0, id="no strategy"),
        pytest.param([{"upgradeStrategy": {"type": "NewCluster"}}], 0, id="one switch of all traffic"),
        pytest.param([{"upgradeStrategy": INCREMENTAL, "managedBy": "kueue.x-k8s.io/multikueue"}], 0, id="not ours"),
    ],
)
async def test_users_of_weighted_routes_are_told_once_per_generation(specs: list[dict[str, Any]], times: int) -> None:
    kube = await told_after(*specs)
    assert [reason for _, reason, _ in kube.events()] == ["WeightedRoutesNotSupported"] * times
    assert kube.writes() == []
