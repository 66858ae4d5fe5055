"""What users do to a blue/green upgrade while it is pending, and its deadline; annotations `raybus.io/…`."""

import pytest

from common.kube.resources import RAY_CLUSTER
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import a_cluster_config, a_serve_config

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
V2 = a_serve_config(message="v2")
MISSING = a_serve_config(import_path="missing:app", message="v2")


def held(**annotations: str) -> dict[str, str]:
    """Return annotations of ours; an underscore stands for a hyphen."""
    return {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}


def messages(harness: Harness, cluster: str) -> set[str]:
    puts = harness.serve.head(f"{cluster}-head-svc").puts
    return {each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in puts}


async def is_at_rest(harness: Harness) -> bool:
    """Return whether nothing is written, not even an Event."""
    before = len(harness.written)
    await harness.run(30)
    return len(harness.written) == before


async def test_a_pause_holds_the_switch_and_no_preparation() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN, serve=V2, annotations=held(pause="true"))
    await harness.run(15)
    green = harness.pending
    assert (harness.active, harness.selected(), messages(harness, green)) == (blue, blue, {"v2"})
    assert harness.condition("UpgradePaused") == ("True", "PauseRequested")
    assert await is_at_rest(harness)
    harness.apply(config=GREEN, serve=V2)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=5)
    assert harness.selected() == green


async def test_a_first_start_is_no_upgrade_to_pause_or_to_abort() -> None:
    harness = await a_running_harness(annotations=held(pause="true", abort="true"))
    assert (harness.condition("UpgradePaused"), harness.condition("UpgradeAborted")) == (
        ("", ""),
        ("", ""),
    )


@pytest.mark.parametrize("seconds", [0.25, 1, 2, 3])
async def test_an_aborted_upgrade_loses_its_cluster_and_begins_no_other(seconds: float) -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN, serve=V2)
    await harness.run(seconds)
    assert harness.pending
    harness.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await harness.run(70)
    assert (harness.clusters, harness.active, harness.selected(), harness.pending) == (
        [blue],
        blue,
        blue,
        "",
    )
    assert harness.condition("UpgradeAborted") == ("True", "AbortRequested")
    assert (messages(harness, blue), await is_at_rest(harness)) == ({"v1"}, True)
    harness.apply(config=GREEN, serve=V2)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)
    assert harness.condition("UpgradeAborted") == ("", "")


async def test_an_aborted_generation_gets_no_worker_group_and_no_serve_config_either() -> None:
    harness = await a_running_harness()
    blue = harness.active
    number = str(harness.service["metadata"]["generation"] + 1)
    harness.apply(config=GREEN, serve=V2, annotations=held(abort=number))
    await harness.run(20)
    assert (harness.clusters, messages(harness, blue)) == ([blue], {"v1"})
    harness.apply(config=RED, serve=V2, annotations=held(abort=number))
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)


async def test_an_abort_after_the_switch_comes_too_late() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN, serve=V2)
    await harness.until(lambda: harness.selected() != blue, seconds=30)
    green = harness.selected()
    harness.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await harness.until(harness.is_complete, seconds=10)
    assert (harness.active, harness.condition("UpgradeAborted")) == (green, ("", ""))


@pytest.mark.parametrize("policy", ["Wait", "Pause", "Rollback"])
async def test_a_config_that_never_runs_is_named_at_the_deadline(policy: str) -> None:
    harness = await a_running_harness()
    blue = harness.active
    annotations = held(progress_deadline="20", on_deadline=policy)
    harness.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await harness.run(40)
    notes = [note for _, reason, note in harness.kube.events() if reason == "UpgradeStalled"]
    assert [each.partition(":")[0] for each in notes] == ["ApplicationNotReady"]
    assert "application app is DEPLOY_FAILED" in notes[0]
    is_over = policy == "Rollback"
    assert (bool(harness.pending), harness.condition("UpgradeAborted")[0] == "True") == (
        not is_over,
        is_over,
    )
    assert harness.condition("UpgradeStalled")[0] == ("" if is_over else "True")
    assert harness.condition("UpgradePaused")[0] == ("True" if policy == "Pause" else "")
    await harness.run(60)
    harness.restart()
    await harness.run(1)
    assert await is_at_rest(harness)
    assert (harness.active, messages(harness, blue)) == (blue, {"v1"})


async def test_a_config_that_is_corrected_after_a_rollback_is_tried() -> None:
    harness = await a_running_harness()
    blue = harness.active
    annotations = held(progress_deadline="20", on_deadline="Rollback")
    harness.apply(config=GREEN, serve=MISSING, annotations=annotations)
    await harness.until(lambda: harness.condition("UpgradeAborted")[0] == "True", seconds=40)
    harness.apply(config=GREEN, serve=V2, annotations=annotations)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)
    assert messages(harness, harness.active) == {"v2"}


async def test_a_cluster_that_cannot_be_created_stalls_too() -> None:
    harness = await a_running_harness()
    harness.holds_pods = True
    harness.apply(config=GREEN, serve=V2, annotations=held(progress_deadline="15"))
    await harness.run(5)
    await harness.kube.delete(RAY_CLUSTER, "default", harness.pending)
    await harness.run(30)
    assert harness.condition("UpgradeStalled") == ("True", "ProgressDeadlineExceeded")


async def test_suspend_forgets_the_messages_of_an_upgrade() -> None:
    harness = await a_running_harness()
    harness.apply(config=GREEN, serve=V2, annotations=held(abort="true"))
    await harness.run(5)
    harness.apply(config=GREEN, serve=V2, annotations=held(abort="true"), suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True", seconds=30)
    assert harness.condition("UpgradeAborted") == ("", "")
