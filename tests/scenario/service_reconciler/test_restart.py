"""Killed before or after any write of an upgrade, the next process ends where an undisturbed one would (design rule 7)."""

import pytest

from scenario.service_reconciler.harness import Harness
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.sampling import one_of

UPGRADE = {
    "config": a_cluster_config(image="rayproject/ray:2.53.0"),
    "serve": a_serve_config(message="v2"),
    "rayClusterDeletionDelaySeconds": 3,
}
WRITES = 44
"""More than an undisturbed life has: the test below asserts that."""


async def live(harness: Harness) -> None:
    """Create a service, upgrade it, wait until the old cluster is gone."""
    harness.apply(rayClusterDeletionDelaySeconds=3)
    await harness.until(harness.is_complete)
    blue = harness.active
    harness.apply(**UPGRADE)
    await harness.until(
        lambda: harness.is_complete() and harness.active != blue and len(harness.clusters) == 1
    )


def check_end(harness: Harness) -> None:
    """Compare with the end of an undisturbed life."""
    created = [
        each.body["metadata"]["name"]
        for each in harness.kube.requests
        if str(each).startswith("create RayCluster")
    ]
    blue, green = dict.fromkeys(created)
    assert harness.clusters == [green] == [harness.active]
    assert harness.selected() == harness.selected("demo-head-svc") == green
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    sent = {
        name: {_message(config) for config in harness.serve.head(f"{name}-head-svc").puts}
        for name in (blue, green)
    }
    assert sent == {blue: {"v1"}, green: {"v2"}}


def _message(config: dict[str, list[dict[str, dict[str, dict[str, str]]]]]) -> str:
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]


async def test_an_undisturbed_life_has_no_more_writes_than_the_tests_below_disturb() -> None:
    harness = Harness()
    await live(harness)
    check_end(harness)
    assert WRITES - 6 <= harness.writes <= WRITES


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_before_a_write_it_ends_the_same(write: int) -> None:
    harness = Harness()
    harness.kill_before = write
    await live(harness)
    check_end(harness)


@pytest.mark.parametrize("write", one_of(3, range(1, WRITES + 1)))
async def test_killed_after_a_write_it_ends_the_same(write: int) -> None:
    harness = Harness()
    harness.kill_after = write
    await live(harness)
    check_end(harness)
