"""If a process is killed before or after any write of an upgrade, the result is the same.

The next process reaches the end state of an undisturbed upgrade.
"""

import pytest

from support.builders.ray_service import a_cluster_config, a_serve_config
from support.sampling import one_of
from support.simulator.simulator import Simulator

UPGRADE = {
    "config": a_cluster_config(image="rayproject/ray:2.53.0"),
    "serve": a_serve_config(message="v2"),
    "rayClusterDeletionDelaySeconds": 3,
}
WRITES = 44
"""Number of writes, larger than that of an undisturbed upgrade; a test below checks this."""


async def live(sim: Simulator) -> None:
    """Create a service, upgrade it, wait until the old cluster is gone."""
    sim.apply(rayClusterDeletionDelaySeconds=3)
    await sim.until(sim.is_complete)
    blue = sim.active
    sim.apply(**UPGRADE)
    await sim.until(lambda: sim.is_complete() and sim.active != blue and len(sim.clusters) == 1)


def check_end(sim: Simulator) -> None:
    """Compare with the end of an undisturbed upgrade."""
    created = [
        each.body["metadata"]["name"]
        for each in sim.kube.requests
        if str(each).startswith("create RayCluster")
    ]
    blue, green = dict.fromkeys(created)
    assert sim.clusters == [green] == [sim.active]
    assert sim.selected() == sim.selected("demo-head-svc") == green
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    sent = {
        name: {_message(config) for config in sim.serve.head(f"{name}-head-svc").puts}
        for name in (blue, green)
    }
    assert sent == {blue: {"v1"}, green: {"v2"}}


def _message(config: dict[str, list[dict[str, dict[str, dict[str, str]]]]]) -> str:
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]


async def test_an_undisturbed_life_has_no_more_writes_than_the_tests_below_disturb() -> None:
    sim = Simulator()
    await live(sim)
    check_end(sim)
    assert WRITES - 6 <= sim.writes.count <= WRITES


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_before_a_write_it_ends_the_same(write: int) -> None:
    sim = Simulator()
    sim.writes.kill_before = write
    await live(sim)
    check_end(sim)


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_after_a_write_it_ends_the_same(write: int) -> None:
    sim = Simulator()
    sim.writes.kill_after = write
    await live(sim)
    check_end(sim)
