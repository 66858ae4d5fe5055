"""What counts as evidence that a cluster does not serve, and what an unproven version gets for it (ADR 41)."""

from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, UPGRADE_POLICY
from scenario.upgrade.test_health import FULL, halfway
from scenario.upgrade.test_upgrade_policy import FOLLOWS, GATED, Traffic, at_weight
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.simulator.simulator import BLUE, GREEN, Simulator, a_pair, a_running_pair

AT_ONCE = a_strategy(surge=100, step=100, interval=1)
BOTH = f"{a_serve_config()}- name: other\n  import_path: other:main\n  route_prefix: /other\n"
SLOW: Json = {**GATED, "steps": [{"weight": 10, "hold": "120s"}, {"weight": 50}, {"weight": 100}]}
STATES = ["DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED"]


def head(sim: Simulator, name: str) -> Any:
    return sim.serve.head(f"{name}-head-svc")


def shown(status: str, *, running: int = 0, target: int = 2, node: str = "") -> Json:
    """Return an application as Serve shows it."""
    replicas = [{"state": "RUNNING", "node_ip": node}] * running
    model = {"status": "HEALTHY", "target_num_replicas": target, "replicas": replicas}
    return {"status": status, "deployments": {"Model": model}}


def end_pods(sim: Simulator, name: str) -> None:
    for role in ("head", "worker"):
        sim.kube.set_status(POD, NAMESPACE, f"{name}-{role}", {"phase": "Failed"})


def not_carried(sim: Simulator) -> list[str]:
    return [note for _, reason, note in sim.kube.events() if reason == "TrafficNotCarried"]


async def begin_gated(sim: Simulator, *, failing: float = 1.0, **fields: Any) -> Traffic:
    """Begin an upgrade with gates to a version that fails this fraction of its requests."""
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=SLOW, namespace=NAMESPACE))
    traffic = Traffic(sim)
    sim.apply(config=GREEN, upgradeStrategy=AT_ONCE, annotations=FOLLOWS, **fields)
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters)
    traffic.failing[sim.pending] = failing
    return traffic


async def most_traffic(sim: Simulator, *, seconds: float) -> int:
    """Return the most that the pending cluster gets in some time."""
    most, name = 0, sim.pending
    for _ in range(round(seconds)):
        await sim.run(1)
        most = max(most, sim.weights.get(name, 0))
    return most


# --- an application without replicas on the active cluster ---------------------------------------


@pytest.mark.parametrize("status", STATES)
async def test_an_application_that_code_deployed_opens_no_gate(status: str) -> None:
    sim = await a_running_pair(upgradeStrategy=AT_ONCE)
    head(sim, sim.active).shows = {"mine": shown(status)}
    await sim.run(10)
    await begin_gated(sim)
    assert await most_traffic(sim, seconds=60) == 10
    assert not not_carried(sim)


@pytest.mark.parametrize("status", STATES)
async def test_an_application_that_never_served_opens_no_gate(status: str) -> None:
    sim = a_pair()
    sim.apply(upgradeStrategy=AT_ONCE, serve=a_serve_config())
    await sim.until(lambda: sim.is_complete() and bool(sim.weights))
    blue = sim.active
    head(sim, blue).shows = {"other": shown(status)}
    sim.apply(upgradeStrategy=AT_ONCE, serve=BOTH)
    await sim.until(lambda: "other" in str(sim.puts(blue)[-1]))
    await sim.run(10)
    await begin_gated(sim, serve=BOTH)
    assert await most_traffic(sim, seconds=60) == 10


async def two_applications(*, gated: bool, failing: float = 0.0) -> tuple[Simulator, Traffic]:
    """Return an upgrade in which the active cluster serves two applications."""
    sim = await a_running_pair(upgradeStrategy=AT_ONCE, serve=BOTH)
    if gated:
        traffic = await begin_gated(sim, failing=failing, serve=BOTH)
    else:
        traffic, strategy = Traffic(sim), a_strategy(surge=100, step=10, interval=600)
        sim.apply(config=GREEN, upgradeStrategy=strategy, serve=BOTH)
        await sim.until(lambda: bool(sim.pending))
    await at_weight(sim, 10, seconds=700)
    return sim, traffic


async def test_a_lost_application_gives_an_unproven_version_its_steps_and_no_more() -> None:
    sim, _ = await two_applications(gated=True, failing=1.0)
    head(sim, sim.active).shows = {"other": shown("UNHEALTHY")}
    assert await most_traffic(sim, seconds=30) == 10
    assert any("no replica of other/Model is running" in each for each in not_carried(sim))
    assert any("has not passed its UpgradePolicy" in each for each in not_carried(sim))


async def test_a_lost_application_leaves_all_traffic_to_a_version_without_gates() -> None:
    sim, _ = await two_applications(gated=False)
    green = sim.pending
    head(sim, sim.active).shows = {"other": shown("UNHEALTHY")}
    await sim.run(5)
    assert sim.weights[green] == 100


async def test_a_version_that_passed_its_gates_takes_over_a_lost_application() -> None:
    sim, _ = await two_applications(gated=True)
    green = sim.pending
    await sim.run(60)
    assert sim.weights[green] == 10, "its step holds for 120 s"
    head(sim, sim.active).shows = {"other": shown("UNHEALTHY")}
    await sim.run(4)
    assert sim.weights[green] == 100


