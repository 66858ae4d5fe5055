"""What users do to an upgrade in steps while it runs: pause, resume, promote, abort; annotations `raybus.io/…`."""

from datetime import timedelta
from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from scenario.upgrade.world import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy
from support.sampling import one_of

STEPS = a_strategy(surge=50, step=25, interval=2)
SLOW = a_strategy(surge=20, step=5, interval=60)
V2 = a_serve_config(message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def say(world: Pair, **annotations: str) -> None:
    """Set the annotations of the service, and nothing else."""
    spec: Json = world.service["spec"]
    given: dict[str, Any] = {
        key: value for key, value in spec.items() if key not in {"rayClusterConfig", "serveConfigV2"}
    }
    world.apply(config=spec["rayClusterConfig"], serve=spec["serveConfigV2"], annotations=held(**annotations), **given)


async def at_weight(weight: int, *, strategy: Json = STEPS, **annotations: str) -> Pair:
    """Return an upgrade to green in which the pending cluster has a share of the traffic."""
    world = await a_running_pair(upgradeStrategy=strategy, annotations=held(**annotations))
    world.apply(config=GREEN, serve=V2, upgradeStrategy=strategy, annotations=held(**annotations))
    await world.until(lambda: world.view.weights[1] == weight, seconds=300)
    return world


def messages(world: Pair, cluster: str) -> set[str]:
    return {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(cluster)}


async def is_at_rest(world: Pair, *, seconds: float = 30) -> bool:
    """Tell whether nothing is written, not even an Event."""
    before = len(world.told)
    await world.run(seconds)
    return len(world.told) == before


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_a_paused_upgrade_stays_where_it_is_and_goes_on_from_there(weight: int) -> None:
    world = await at_weight(weight)
    blue, green = world.active, world.pending
    say(world, pause="true")
    await world.run(15)
    view = world.view
    assert await is_at_rest(world)
    assert (world.view, view.weights) == (view, (100 - weight, weight))
    assert world.condition("UpgradePaused") == ("True", "PauseRequested")
    assert "paused by raybus.io/pause" in world.message("UpgradeInProgress")
    say(world)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)
    assert (world.weights, blue in world.weights) == ({green: 100}, False)
    assert world.condition("UpgradePaused") == ("", "")
    assert (world.reasons().count("UpgradePaused"), world.reasons().count("UpgradeResumed")) == (1, 1)


async def test_a_pause_in_the_last_moment_holds_the_promotion() -> None:
    world = await at_weight(75)
    blue, green = world.active, world.pending
    world.is_service_down = True
    await world.until(lambda: world.weights[green] == 100, seconds=20)
    say(world, pause="true")
    world.is_service_down = False
    await world.run(60)
    assert (world.active, world.pending) == (blue, green)
    say(world)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=20)


async def test_a_sick_pending_cluster_gives_its_share_back_although_it_is_paused() -> None:
    world = await at_weight(50)
    say(world, pause="true")
    world.serve.head(f"{world.pending}-head-svc").behaviour = "silent"
    await world.run(30)
    assert (world.view.weights, world.view.capacities[0]) == ((100, 0), 100)


async def test_a_pause_does_not_close_the_way_back() -> None:
    world = await at_weight(50)
    blue = world.active
    say(world, pause="true")
    await world.run(5)
    world.apply(config=BLUE, upgradeStrategy=STEPS, annotations=held(pause="true"))
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights) == (blue, {blue: 100})


async def test_the_time_of_a_pause_does_not_count_against_the_deadline() -> None:
    world = await at_weight(50, progress_deadline="20", on_deadline="Rollback")
    green = world.pending
    say(world, progress_deadline="20", on_deadline="Rollback", pause="true")
    await world.run(90)
    assert world.condition("UpgradeStalled") == ("", "")
    say(world, progress_deadline="20", on_deadline="Rollback")
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)


@pytest.mark.parametrize("weight", one_of(2, [0, 25, 50, 75]))
async def test_an_aborted_upgrade_goes_back_and_stays_there(weight: int) -> None:
    world = await at_weight(weight)
    blue, green = world.active, world.pending
    say(world, abort="true")
    await world.until(lambda: world.weights.get(blue) == 100, seconds=15)
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights) == (blue, {blue: 100})
    assert world.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert world.reasons().count("UpgradeAborted") == 1
    await world.run(70)
    assert (world.clusters, await is_at_rest(world)) == ([blue], True)
    assert messages(world, blue) == {"v1"}
    assert messages(world, green) <= {"v2"}


@pytest.mark.parametrize("weight", one_of(2, [25, 75]))
async def test_an_abort_takes_all_traffic_back_at_once_whatever_the_steps_are(weight: int) -> None:
    world = await at_weight(weight, strategy=a_strategy(surge=100, step=25, interval=50))
    say(world, abort="true")
    await world.until(lambda: world.weights[world.active] == 100, seconds=5)


