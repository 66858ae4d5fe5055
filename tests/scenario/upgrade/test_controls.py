"""What users do to an upgrade in steps while it runs: pause, resume, promote, abort; annotations `raybus.io/…`."""

from datetime import timedelta
from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.sampling import one_of
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_running_pair

STEPS = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=20, step=5, interval=60)
V2 = a_serve_config(message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def annotate(sim: Simulator, **annotations: str) -> None:
    """Set the annotations of the service, and nothing else."""
    spec: Json = sim.service["spec"]
    given: dict[str, Any] = {
        key: value
        for key, value in spec.items()
        if key not in {"rayClusterConfig", "serveConfigV2"}
    }
    sim.apply(
        config=spec["rayClusterConfig"],
        serve=spec["serveConfigV2"],
        annotations=held(**annotations),
        **given,
    )


async def at_weight(weight: int, *, strategy: Json = STEPS, **annotations: str) -> Simulator:
    """Return an upgrade to green in which the pending cluster has a share of the traffic."""
    sim = await a_running_pair(upgradeStrategy=strategy, annotations=held(**annotations))
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=held(**annotations))
    await sim.until(lambda: sim.view.weights[1] == weight, seconds=300)
    return sim


def messages(sim: Simulator, cluster: str) -> set[str]:
    return {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(cluster)
    }


async def is_at_rest(sim: Simulator, *, seconds: float = 30) -> bool:
    """Return whether nothing is written, not even an Event."""
    before = len(sim.writes.lines)
    await sim.run(seconds)
    return len(sim.writes.lines) == before


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_a_paused_upgrade_stays_where_it_is_and_goes_on_from_there(weight: int) -> None:
    sim = await at_weight(weight)
    blue, green = sim.active, sim.pending
    annotate(sim, pause="true")
    await sim.run(15)
    view = sim.view
    assert await is_at_rest(sim)
    assert (sim.view, view.weights) == (view, (100 - weight, weight))
    assert sim.condition("UpgradePaused") == ("True", "PauseRequested")
    assert "paused by raybus.io/pause" in sim.message("UpgradeInProgress")
    annotate(sim)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)
    assert (sim.weights, blue in sim.weights) == ({green: 100}, False)
    assert sim.condition("UpgradePaused") == ("", "")
    assert (sim.reasons().count("UpgradePaused"), sim.reasons().count("UpgradeResumed")) == (1, 1)


async def test_a_pause_in_the_last_moment_holds_the_promotion() -> None:
    sim = await at_weight(75)
    blue, green = sim.active, sim.pending
    sim.services["service"].is_down = True
    await sim.until(lambda: sim.weights[green] == 100, seconds=20)
    annotate(sim, pause="true")
    sim.services["service"].is_down = False
    await sim.run(60)
    assert (sim.active, sim.pending) == (blue, green)
    annotate(sim)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=20)


async def test_a_sick_pending_cluster_gives_its_share_back_although_it_is_paused() -> None:
    sim = await at_weight(50)
    annotate(sim, pause="true")
    sim.kube.set_status(POD, NAMESPACE, f"{sim.pending}-worker", {"phase": "Failed"})
    await sim.run(30)
    assert (sim.view.weights, sim.view.capacities[0]) == ((100, 0), 100)


async def test_a_pause_does_not_close_the_way_back() -> None:
    sim = await at_weight(50)
    blue = sim.active
    annotate(sim, pause="true")
    await sim.run(5)
    sim.apply(config=BLUE, upgradeStrategy=STEPS, annotations=held(pause="true"))
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights) == (blue, {blue: 100})


async def test_the_time_of_a_pause_does_not_count_against_the_deadline() -> None:
    sim = await at_weight(50, progress_deadline="20", on_deadline="Rollback")
    green = sim.pending
    annotate(sim, progress_deadline="20", on_deadline="Rollback", pause="true")
    await sim.run(90)
    assert sim.condition("UpgradeStalled") == ("", "")
    annotate(sim, progress_deadline="20", on_deadline="Rollback")
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_an_aborted_upgrade_rolls_back_and_stays_there(weight: int) -> None:
    sim = await at_weight(weight)
    blue, green = sim.active, sim.pending
    annotate(sim, abort="true")
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=15)
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights) == (blue, {blue: 100})
    assert sim.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert sim.reasons().count("UpgradeAborted") == 1
    await sim.run(70)
    assert (sim.clusters, await is_at_rest(sim)) == ([blue], True)
    assert messages(sim, blue) == {"v1"}
    assert messages(sim, green) <= {"v2"}


@pytest.mark.parametrize("weight", one_of(2, [25, 75]))
async def test_an_abort_takes_all_traffic_back_at_once_whatever_the_steps_are(weight: int) -> None:
    sim = await at_weight(weight, strategy=a_strategy(surge=100, step=25, interval=50))
    annotate(sim, abort="true")
    await sim.until(lambda: sim.weights[sim.active] == 100, seconds=5)


