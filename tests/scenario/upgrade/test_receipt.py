"""The receipt of an upgrade: one annotation and one Event when the cluster goes that it leaves behind, and no other write."""

import json
from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_strategy

pytestmark = pytest.mark.long

FAST = a_strategy(surge=50, step=25, interval=2)
BLUE_GREEN: Json = {"type": "NewCluster"}
FIELDS: dict[str, Any] = {"rayClusterDeletionDelaySeconds": 20}


def receipt(harness: Pair) -> Json:
    return json.loads(harness.service["metadata"]["annotations"].get(labels.UPGRADE_RECEIPT, "{}"))


def notes(harness: Pair) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if reason == "UpgradeReceipt"]


async def upgraded(strategy: Json, *, ongoing: int = 0) -> tuple[Pair, str, str]:
    """Return services after an upgrade and its clean-up, and both clusters."""
    harness = Pair()
    harness.apply(upgradeStrategy=strategy, **FIELDS)
    await harness.until(harness.is_complete)
    await harness.run(2)
    blue = harness.active
    harness.serve.head(f"{blue}-head-svc").ongoing = ongoing
    harness.apply(config=GREEN, upgradeStrategy=strategy, **FIELDS)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
    await harness.until(lambda: harness.clusters == [harness.active], seconds=120)
    return harness, blue, harness.active


async def test_an_upgrade_in_steps() -> None:
    harness, blue, green = await upgraded(FAST)
    found = receipt(harness)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (
        50,
        100,
        0,
    )
    assert found["seconds"]["shifting"] >= 6
    assert found["seconds"]["draining"] in {22, 23}
    (note,) = notes(harness)
    assert note.startswith(f"Upgrade from {blue} to {green}: Promoted after ")


async def test_requests_that_the_drain_cut_are_counted() -> None:
    harness, _, _ = await upgraded(FAST, ongoing=3)
    assert receipt(harness)["requestsCut"] == 6


async def test_missing_capacity_is_reported() -> None:
    allowed = {labels.MAX_UNAVAILABLE: "20"}
    strategy = a_strategy(surge=0, step=20, interval=1)
    harness = await a_running_pair(annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    blue = harness.active
    harness.apply(config=GREEN, annotations=allowed, upgradeStrategy=strategy, **FIELDS)
    await harness.until(
        lambda: harness.active != blue and harness.clusters == [harness.active], seconds=200
    )
    found = receipt(harness)
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"]) == (0, 80)


async def test_blue_green() -> None:
    harness, blue, green = await upgraded(BLUE_GREEN)
    found = receipt(harness)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, "Promoted")
    assert (found["peakSurgePercent"], found["lowestCapacityPercent"], found["requestsCut"]) == (
        100,
        100,
        None,
    )
    assert found["seconds"]["shifting"] == 0


@pytest.mark.parametrize(("weight", "outcome"), [(50, "RolledBack"), (0, "Cancelled")])
async def test_an_upgrade_that_times_out_has_one_too(weight: int, outcome: str) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await harness.until(
        lambda: bool(harness.pending) and harness.view.weights[1] == weight, seconds=60
    )
    await harness.run(0.5)
    green = harness.pending
    harness.apply(config=BLUE, upgradeStrategy=FAST, **FIELDS)
    await harness.until(lambda: harness.is_complete() and harness.clusters == [blue], seconds=200)
    found = receipt(harness)
    assert (found["from"], found["to"], found["outcome"]) == (blue, green, outcome)


async def test_an_upgrade_that_its_user_aborts_reports_it() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST, **FIELDS)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await harness.until(lambda: bool(harness.pending) and harness.view.weights[1] == 25, seconds=60)
    harness.apply(config=GREEN, upgradeStrategy=FAST, annotations={labels.ABORT: "true"}, **FIELDS)
    await harness.until(lambda: harness.is_complete() and harness.clusters == [blue], seconds=200)
    assert receipt(harness)["outcome"] == "Aborted"


async def test_a_death_between_receipt_and_deletion_writes_it_once() -> None:
    harness = Pair()
    harness.apply(upgradeStrategy=FAST, **FIELDS)
    await harness.until(harness.is_complete)
    await harness.run(2)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=FAST, **FIELDS)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
    await harness.run(5)
    harness.kill_after = harness.writes + 1
    await harness.until(lambda: harness.clusters == [harness.active], seconds=60)
    patches = [each for each in harness.kube.writes() if each == "patch RayService demo"]
    assert len(patches) == 2  # the finalizer, and this
    assert receipt(harness)["outcome"] == "Promoted"


async def test_the_next_cluster_does_not_inherit_it() -> None:
    harness, _, green = await upgraded(FAST)
    held = harness.service["metadata"]["annotations"]
    harness.apply(config=RED, annotations=held, upgradeStrategy=FAST, **FIELDS)
    await harness.until(
        lambda: harness.active != green and bool(harness.active) and harness.is_complete(),
        seconds=100,
    )
    made = harness.kube.objects[(RAY_CLUSTER.kind, "default", harness.active)]["metadata"][
        "annotations"
    ]
    assert labels.UPGRADE_RECEIPT not in made


async def test_at_rest_nothing_is_written() -> None:
    harness, _, _ = await upgraded(FAST)
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