async def test_a_version_that_failed_its_gates_gets_traffic_only_if_nothing_else_answers() -> None:
    sim, traffic = await two_applications(gated=True, failing=1.0)
    blue, green = sim.active, sim.pending
    sim.services["service"].is_down = True
    await sim.until(lambda: sim.weights[blue] == 100, seconds=60)
    node = f"ip-{blue}-worker"
    head(sim, blue).shows = {
        "app": shown("RUNNING", running=1, node=node),
        "other": shown("UNHEALTHY"),
    }
    await sim.run(20)
    assert sim.weights == {blue: 100, green: 0}
    assert any("has failed the gate" in each for each in not_carried(sim))
    end_pods(sim, blue)
    await sim.run(5)
    assert sim.weights[green] == 100
    assert traffic.sent[green] > 0


async def test_an_application_that_serves_nowhere_does_not_keep_another_one_from_its_requests() -> (
    None
):
    sim, _ = await two_applications(gated=False)
    blue, green = sim.active, sim.pending
    head(sim, green).shows = {"other": shown("DEPLOY_FAILED")}
    await sim.run(5)
    end_pods(sim, blue)
    await sim.run(5)
    assert sim.weights[green] == 100


async def test_an_undeclared_application_does_not_hold_a_blue_green_upgrade() -> None:
    sim = a_pair()
    sim.apply(upgradeStrategy={"type": "NewCluster"})
    await sim.until(sim.is_complete)
    sim.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await sim.until(lambda: bool(sim.pending))
    green = sim.pending
    head(sim, green).shows = {"mine": shown("DEPLOYING")}
    await sim.until(lambda: sim.active == green, seconds=60)


# --- dashboards without an answer ----------------------------------------------------------------


@pytest.mark.parametrize("first", ["active", "pending"])
@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
async def test_silence_of_both_dashboards_moves_nothing(first: str, is_back: bool) -> None:
    strategy = a_strategy(surge=25, step=5, interval=600)
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.view.weights[1] == 5, seconds=700)
    names = {"active": sim.active, "pending": sim.pending}
    if is_back:
        sim.apply(config=BLUE, upgradeStrategy=strategy)
        await sim.run(2)
        assert sim.is_rolling_back()
    held = sim.weights
    for name in names.values():
        head(sim, name).behaviour = "silent"
    await sim.run(30)
    head(sim, names[first]).behaviour = "ok"
    await sim.run(10)
    assert sim.weights == held
    for name in names.values():
        head(sim, name).behaviour = "ok"
    await sim.run(10)
    assert sim.weights == held


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_silence_of_one_dashboard_moves_nothing(victim: str, is_back: bool) -> None:
    sim = await halfway()
    name = sim.active if victim == "active" else sim.pending
    if is_back:
        sim.apply(config=BLUE, upgradeStrategy=FULL)
        await sim.run(5)
    head(sim, name).behaviour = "silent"
    await sim.run(60)
    assert set(sim.weights.values()) == {50}
    assert not not_carried(sim)


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_what_dies_leaves_its_traffic_to_a_cluster_with_a_silent_dashboard(
    victim: str,
) -> None:
    sim = await halfway()
    dead, silent = (sim.active, sim.pending) if victim == "active" else (sim.pending, sim.active)
    head(sim, silent).behaviour = "silent"
    await sim.run(20)
    end_pods(sim, dead)
    await sim.run(5)
    assert sim.weights[silent] == 100


# --- capacity is counted from replicas -----------------------------------------------------------


SURVIVORS: dict[str, Json] = {
    "another application was removed": {"removed": shown("DELETING", target=0)},
    "another application is being deployed by code": {"mine": shown("DEPLOYING")},
}


@pytest.mark.parametrize("victim", ["active", "pending"])
@pytest.mark.parametrize("shows", SURVIVORS.values(), ids=SURVIVORS.keys())
async def test_a_survivor_takes_over_whatever_other_applications_do(
    shows: Json, victim: str
) -> None:
    sim = await halfway()
    dead, other = (sim.active, sim.pending) if victim == "active" else (sim.pending, sim.active)
    head(sim, other).shows = shows
    await sim.run(5)
    assert set(sim.weights.values()) == {50}
    end_pods(sim, dead)
    await sim.run(5)
    assert sim.weights[other] == 100


@pytest.mark.parametrize(
    ("status", "running"), [("DEPLOYING", 2), ("DEPLOYING", 3), ("RUNNING", 3)]
)
async def test_a_survivor_that_is_scaled_up_takes_over_with_the_replicas_that_it_had(
    status: str, running: int
) -> None:
    sim = await halfway()
    blue, green = sim.active, sim.pending
    node = f"ip-{green}-worker"
    head(sim, green).shows = {"app": shown(status, running=running, target=4, node=node)}
    await sim.run(2)
    end_pods(sim, blue)
    await sim.run(5)
    assert sim.weights[green] == 100


async def test_a_status_without_a_lost_replica_moves_nothing() -> None:
    sim = await halfway()
    for name in (sim.active, sim.pending):
        head(sim, name).shows = {"app": {"status": "UNHEALTHY"}}
    await sim.run(30)
    assert set(sim.weights.values()) == {50}
    assert not not_carried(sim)


async def test_replicas_on_a_node_that_is_not_ready_yet_are_not_lost() -> None:
    strategy = a_strategy(surge=100, step=10, interval=600)
    sim = await a_running_pair(upgradeStrategy=strategy)
    node = f"ip-{sim.active}-late"
    head(sim, sim.active).nodes = [node]
    sim.restart()
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.pending in sim.clusters)
    await sim.run(10)
    assert not not_carried(sim)
