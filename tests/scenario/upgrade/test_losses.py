"""What counts as evidence that a cluster does not serve, and what an unproven version gets for it (ADR 41)."""

from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, UPGRADE_POLICY
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from scenario.upgrade.test_health import FULL, halfway
from scenario.upgrade.test_upgrade_policy import FOLLOWS, GATED, Traffic, at_weight
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy

AT_ONCE = a_strategy(surge=100, step=100, interval=1)
BOTH = f"{a_serve_config()}- name: other\n  import_path: other:main\n  route_prefix: /other\n"
SLOW: Json = {**GATED, "steps": [{"weight": 10, "hold": "120s"}, {"weight": 50}, {"weight": 100}]}
STATES = ["DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED"]


def head(harness: Pair, name: str) -> Any:
    return harness.serve.head(f"{name}-head-svc")


def shown(status: str, *, running: int = 0, target: int = 2, node: str = "") -> Json:
    """Return an application as Serve shows it."""
    replicas = [{"state": "RUNNING", "node_ip": node}] * running
    model = {"status": "HEALTHY", "target_num_replicas": target, "replicas": replicas}
    return {"status": status, "deployments": {"Model": model}}


def end_pods(harness: Pair, name: str) -> None:
    for role in ("head", "worker"):
        harness.kube.set_status(POD, NAMESPACE, f"{name}-{role}", {"phase": "Failed"})


def not_carried(harness: Pair) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if reason == "TrafficNotCarried"]


async def begin_gated(harness: Pair, *, failing: float = 1.0, **fields: Any) -> Traffic:
    """Begin an upgrade with gates to a version that fails this fraction of its requests."""
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=SLOW, namespace=NAMESPACE))
    traffic = Traffic(harness)
    harness.apply(config=GREEN, upgradeStrategy=AT_ONCE, annotations=FOLLOWS, **fields)
    await harness.until(lambda: bool(harness.pending) and harness.pending in harness.clusters)
    traffic.failing[harness.pending] = failing
    return traffic


async def most_traffic(harness: Pair, *, seconds: float) -> int:
    """Return the most that the pending cluster gets in some time."""
    most, name = 0, harness.pending
    for _ in range(round(seconds)):
        await harness.run(1)
        most = max(most, harness.weights.get(name, 0))
    return most


# --- an application without replicas on the active cluster ---------------------------------------


@pytest.mark.parametrize("status", STATES)
async def test_an_application_that_code_deployed_opens_no_gate(status: str) -> None:
    harness = await a_running_pair(upgradeStrategy=AT_ONCE)
    head(harness, harness.active).shows = {"mine": shown(status)}
    await harness.run(10)
    await begin_gated(harness)
    assert await most_traffic(harness, seconds=60) == 10
    assert not not_carried(harness)


@pytest.mark.parametrize("status", STATES)
async def test_an_application_that_never_served_opens_no_gate(status: str) -> None:
    harness = Pair()
    harness.apply(upgradeStrategy=AT_ONCE, serve=a_serve_config())
    await harness.until(lambda: harness.is_complete() and bool(harness.weights))
    blue = harness.active
    head(harness, blue).shows = {"other": shown(status)}
    harness.apply(upgradeStrategy=AT_ONCE, serve=BOTH)
    await harness.until(lambda: "other" in str(harness.puts(blue)[-1]))
    await harness.run(10)
    await begin_gated(harness, serve=BOTH)
    assert await most_traffic(harness, seconds=60) == 10


async def two_applications(*, gated: bool, failing: float = 0.0) -> tuple[Pair, Traffic]:
    """Return an upgrade in which the active cluster serves two applications."""
    harness = await a_running_pair(upgradeStrategy=AT_ONCE, serve=BOTH)
    if gated:
        traffic = await begin_gated(harness, failing=failing, serve=BOTH)
    else:
        traffic, strategy = Traffic(harness), a_strategy(surge=100, step=10, interval=600)
        harness.apply(config=GREEN, upgradeStrategy=strategy, serve=BOTH)
        await harness.until(lambda: bool(harness.pending))
    await at_weight(harness, 10, seconds=700)
    return harness, traffic


async def test_a_lost_application_gives_an_unproven_version_its_steps_and_no_more() -> None:
    harness, _ = await two_applications(gated=True, failing=1.0)
    head(harness, harness.active).shows = {"other": shown("UNHEALTHY")}
    assert await most_traffic(harness, seconds=30) == 10
    assert any("no replica of other/Model is running" in each for each in not_carried(harness))
    assert any("has not passed its UpgradePolicy" in each for each in not_carried(harness))


async def test_a_lost_application_leaves_all_traffic_to_a_version_without_gates() -> None:
    harness, _ = await two_applications(gated=False)
    green = harness.pending
    head(harness, harness.active).shows = {"other": shown("UNHEALTHY")}
    await harness.run(5)
    assert harness.weights[green] == 100


async def test_a_version_that_passed_its_gates_takes_over_a_lost_application() -> None:
    harness, _ = await two_applications(gated=True)
    green = harness.pending
    await harness.run(60)
    assert harness.weights[green] == 10, "its step holds for 120 s"
    head(harness, harness.active).shows = {"other": shown("UNHEALTHY")}
    await harness.run(4)
    assert harness.weights[green] == 100


