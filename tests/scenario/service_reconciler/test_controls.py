"""What users do to a blue/green upgrade while it is pending, and its deadline; annotations `raybus.io/…`."""

import pytest

from common.kube.resources import RAY_CLUSTER
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import a_cluster_config, a_serve_config

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
V2 = a_serve_config(message="v2")
MISSING = a_serve_config(import_path="missing:app", message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def messages(world: World, cluster: str) -> set[str]:
    puts = world.serve.head(f"{cluster}-head-svc").puts
    return {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in puts}


async def is_at_rest(world: World) -> bool:
    """Tell whether nothing is written, not even an Event."""
    before = len(world.told)
    await world.run(30)
    return len(world.told) == before


async def test_a_pause_holds_the_switch_and_no_preparation() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN, serve=V2, annotations=held(pause="true"))
    await world.run(15)
    green = world.pending
    assert (world.active, world.selected(), messages(world, green)) == (blue, blue, {"v2"})
    assert world.condition("UpgradePaused") == ("True", "PauseRequested")
    assert await is_at_rest(world)
    world.apply(config=GREEN, serve=V2)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=5)
    assert world.selected() == green


async def test_a_first_start_is_no_upgrade_to_pause_or_to_abort() -> None:
    world = await a_running_world(annotations=held(pause="true", abort="true"))
    assert (world.condition("UpgradePaused"), world.condition("UpgradeAborted")) == (("", ""), ("", ""))


@pytest.mark.parametrize("seconds", [0.25, 1, 2, 3])
async def test_an_aborted_upgrade_loses_its_cluster_and_begins_no_other(seconds: float) -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN, serve=V2)
    await world.run(seconds)
    assert world.pending
    world.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await world.run(70)
    assert (world.clusters, world.active, world.selected(), world.pending) == ([blue], blue, blue, "")
    assert world.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert (messages(world, blue), await is_at_rest(world)) == ({"v1"}, True)
    world.apply(config=GREEN, serve=V2)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=30)
    assert world.condition("UpgradeAborted") == ("", "")


async def test_an_aborted_generation_gets_no_worker_group_and_no_serve_config_either() -> None:
    world = await a_running_world()
    blue = world.active
    number = str(world.service["metadata"]["generation"] + 1)
    world.apply(config=GREEN, serve=V2, annotations=held(abort=number))
    await world.run(20)
    assert (world.clusters, messages(world, blue)) == ([blue], {"v1"})
    world.apply(config=RED, serve=V2, annotations=held(abort=number))
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=30)


async def test_an_abort_after_the_switch_comes_too_late() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN, serve=V2)
    await world.until(lambda: world.selected() != blue, seconds=30)
    green = world.selected()
    world.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await world.until(world.is_settled, seconds=10)
    assert (world.active, world.condition("UpgradeAborted")) == (green, ("", ""))


@pytest.mark.parametrize("policy", ["Wait", "Pause", "Rollback"])
async def test_a_config_that_never_runs_is_named_at_the_deadline(policy: str) -> None:
    world = await a_running_world()
    blue = world.active
    annotations = held(progress_deadline="20", on_deadline=policy)
    world.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await world.run(40)
    told = [note for _, reason, note in world.kube.events() if reason == "UpgradeStalled"]
    assert [each.partition(":")[0] for each in told] == ["ApplicationNotReady"]
    assert "application app is DEPLOY_FAILED" in told[0]
    is_over = policy == "Rollback"
    assert (bool(world.pending), world.condition("UpgradeAborted")[0] == "True") == (not is_over, is_over)
    assert world.condition("UpgradeStalled")[0] == ("" if is_over else "True")
    assert world.condition("UpgradePaused")[0] == ("True" if policy == "Pause" else "")
    await world.run(60)
    world.restart()
    await world.run(1)
    assert await is_at_rest(world)
    assert (world.active, messages(world, blue)) == (blue, {"v1"})


async def test_a_config_that_is_mended_after_a_rollback_is_tried() -> None:
    world = await a_running_world()
    blue = world.active
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    world.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await world.until(lambda: world.condition("UpgradeAborted")[0] == "True", seconds=40)
    world.apply(config=GREEN, serve=V2, annotations=annotations)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=30)
    assert messages(world, world.active) == {"v2"}


async def test_a_cluster_that_cannot_be_created_stalls_too() -> None:
    world = await a_running_world()
    world.holds_pods = True
    world.apply(config=GREEN, serve=V2, annotations=held(progress_deadline="15"))
    await world.run(5)
    await world.kube.delete(RAY_CLUSTER, "default", world.pending)
    await world.run(30)
    assert world.condition("UpgradeStalled") == ("True", "ProgressDeadlineExceeded")


async def test_suspend_forgets_what_was_said_of_an_upgrade() -> None:
    world = await a_running_world()
    world.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await world.run(5)
    world.apply(config=GREEN, serve=V2, annotations=held(abort="true"), suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True", seconds=30)
    assert world.condition("UpgradeAborted") == ("", "")
