"""What users do to a blue/green upgrade while it is pending, and its deadline; annotations `raybus.io/…`."""

import pytest

from common.kube.resources import RAY_CLUSTER
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.simulator.simulator import Simulator, a_running_simulator

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
V2 = a_serve_config(message="v2")
MISSING = a_serve_config(import_path="missing:app", message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def messages(sim: Simulator, cluster: str) -> set[str]:
    puts = sim.serve.head(f"{cluster}-head-svc").puts
    return {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in puts}


async def is_at_rest(sim: Simulator) -> bool:
    """Return whether nothing is written, not even an Event."""
    before = len(sim.writes.lines)
    await sim.run(30)
    return len(sim.writes.lines) == before


async def test_a_pause_holds_the_switch_and_no_preparation() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN, serve=V2, annotations=held(pause="true"))
    await sim.run(15)
    green = sim.pending
    assert (sim.active, sim.selected(), messages(sim, green)) == (blue, blue, {"v2"})
    assert sim.condition("UpgradePaused") == ("True", "PauseRequested")
    assert await is_at_rest(sim)
    sim.apply(config=GREEN, serve=V2)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=5)
    assert sim.selected() == green


async def test_a_first_start_is_no_upgrade_to_pause_or_to_abort() -> None:
    sim = await a_running_simulator(annotations=held(pause="true", abort="true"))
    assert (sim.condition("UpgradePaused"), sim.condition("UpgradeAborted")) == (("", ""), ("", ""))


@pytest.mark.parametrize("seconds", [0.25, 1, 2, 3])
async def test_an_aborted_upgrade_loses_its_cluster_and_begins_no_other(seconds: float) -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN, serve=V2)
    await sim.run(seconds)
    assert sim.pending
    sim.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await sim.run(70)
    assert (sim.clusters, sim.active, sim.selected(), sim.pending) == ([blue], blue, blue, "")
    assert sim.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert (messages(sim, blue), await is_at_rest(sim)) == ({"v1"}, True)
    sim.apply(config=GREEN, serve=V2)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)
    assert sim.condition("UpgradeAborted") == ("", "")


async def test_an_aborted_generation_gets_no_worker_group_and_no_serve_config_either() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    number = str(sim.service["metadata"]["generation"] + 1)
    sim.apply(config=GREEN, serve=V2, annotations=held(abort=number))
    await sim.run(20)
    assert (sim.clusters, messages(sim, blue)) == ([blue], {"v1"})
    sim.apply(config=RED, serve=V2, annotations=held(abort=number))
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)


async def test_an_abort_after_the_switch_comes_too_late() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN, serve=V2)
    await sim.until(lambda: sim.selected() != blue, seconds=30)
    green = sim.selected()
    sim.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await sim.until(sim.is_complete, seconds=10)
    assert (sim.active, sim.condition("UpgradeAborted")) == (green, ("", ""))


@pytest.mark.parametrize("policy", ["Wait", "Pause", "Rollback"])
async def test_a_config_that_never_runs_is_named_at_the_deadline(policy: str) -> None:
    sim = await a_running_simulator()
    blue = sim.active
    annotations = held(progress_deadline="20", on_deadline=policy)
    sim.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await sim.run(40)
    notes = [note for _, reason, note in sim.kube.events() if reason == "UpgradeStalled"]
    assert [each.partition(":")[0] for each in notes] == ["ApplicationNotReady"]
    assert "application app is DEPLOY_FAILED" in notes[0]
    is_over = policy == "Rollback"
    assert (bool(sim.pending), sim.condition("UpgradeAborted")[0] == "True") == (
        not is_over,
        is_over,
    )
    assert sim.condition("UpgradeStalled")[0] == ("" if is_over else "True")
    assert sim.condition("UpgradePaused")[0] == ("True" if policy == "Pause" else "")
    await sim.run(60)
    sim.restart()
    await sim.run(1)
    assert await is_at_rest(sim)
    assert (sim.active, messages(sim, blue)) == (blue, {"v1"})


async def test_a_config_that_is_corrected_after_a_rollback_is_tried() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    sim.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await sim.until(lambda: sim.condition("UpgradeAborted")[0] == "True", seconds=40)
    sim.apply(config=GREEN, serve=V2, annotations=annotations)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)
    assert messages(sim, sim.active) == {"v2"}


async def test_a_cluster_that_cannot_be_created_stalls_too() -> None:
    sim = await a_running_simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, serve=V2, annotations=held(progress_deadline="15"))
    await sim.run(5)
    await sim.kube.delete(RAY_CLUSTER, "default", sim.pending)
    await sim.run(30)
    assert sim.condition("UpgradeStalled") == ("True", "ProgressDeadlineExceeded")


async def test_suspend_forgets_the_messages_of_an_upgrade() -> None:
    sim = await a_running_simulator()
    sim.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await sim.run(5)
    sim.apply(config=GREEN, serve=V2, annotations=held(abort="true"), suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True", seconds=30)
    assert sim.condition("UpgradeAborted") == ("", "")
