"""What users do to an upgrade in steps while it runs: pause, resume, promote, abort; annotations `raybus.io/…`."""

from datetime import timedelta
from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.sampling import one_of

STEPS = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=20, step=5, interval=60)
V2 = a_serve_config(message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def annotate(harness: Pair, **annotations: str) -> None:
    """Set the annotations of the service, and nothing else."""
    spec: Json = harness.service["spec"]
    given: dict[str, Any] = {
        key: value
        for key, value in spec.items()
        if key not in {"rayClusterConfig", "serveConfigV2"}
    }
    harness.apply(
        config=spec["rayClusterConfig"],
        serve=spec["serveConfigV2"],
        annotations=held(**annotations),
        **given,
    )


async def at_weight(weight: int, *, strategy: Json = STEPS, **annotations: str) -> Pair:
    """Return an upgrade to green in which the pending cluster has a share of the traffic."""
    harness = await a_running_pair(upgradeStrategy=strategy, annotations=held(**annotations))
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=held(**annotations))
    await harness.until(lambda: harness.view.weights[1] == weight, seconds=300)
    return harness


def messages(harness: Pair, cluster: str) -> set[str]:
    return {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
        for each in harness.puts(cluster)
    }


async def is_at_rest(harness: Pair, *, seconds: float = 30) -> bool:
    """Return whether nothing is written, not even an Event."""
    before = len(harness.written)
    await harness.run(seconds)
    return len(harness.written) == before


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_a_paused_upgrade_stays_where_it_is_and_goes_on_from_there(weight: int) -> None:
    harness = await at_weight(weight)
    blue, green = harness.active, harness.pending
    annotate(harness, pause="true")
    await harness.run(15)
    view = harness.view
    assert await is_at_rest(harness)
    assert (harness.view, view.weights) == (view, (100 - weight, weight))
    assert harness.condition("UpgradePaused") == ("True", "PauseRequested")
    assert "paused by raybus.io/pause" in harness.message("UpgradeInProgress")
    annotate(harness)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)
    assert (harness.weights, blue in harness.weights) == ({green: 100}, False)
    assert harness.condition("UpgradePaused") == ("", "")
    assert (
        harness.reasons().count("UpgradePaused"),
        harness.reasons().count("UpgradeResumed"),
    ) == (1, 1)


async def test_a_pause_in_the_last_moment_holds_the_promotion() -> None:
    harness = await at_weight(75)
    blue, green = harness.active, harness.pending
    harness.is_service_down = True
    await harness.until(lambda: harness.weights[green] == 100, seconds=20)
    annotate(harness, pause="true")
    harness.is_service_down = False
    await harness.run(60)
    assert (harness.active, harness.pending) == (blue, green)
    annotate(harness)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=20)


async def test_a_sick_pending_cluster_gives_its_share_back_although_it_is_paused() -> None:
    harness = await at_weight(50)
    annotate(harness, pause="true")
    harness.kube.set_status(POD, NAMESPACE, f"{harness.pending}-worker", {"phase": "Failed"})
    await harness.run(30)
    assert (harness.view.weights, harness.view.capacities[0]) == ((100, 0), 100)


async def test_a_pause_does_not_close_the_way_back() -> None:
    harness = await at_weight(50)
    blue = harness.active
    annotate(harness, pause="true")
    await harness.run(5)
    harness.apply(config=BLUE, upgradeStrategy=STEPS, annotations=held(pause="true"))
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights) == (blue, {blue: 100})


async def test_the_time_of_a_pause_does_not_count_against_the_deadline() -> None:
    harness = await at_weight(50, progress_deadline="20", on_deadline="Rollback")
    green = harness.pending
    annotate(harness, progress_deadline="20", on_deadline="Rollback", pause="true")
    await harness.run(90)
    assert harness.condition("UpgradeStalled") == ("", "")
    annotate(harness, progress_deadline="20", on_deadline="Rollback")
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_an_aborted_upgrade_rolls_back_and_stays_there(weight: int) -> None:
    harness = await at_weight(weight)
    blue, green = harness.active, harness.pending
    annotate(harness, abort="true")
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=15)
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights) == (blue, {blue: 100})
    assert harness.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert harness.reasons().count("UpgradeAborted") == 1
    await harness.run(70)
    assert (harness.clusters, await is_at_rest(harness)) == ([blue], True)
    assert messages(harness, blue) == {"v1"}
    assert messages(harness, green) <= {"v2"}


@pytest.mark.parametrize("weight", one_of(2, [25, 75]))
async def test_an_abort_takes_all_traffic_back_at_once_whatever_the_steps_are(weight: int) -> None:
    harness = await at_weight(weight, strategy=a_strategy(surge=100, step=25, interval=50))
    annotate(harness, abort="true")
    await harness.until(lambda: harness.weights[harness.active] == 100, seconds=5)


async def test_an_abort_that_is_taken_away_lets_the_upgrade_begin_again() -> None:
    harness = await at_weight(50)
    blue = harness.active
    annotate(harness, abort="true")
    await harness.until(harness.is_complete, seconds=60)
    annotate(harness)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    assert (harness.condition("UpgradeAborted"), messages(harness, harness.active)) == (
        ("", ""),
        {"v2"},
    )