async def test_a_version_that_failed_its_gates_gets_traffic_only_if_nothing_else_answers() -> None:
    harness, traffic = await two_applications(gated=True, failing=1.0)
    blue, green = harness.active, harness.pending
    harness.is_service_down = True
    await harness.until(lambda: harness.weights[blue] == 100, seconds=60)
    node = f"ip-{blue}-worker"
    head(harness, blue).shows = {
        "app": shown("RUNNING", running=1, node=node),
        "other": shown("UNHEALTHY"),
    }
    await harness.run(20)
    assert harness.weights == {blue: 100, green: 0}
    assert any("has failed the gate" in each for each in not_carried(harness))
    end_pods(harness, blue)
    await harness.run(5)
    assert harness.weights[green] == 100
    assert traffic.sent[green] > 0


async def test_an_application_that_serves_nowhere_does_not_keep_another_one_from_its_requests() -> (
    None
):
    harness, _ = await two_applications(gated=False)
    blue, green = harness.active, harness.pending
    head(harness, green).shows = {"other": shown("DEPLOY_FAILED")}
    await harness.run(5)
    end_pods(harness, blue)
    await harness.run(5)
    assert harness.weights[green] == 100


async def test_an_undeclared_application_does_not_hold_a_blue_green_upgrade() -> None:
    harness = Pair()
    harness.apply(upgradeStrategy={"type": "NewCluster"})
    await harness.until(harness.is_complete)
    harness.apply(config=GREEN, upgradeStrategy={"type": "NewCluster"})
    await harness.until(lambda: bool(harness.pending))
    green = harness.pending
    head(harness, green).shows = {"mine": shown("DEPLOYING")}
    await harness.until(lambda: harness.active == green, seconds=60)


# --- dashboards without an answer ----------------------------------------------------------------


@pytest.mark.parametrize("first", ["active", "pending"])
@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
async def test_silence_of_both_dashboards_moves_nothing(first: str, is_back: bool) -> None:
    strategy = a_strategy(surge=25, step=5, interval=600)
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights[1] == 5, seconds=700)
    names = {"active": harness.active, "pending": harness.pending}
    if is_back:
        harness.apply(config=BLUE, upgradeStrategy=strategy)
        await harness.run(2)
        assert harness.is_rolling_back()
    held = harness.weights
    for name in names.values():
        head(harness, name).behaviour = "silent"
    await harness.run(30)
    head(harness, names[first]).behaviour = "ok"
    await harness.run(10)
    assert harness.weights == held
    for name in names.values():
        head(harness, name).behaviour = "ok"
    await harness.run(10)
    assert harness.weights == held


@pytest.mark.parametrize("is_back", [False, True], ids=["forward", "back"])
@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_silence_of_one_dashboard_moves_nothing(victim: str, is_back: bool) -> None:
    harness = await halfway()
    name = harness.active if victim == "active" else harness.pending
    if is_back:
        harness.apply(config=BLUE, upgradeStrategy=FULL)
        await harness.run(5)
    head(harness, name).behaviour = "silent"
    await harness.run(60)
    assert set(harness.weights.values()) == {50}
    assert not not_carried(harness)


@pytest.mark.parametrize("victim", ["active", "pending"])
async def test_what_dies_leaves_its_traffic_to_a_cluster_with_a_silent_dashboard(
    victim: str,
) -> None:
    harness = await halfway()
    dead, silent = (
        (harness.active, harness.pending)
        if victim == "active"
        else (harness.pending, harness.active)
    )
    head(harness, silent).behaviour = "silent"
    await harness.run(20)
    end_pods(harness, dead)
    await harness.run(5)
    assert harness.weights[silent] == 100


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
    harness = await halfway()
    dead, other = (
        (harness.active, harness.pending)
        if victim == "active"
        else (harness.pending, harness.active)
    )
    head(harness, other).shows = shows
    await harness.run(5)
    assert set(harness.weights.values()) == {50}
    end_pods(harness, dead)
    await harness.run(5)
    assert harness.weights[other] == 100


@pytest.mark.parametrize(
    ("status", "running"), [("DEPLOYING", 2), ("DEPLOYING", 3), ("RUNNING", 3)]
)
async def test_a_survivor_that_is_scaled_up_takes_over_with_the_replicas_that_it_had(
    status: str, running: int
) -> None:
    harness = await halfway()
    blue, green = harness.active, harness.pending
    node = f"ip-{green}-worker"
    head(harness, green).shows = {"app": shown(status, running=running, target=4, node=node)}
    await harness.run(2)
    end_pods(harness, blue)
    await harness.run(5)
    assert harness.weights[green] == 100


async def test_a_status_without_a_lost_replica_moves_nothing() -> None:
    harness = await halfway()
    for name in (harness.active, harness.pending):
        head(harness, name).shows = {"app": {"status": "UNHEALTHY"}}
    await harness.run(30)
    assert set(harness.weights.values()) == {50}
    assert not not_carried(harness)


async def test_replicas_on_a_node_that_is_not_ready_yet_are_not_lost() -> None:
    strategy = a_strategy(surge=100, step=10, interval=600)
    harness = await a_running_pair(upgradeStrategy=strategy)
    node = f"ip-{harness.active}-late"
    head(harness, harness.active).nodes = [node]
    harness.restart()
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.pending in harness.clusters)
    await harness.run(10)
    assert not not_carried(harness)