async def test_an_abort_that_is_taken_away_lets_the_upgrade_begin_again() -> None:
    sim = await at_weight(50)
    blue = sim.active
    annotate(sim, abort="true")
    await sim.until(sim.is_complete, seconds=60)
    annotate(sim)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    assert (sim.condition("UpgradeAborted"), messages(sim, sim.active)) == (("", ""), {"v2"})


async def test_an_abort_of_one_generation_is_void_for_the_next() -> None:
    sim = await at_weight(50)
    blue = sim.active
    number = str(sim.service["metadata"]["generation"])
    annotate(sim, abort=number)
    await sim.until(sim.is_complete, seconds=60)
    await sim.run(30)
    assert (sim.active, sim.pending) == (blue, "")
    sim.apply(config=RED, upgradeStrategy=STEPS, annotations=held(abort=number))
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    assert sim.condition("UpgradeAborted") == ("", "")


async def test_an_abort_goes_before_a_pause_and_before_a_promotion() -> None:
    sim = await at_weight(50)
    blue = sim.active
    annotate(sim, abort="true", pause="true", promote="true")
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights) == (blue, {blue: 100})


async def test_an_abort_holds_before_an_upgrade_begins_and_where_there_is_none_it_is_void() -> None:
    sim = await a_running_pair(upgradeStrategy=STEPS, annotations=held(abort="true"))
    blue = sim.active
    assert sim.condition("UpgradeAborted") == ("", "")
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=held(abort="true"))
    await sim.run(30)
    assert (sim.clusters, sim.condition("UpgradeAborted")[0], messages(sim, blue)) == (
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
    sim = await at_weight(50)
    blue = sim.active
    sim.writes.count = 0
    setattr(sim, side, write)
    annotate(sim, abort="true")
    await sim.until(sim.is_complete, seconds=60)
    assert sim.writes.count >= write, "or there was no death"
    assert (sim.active, sim.weights, messages(sim, blue)) == (blue, {blue: 100}, {"v1"})
    assert (sim.condition("UpgradeAborted")[0], len(sim.clusters)) == ("True", 2)


async def test_a_promoted_upgrade_skips_steps() -> None:
    sim = await at_weight(5, strategy=SLOW)
    green = sim.pending
    begun = sim.clock.monotonic()
    annotate(sim, promote="true")
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)
    assert sim.clock.monotonic() - begun < 15
    assert sim.capacities(green) == [0, 20, 100]


async def test_a_promoted_upgrade_skips_no_capacity_check() -> None:
    sim = await at_weight(5, strategy=SLOW)
    green = sim.pending
    sim.serve.head(f"{green}-head-svc").deploy_seconds = 30
    annotate(sim, promote=str(sim.service["metadata"]["generation"]))
    await sim.run(25)
    assert (sim.weights[green], sim.capacities(green)[-1]) == (20, 100), (
        "what it was seen to carry, and no more"
    )
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)


async def test_a_promotion_overrides_a_pause() -> None:
    sim = await at_weight(25)
    green = sim.pending
    annotate(sim, pause="true")
    await sim.run(20)
    annotate(sim, pause="true", promote="true")
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)


async def test_a_promotion_of_another_generation_is_void() -> None:
    sim = await at_weight(5, strategy=SLOW)
    annotate(sim, promote="1")
    await sim.run(30)
    assert sim.view.weights == (95, 5)


async def test_a_value_that_cannot_be_meant_is_reported_once_and_the_default_holds() -> None:
    sim = await at_weight(25, pause="yes", progress_deadline="-1")
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)
    sim.restart()
    await sim.run(370)
    notes = [note for _, reason, note in sim.kube.events() if reason == "InvalidAnnotation"]
    assert notes == [
        'raybus.io/pause "yes" is not "true" or "false"; it counts as absent; raybus.io/progress-deadline "-1" is not a '
        "positive duration such as 10m or a number of seconds; 10m0s holds"
    ]
    assert sim.condition("InvalidAnnotations") == ("True", "InvalidValue")
    annotate(sim)
    await sim.run(5)
    assert sim.condition("InvalidAnnotations") == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("moment", one_of(3, [3.0, 0.5, 6.0]))
async def test_a_clock_that_is_set_neither_stops_an_upgrade_nor_counts_as_time(
    hours: int, moment: float
) -> None:
    sim = await a_running_pair(upgradeStrategy=STEPS)
    blue = sim.active
    annotations = held(progress_deadline="30", on_deadline="Rollback")
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await sim.run(moment)
    sim.jump(timedelta(hours=hours))
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    assert "UpgradeStalled" not in sim.reasons()


async def test_a_lost_pending_cluster_is_made_again_while_the_upgrade_is_paused_and_gets_nothing() -> (
    None
):
    sim = await at_weight(50)
    annotate(sim, pause="true")
    await sim.run(2)
    await sim.kube.delete(RAY_CLUSTER, "default", sim.pending)
    await sim.run(30)
    assert sim.view.weights == (100, 0)