async def test_an_abort_of_one_generation_is_void_for_the_next() -> None:
    harness = await at_weight(50)
    blue = harness.active
    number = str(harness.service["metadata"]["generation"])
    annotate(harness, abort=number)
    await harness.until(harness.is_complete, seconds=60)
    await harness.run(30)
    assert (harness.active, harness.pending) == (blue, "")
    harness.apply(config=RED, upgradeStrategy=STEPS, annotations=held(abort=number))
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    assert harness.condition("UpgradeAborted") == ("", "")


async def test_an_abort_goes_before_a_pause_and_before_a_promotion() -> None:
    harness = await at_weight(50)
    blue = harness.active
    annotate(harness, abort="true", pause="true", promote="true")
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights) == (blue, {blue: 100})


async def test_an_abort_holds_before_an_upgrade_begins_and_where_there_is_none_it_is_void() -> None:
    harness = await a_running_pair(upgradeStrategy=STEPS, annotations=held(abort="true"))
    blue = harness.active
    assert harness.condition("UpgradeAborted") == ("", "")
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=held(abort="true"))
    await harness.run(30)
    assert (harness.clusters, harness.condition("UpgradeAborted")[0], messages(harness, blue)) == (
        [blue],
        "True",
        {"v1"},
    )


@pytest.mark.long
@pytest.mark.parametrize("write", one_of(3, range(1, 17, 3)))
@pytest.mark.parametrize("side", ["kill_before", "kill_after"])
async def test_a_death_around_any_write_of_an_abort_changes_nothing_but_the_time(
    side: str, write: int
) -> None:
    harness = await at_weight(50)
    blue = harness.active
    harness.writes = 0
    setattr(harness, side, write)
    annotate(harness, abort="true")
    await harness.until(harness.is_complete, seconds=60)
    assert harness.writes >= write, "or there was no death"
    assert (harness.active, harness.weights, messages(harness, blue)) == (blue, {blue: 100}, {"v1"})
    assert (harness.condition("UpgradeAborted")[0], len(harness.clusters)) == ("True", 2)


async def test_a_promoted_upgrade_skips_steps() -> None:
    harness = await at_weight(5, strategy=SLOW)
    green = harness.pending
    begun = harness.clock.monotonic()
    annotate(harness, promote="true")
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)
    assert harness.clock.monotonic() - begun < 15
    assert harness.capacities(green) == [0, 20, 100]


async def test_a_promoted_upgrade_skips_no_capacity_check() -> None:
    harness = await at_weight(5, strategy=SLOW)
    green = harness.pending
    harness.serve.head(f"{green}-head-svc").deploy_seconds = 30
    annotate(harness, promote=str(harness.service["metadata"]["generation"]))
    await harness.run(25)
    assert (harness.weights[green], harness.capacities(green)[-1]) == (20, 100), (
        "what it was seen to carry, and no more"
    )
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)


async def test_a_promotion_overrides_a_pause() -> None:
    harness = await at_weight(25)
    green = harness.pending
    annotate(harness, pause="true")
    await harness.run(20)
    annotate(harness, pause="true", promote="true")
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)


async def test_a_promotion_of_another_generation_is_void() -> None:
    harness = await at_weight(5, strategy=SLOW)
    annotate(harness, promote="1")
    await harness.run(30)
    assert harness.view.weights == (95, 5)


async def test_a_value_that_cannot_be_meant_is_reported_once_and_the_default_holds() -> None:
    harness = await at_weight(25, pause="yes", progress_deadline="-1")
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)
    harness.restart()
    await harness.run(370)
    notes = [note for _, reason, note in harness.kube.events() if reason == "InvalidAnnotation"]
    assert notes == [
        'raybus.io/pause "yes" is not "true" or "false"; it counts as absent; raybus.io/progress-deadline "-1" is not a '
        "positive duration such as 10m or a number of seconds; 10m0s holds"
    ]
    assert harness.condition("InvalidAnnotations") == ("True", "InvalidValue")
    annotate(harness)
    await harness.run(5)
    assert harness.condition("InvalidAnnotations") == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("moment", one_of(3, [3.0, 0.5, 6.0]))
async def test_a_clock_that_is_set_neither_stops_an_upgrade_nor_counts_as_time(
    hours: int, moment: float
) -> None:
    harness = await a_running_pair(upgradeStrategy=STEPS)
    blue = harness.active
    annotations = held(progress_deadline="30", on_deadline="Rollback")
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await harness.run(moment)
    harness.jump(timedelta(hours=hours))
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    assert "UpgradeStalled" not in harness.reasons()


async def test_a_lost_pending_cluster_is_made_again_while_the_upgrade_is_paused_and_gets_nothing() -> (
    None
):
    harness = await at_weight(50)
    annotate(harness, pause="true")
    await harness.run(2)
    await harness.kube.delete(RAY_CLUSTER, "default", harness.pending)
    await harness.run(30)
    assert harness.view.weights == (100, 0)
