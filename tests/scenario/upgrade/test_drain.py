"""The old cluster of an upgrade in steps goes when its last request is answered; no pod is told anything."""

from typing import Any

import pytest

from common import labels
from common.kube.resources import POD
from scenario.upgrade.world import GREEN, Pair, a_running_pair
from support.builders.ray_service import a_strategy

FAST = a_strategy(surge=100, step=100, interval=1)


async def a_promoted_pair(*, ongoing: int | None, delay: int = 20, **annotations: str) -> tuple[Pair, str]:
    """Return services right after promotion, and the old cluster."""
    asked = {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    fields: dict[str, Any] = {
        "upgradeStrategy": FAST,
        "rayClusterDeletionDelaySeconds": delay,
        "annotations": asked,
    }
    world = await a_running_pair(**fields)
    old = world.active
    world.serve.head(f"{old}-head-svc").ongoing = ongoing
    world.apply(config=GREEN, **fields)
    await world.until(lambda: world.is_settled() and world.active != old, seconds=40)
    return world, old


def notes(world: Pair) -> list[tuple[str, str]]:
    return [(kind, note) for kind, reason, note in world.kube.events() if reason == "DrainEnded"]


async def test_an_idle_cluster_goes_after_the_usual_delay_and_no_pod_is_marked() -> None:
    world, old = await a_promoted_pair(ongoing=0)
    assert not [pod for pod in world.kube.all(POD) if labels.DRAINING in pod["metadata"]["annotations"]]
    await world.run(20)
    assert old in world.clusters
    await world.run(5)
    assert old not in world.clusters
    assert notes(world) == [("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")]


async def test_a_busy_one_goes_when_its_last_request_is_answered() -> None:
    world, old = await a_promoted_pair(ongoing=2)
    await world.run(50)
    assert old in world.clusters
    world.serve.head(f"{old}-head-svc").ongoing = 0
    await world.run(2)
    assert old not in world.clusters


async def test_the_cap_ends_it_and_says_what_was_cut() -> None:
    world, old = await a_promoted_pair(ongoing=2, drain_timeout="10")
    await world.run(40)
    assert old not in world.clusters
    assert notes(world) == [("Warning", f"RayCluster default/{old} was deleted with 4 requests in flight")]


async def test_without_a_cap_it_goes_at_the_delay_as_with_kuberay() -> None:
    world, old = await a_promoted_pair(ongoing=2, drain_timeout="0")
    await world.run(25)
    assert old not in world.clusters


async def test_where_no_pod_tells_nobody_waits_for_long() -> None:
    world, old = await a_promoted_pair(ongoing=None)
    await world.run(30)
    assert old in world.clusters
    await world.run(10)
    assert old not in world.clusters


def _with_pods_in(world: Pair, old: str, phase: str) -> None:
    for role in ("head", "worker"):
        world.kube.set_status(POD, "default", f"{old}-{role}", {"phase": phase, "podIP": ""})


async def test_a_running_pod_without_a_known_address_works_on_an_unknown_number_of_requests() -> None:
    world, old = await a_promoted_pair(ongoing=0)
    _with_pods_in(world, old, "Running")
    await world.run(30)
    assert old in world.clusters


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Pending"])
async def test_where_no_container_runs_no_request_is_in_flight(phase: str) -> None:
    world, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(world, old, phase)
    await world.run(25)
    assert old not in world.clusters
    assert notes(world) == [("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")]


async def test_a_pod_whose_node_does_not_report_works_on_an_unknown_number_of_requests() -> None:
    world, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(world, old, "Unknown")
    await world.run(30)
    assert old in world.clusters
    await world.run(10)
    assert old not in world.clusters
    assert notes(world) == [
        ("Normal", f"RayCluster default/{old} was deleted with an unknown number of requests in flight")
    ]


async def test_a_restart_forgets_nothing() -> None:
    world, old = await a_promoted_pair(ongoing=1, drain_timeout="30")
    await world.run(35)
    world.restart()
    await world.run(10)
    assert old in world.clusters
    await world.run(15)
    assert old not in world.clusters
