"""The receipt of an upgrade: one annotation and one Event when the cluster goes that it leaves behind, and no other write."""

import json
from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import a_strategy
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_pair, a_running_pair

pytestmark = pytest.mark.long

FAST = a_strategy(surge=50, step=25, interval=2)
BLUE_GREEN: Json = {"type": "NewCluster"}
FIELDS: dict[str, Any] = {"rayClusterDeletionDelaySeconds": 20}


def receipt(sim: Simulator) -> Json:
    return json.loads(sim.service["metadata"]["annotations"].get(labels.UPGRADE_RECEIPT, "{}"))


def notes(sim: Simulator) -> list[str]:
    return [note for _, reason, note in sim.kube.events() if reason == "UpgradeReceipt"]


async def upgraded(strategy: Json, *, ongoing: int = 0) -> tuple[Simulator, str, str]:
    """Return services after an upgrade and its clean-up, and both clusters."""
    sim = a_pair()
    sim.apply(upgradeStrategy=strategy, **FIELDS)
    await sim.until(sim.is_complete)
    await sim.run(2)
    blue = sim.active
    sim.serve.head(f"{blue}-head-svc").ongoing = ongoing
    sim.apply(config=GREEN, upgradeStrategy=strategy, **FIELDS)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    await sim.until(lambda: sim.clusters == [sim.active], seconds=120)
    return sim, blue, sim.active


async def test_an_upgrade_in_steps() -> None:
    sim, blue, green = await upgraded(FAST)
    found = receipt(sim)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (
        50,
        100,
        0,
    )
    assert found["seconds"]["shifting"] >= 6
    assert found["seconds"]["draining"] in {22, 23}
    (note,) = notes(sim)
    assert note.startswith(f"Upgrade from {blue} to {green}: Promoted after ")


async def test_requests_that_the_drain_cut_are_counted() -> None:
    sim, _, _ = await upgraded(FAST, ongoing=3)
    assert receipt(sim)["requestsCut"] == 6


async def test_missing_capacity_is_reported() -> None:
    allowed = {labels.MAX_UNAVAILABLE: "20"}
    strategy = a_strategy(surge=0, step=20, interval=1)
    sim = await a_running_pair(annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    blue = sim.active
    sim.apply(config=GREEN, annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    await sim.until(lambda: sim.active != blue and sim.clusters == [sim.active], seconds=200)
    found = receipt(sim)
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"]) == (0, 80)


async def test_blue_green() -> None:
    sim, blue, green = await upgraded(BLUE_GREEN)
    found = receipt(sim)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (
        100,
        100,
        None,
    )
    assert found["seconds"]["shifting"] == 0


@pytest.mark.parametrize(("weight", "outcome"), [(50, "RolledBack"), (0, "Cancelled")])
async def test_an_upgrade_that_times_out_has_one_too(weight: int, outcome: str) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await sim.until(lambda: bool(sim.pending) and sim.view.weights[1] == weight, seconds=60)
    await sim.run(0.5)
    green = sim.pending
    sim.apply(config=BLUE, upgradeStrategy=FAST, **FIELDS)
    await sim.until(lambda: sim.is_complete() and sim.clusters == [blue], seconds=200)
    found = receipt(sim)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, outcome)


async def test_an_upgrade_that_its_user_aborts_reports_it() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await sim.until(lambda: bool(sim.pending) and sim.view.weights[1] == 25, seconds=60)
    sim.apply(config=GREEN, upgradeStrategy=FAST, annotations={labels.ABORT: "true"}, **FIELDS)
    await sim.until(lambda: sim.is_complete() and sim.clusters == [blue], seconds=200)
    assert receipt(sim)["outcome"] == "Aborted"


async def test_a_death_between_receipt_and_deletion_writes_it_once() -> None:
    sim = a_pair()
    sim.apply(upgradeStrategy=FAST, **FIELDS)
    await sim.until(sim.is_complete)
    await sim.run(2)
    blue = sim.active
    sim.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    await sim.run(5)
    sim.writes.kill_after = sim.writes.count + 1
    await sim.until(lambda: sim.clusters == [sim.active], seconds=60)
    patches = [each for each in sim.kube.writes() if each == "patch RayService demo"]
    assert len(patches) == 2  # the finalizer, and this
    assert receipt(sim)["outcome"] == "Promoted"


async def test_the_next_cluster_does_not_inherit_it() -> None:
    sim, _, green = await upgraded(FAST)
    held = sim.service["metadata"]["annotations"]
    sim.apply(config=RED, annotations=held, upgradeStrategy=FAST, **FIELDS)
    await sim.until(
        lambda: sim.active != green and bool(sim.active) and sim.is_complete(), seconds=100
    )
    made = sim.kube.objects[(RAY_CLUSTER.kind, "default", sim.active)]["metadata"]["annotations"]
    assert labels.UPGRADE_RECEIPT not in made


async def test_at_rest_nothing_is_written() -> None:
    sim, _, _ = await upgraded(FAST)
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