async def test_an_abort_that_is_taken_away_lets_the_upgrade_begin_again() -> None:
    world = await at_weight(50)
    blue = world.active
    say(world, abort="true")
    await world.until(world.is_settled, seconds=60)
    say(world)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    assert (world.condition("UpgradeAborted"), messages(world, world.active)) == (("", ""), {"v2"})


async def test_an_abort_of_one_generation_is_void_for_the_next() -> None:
    world = await at_weight(50)
    blue = world.active
    number = str(world.service["metadata"]["generation"])
    say(world, abort=number)
    await world.until(world.is_settled, seconds=60)
    await world.run(30)
    assert (world.active, world.pending) == (blue, "")
    world.apply(config=RED, upgradeStrategy=STEPS, annotations=held(abort=number))
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    assert world.condition("UpgradeAborted") == ("", "")


async def test_an_abort_goes_before_a_pause_and_before_a_promotion() -> None:
    world = await at_weight(50)
    blue = world.active
    say(world, abort="true", pause="true", promote="true")
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights) == (blue, {blue: 100})


async def test_an_abort_holds_before_an_upgrade_begins_and_where_there_is_none_it_is_void() -> None:
    world = await a_running_pair(upgradeStrategy=STEPS, annotations=held(abort="true"))
    blue = world.active
    assert world.condition("UpgradeAborted") == ("", "")
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=held(abort="true"))
    await world.run(30)
    assert (world.clusters, world.condition("UpgradeAborted")[0], messages(world, blue)) == ([blue], "True", {"v1"})


@pytest.mark.long
@pytest.mark.parametrize("write", one_of(3, range(1, 17, 3)))
@pytest.mark.parametrize("side", ["kill_before", "kill_after"])
async def test_a_death_around_any_write_of_an_abort_changes_nothing_but_the_time(side: str, write: int) -> None:
    world = await at_weight(50)
    blue = world.active
    world.writes = 0
    setattr(world, side, write)
    say(world, abort="true")
    await world.until(world.is_settled, seconds=60)
    assert world.writes >= write, "or there was no death"
    assert (world.active, world.weights, messages(world, blue)) == (blue, {blue: 100}, {"v1"})
    assert (world.condition("UpgradeAborted")[0], len(world.clusters)) == ("True", 2)


async def test_a_promoted_upgrade_skips_steps() -> None:
    world = await at_weight(5, strategy=SLOW)
    green = world.pending
    begun = world.clock.monotonic()
    say(world, promote="true")
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)
    assert world.clock.monotonic() - begun < 15
    assert world.capacities(green) == [0, 20, 100]


async def test_a_promoted_upgrade_skips_no_proof() -> None:
    world = await at_weight(5, strategy=SLOW)
    green = world.pending
    world.serve.head(f"{green}-head-svc").deploy_seconds = 30
    say(world, promote=str(world.service["metadata"]["generation"]))
    await world.run(25)
    assert (world.weights[green], world.capacities(green)[-1]) == (20, 100), "what it was seen to carry, and no more"
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)


async def test_a_promotion_overrides_a_pause() -> None:
    world = await at_weight(25)
    green = world.pending
    say(world, pause="true")
    await world.run(20)
    say(world, pause="true", promote="true")
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)


async def test_a_promotion_of_another_generation_is_void() -> None:
    world = await at_weight(5, strategy=SLOW)
    say(world, promote="1")
    await world.run(30)
    assert world.view.weights == (95, 5)


async def test_a_value_that_cannot_be_meant_is_told_once_and_the_default_holds() -> None:
    world = await at_weight(25, pause="yes", progress_deadline="-1")
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)
    world.restart()
    await world.run(370)
    told = [note for _, reason, note in world.kube.events() if reason == "InvalidAnnotation"]
    assert told == [
        'raybus.io/pause "yes" is not "true" or "false"; it counts as absent; raybus.io/progress-deadline "-1" is not a '
        "positive duration such as 10m or a number of seconds; 10m0s holds"
    ]
    assert world.condition("InvalidAnnotations") == ("True", "InvalidValue")
    say(world)
    await world.run(5)
    assert world.condition("InvalidAnnotations") == ("", "")


@pytest.mark.long
@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("moment", one_of(3, [3.0, 0.5, 6.0]))
async def test_a_clock_that_is_set_neither_stops_an_upgrade_nor_counts_as_time(hours: int, moment: float) -> None:
    world = await a_running_pair(upgradeStrategy=STEPS)
    blue = world.active
    annotations = held(progress_deadline="30", on_deadline="Rollback")
    world.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS, annotations=annotations)
    await world.run(moment)
    world.jump(timedelta(hours=hours))
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    assert "UpgradeStalled" not in world.reasons()


async def test_a_lost_pending_cluster_is_made_again_while_the_upgrade_is_paused_and_gets_nothing() -> None:
    world = await at_weight(50)
    say(world, pause="true")
    await world.run(2)
    await world.kube.delete(RAY_CLUSTER, "default", world.pending)
    await world.run(30)
    assert world.view.weights == (100, 0)
