"""A service that another operator upgraded until now: nobody recorded what its clusters serve."""

from common.kube.resources import CONTROLLER_REVISION
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from scenario.upgrade.test_controls import STEPS, V2, is_at_rest, messages


async def taken_over(*, reports: bool) -> Pair:
    """Return an upgrade in mid-way of which no record is left."""
    harness = await a_running_pair(upgradeStrategy=STEPS)
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    for name in (harness.active, harness.pending):
        harness.serve.head(f"{name}-head-svc").reports_configs = reports
    for each in harness.kube.all(CONTROLLER_REVISION):
        await harness.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    harness.restart()
    return harness


async def test_a_rollback_follows_what_serve_reports_of_the_active_cluster() -> None:
    harness = await taken_over(reports=True)
    blue = harness.active
    harness.apply(config=BLUE, upgradeStrategy=STEPS)
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights, messages(harness, blue)) == (blue, {blue: 100}, {"v1"})
    assert "ServeConfigUnknown" not in harness.reasons()


async def test_a_rollback_without_a_known_config_is_reported_and_a_roll_forward_is_possible() -> (
    None
):
    harness = await taken_over(reports=False)
    green = harness.pending
    harness.apply(config=BLUE, upgradeStrategy=STEPS)
    await harness.run(20)
    assert "nobody recorded its Serve config" in harness.message("UpgradeInProgress")
    assert (harness.reasons().count("ServeConfigUnknown"), await is_at_rest(harness)) == (1, True)
    harness.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)
