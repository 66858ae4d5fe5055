"""A service that another operator upgraded until now: nobody recorded what its clusters serve."""

from common.kube.resources import CONTROLLER_REVISION
from scenario.upgrade.test_controls import STEPS, V2, is_at_rest, messages
from support.simulator.simulator import BLUE, GREEN, Simulator, a_running_pair


async def taken_over(*, reports: bool) -> Simulator:
    """Return an upgrade in mid-way of which no record is left."""
    sim = await a_running_pair(upgradeStrategy=STEPS)
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    for name in (sim.active, sim.pending):
        sim.serve.head(f"{name}-head-svc").reports_configs = reports
    for each in sim.kube.all(CONTROLLER_REVISION):
        await sim.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
    sim.restart()
    return sim


async def test_a_rollback_follows_what_serve_reports_of_the_active_cluster() -> None:
    sim = await taken_over(reports=True)
    blue = sim.active
    sim.apply(config=BLUE, upgradeStrategy=STEPS)
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights, messages(sim, blue)) == (blue, {blue: 100}, {"v1"})
    assert "ServeConfigUnknown" not in sim.reasons()


async def test_a_rollback_without_a_known_config_is_reported_and_a_roll_forward_is_possible() -> (
    None
):
    sim = await taken_over(reports=False)
    green = sim.pending
    sim.apply(config=BLUE, upgradeStrategy=STEPS)
    await sim.run(20)
    assert "nobody recorded its Serve config" in sim.message("UpgradeInProgress")
    assert (sim.reasons().count("ServeConfigUnknown"), await is_at_rest(sim)) == (1, True)
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=STEPS)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)
