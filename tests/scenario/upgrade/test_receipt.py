"""The receipt of an upgrade: one annotation and one Event when the cluster goes that it leaves behind, and no other write."""

import json
from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from scenario.upgrade.world import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_strategy

pytestmark = pytest.mark.long

FAST = a_strategy(surge=50, step=25, interval=2)
BLUE_GREEN: Json = {"type": "NewCluster"}
FIELDS: dict[str, Any] = {"rayClusterDeletionDelaySeconds": 20}


def receipt(world: Pair) -> Json:
    return json.loads(world.service["metadata"]["annotations"].get(labels.UPGRADE_RECEIPT, "{}"))


def notes(world: Pair) -> list[str]:
    return [note for _, reason, note in world.kube.events() if reason == "UpgradeReceipt"]


async def upgraded(strategy: Json, *, ongoing: int = 0) -> tuple[Pair, str, str]:
    """Return services after an upgrade and its clean-up, and both clusters."""
    world = Pair()
    world.apply(upgradeStrategy=strategy, **FIELDS)
    await world.until(world.is_settled)
    await world.run(2)
    blue = world.active
    world.serve.head(f"{blue}-head-svc").ongoing = ongoing
    world.apply(config=GREEN, upgradeStrategy=strategy, **FIELDS)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=100)
    await world.until(lambda: world.clusters == [world.active], seconds=120)
    return world, blue, world.active


async def test_an_upgrade_in_steps() -> None:
    world, blue, green = await upgraded(FAST)
    found = receipt(world)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (50, 100, 0)
    assert found["seconds"]["shifting"] >= 6
    assert found["seconds"]["draining"] in {22, 23}
    (note,) = notes(world)
    assert note.startswith(f"Upgrade from {blue} to {green}: Promoted after ")


async def test_requests_that_the_drain_cut_are_counted() -> None:
    world, _, _ = await upgraded(FAST, ongoing=3)
    assert receipt(world)["requestsCut"] == 6


async def test_capacity_that_was_missing_is_told() -> None:
    allowed = {labels.MAX_UNAVAILABLE: "20"}
    strategy = a_strategy(surge=0, step=20, interval=1)
    world = await a_running_pair(annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    blue = world.active
    world.apply(config=GREEN, annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    await world.until(lambda: world.active != blue and world.clusters == [world.active], seconds=200)
    found = receipt(world)
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"]) == (0, 80)


async def test_blue_green() -> None:
    world, blue, green = await upgraded(BLUE_GREEN)
    found = receipt(world)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (100, 100, None)
    assert found["seconds"]["shifting"] == 0


@pytest.mark.parametrize(("weight", "outcome"), [(50, "RolledBack"), (0, "Cancelled")])
async def test_an_upgrade_that_is_given_up_has_one_too(weight: int, outcome: str) -> None:
    world = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await world.until(lambda: bool(world.pending) and world.view.weights[1] == weight, seconds=60)
    await world.run(0.5)
    green = world.pending
    world.apply(config=BLUE, upgradeStrategy=FAST, **FIELDS)
    await world.until(lambda: world.is_settled() and world.clusters == [blue], seconds=200)
    found = receipt(world)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, outcome)


async def test_an_upgrade_that_its_user_aborts_says_so() -> None:
    world = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await world.until(lambda: bool(world.pending) and world.view.weights[1] == 25, seconds=60)
    world.apply(config=GREEN, upgradeStrategy=FAST, annotations={labels.ABORT: "true"}, **FIELDS)
    await world.until(lambda: world.is_settled() and world.clusters == [blue], seconds=200)
    assert receipt(world)["outcome"] == "Aborted"


async def test_a_death_between_receipt_and_deletion_writes_it_once() -> None:
    world = Pair()
    world.apply(upgradeStrategy=FAST, **FIELDS)
    await world.until(world.is_settled)
    await world.run(2)
    blue = world.active
    world.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=100)
    await world.run(5)
    world.kill_after = world.writes + 1
    await world.until(lambda: world.clusters == [world.active], seconds=60)
    patches = [each for each in world.kube.writes() if each == "patch RayService demo"]
    assert len(patches) == 2  # the finalizer, and this
    assert receipt(world)["outcome"] == "Promoted"


async def test_the_next_cluster_does_not_inherit_it() -> None:
    world, _, green = await upgraded(FAST)
    held = world.service["metadata"]["annotations"]
    world.apply(config=RED, annotations=held, upgradeStrategy=FAST, **FIELDS)
    await world.until(lambda: world.active != green and bool(world.active) and world.is_settled(), seconds=100)
    made = world.kube.objects[(RAY_CLUSTER.kind, "default", world.active)]["metadata"]["annotations"]
    assert labels.UPGRADE_RECEIPT not in made


async def test_at_rest_nothing_is_written() -> None:
    world, _, _ = await upgraded(FAST)
    before = len(world.kube.writes())
    await world.run(60)
    assert len(world.kube.writes()) == before
