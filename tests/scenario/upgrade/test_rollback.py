"""Rollback and third specs; spec rayservice §8.8, §8.10, acceptance 59-68."""

import pytest

from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair, trace_of
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import Request
from support.golden import Golden

GREEN_CONFIG = a_serve_config(message="v2")
RED_CONFIG = a_serve_config(message="v3")


async def at_weight(weight: int, **fields: object) -> Pair:
    """Return an upgrade to green that gave the pending cluster a share of the traffic."""
    harness = await a_running_pair(**fields)
    harness.apply(config=GREEN, serve=GREEN_CONFIG, **fields)
    await harness.until(lambda: harness.view.weights[1] == weight, seconds=300)
    return harness


@pytest.mark.acceptance("rayservice", 59)
async def test_59_a_reverted_spec_takes_everything_back(golden: Golden) -> None:
    harness = await at_weight(30, upgradeStrategy=a_strategy())
    blue, green = harness.active, harness.pending
    start = harness.clock.monotonic()
    harness.trace.clear()
    harness.apply(config=BLUE)
    await harness.run(0.25)
    assert harness.condition("RollbackInProgress") == ("True", "DesiredClusterSpecChanged")
    assert (
        harness.message("RollbackInProgress")
        == "Goal state reverted to original cluster, rolling back."
    )
    await harness.until(harness.is_complete, seconds=300)
    golden.check("traffic_manager/back-20-5-10.txt", trace_of(harness, since=start))
    assert (harness.active, harness.condition("RollbackInProgress")) == (blue, ("", ""))
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")
    await harness.run(70)
    assert (harness.clusters, harness.weights) == ([blue], {blue: 100})
    assert {
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in harness.puts(blue)
    } == {"v1"}
    assert green not in harness.clusters


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 60)
async def test_60_a_rollback_is_cancelled_by_the_pending_spec() -> None:
    harness = await at_weight(30)
    green = harness.pending
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.view.weights == (80, 20), seconds=60)
    harness.apply(config=GREEN, serve=GREEN_CONFIG)
    await harness.run(1)
    assert not harness.is_rolling_back()
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=400)


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 61)
async def test_61_a_third_spec_rolls_back_first_and_its_config_never_meets_the_first_cluster() -> (
    None
):
    harness = await at_weight(50)
    blue, green = harness.active, harness.pending
    harness.apply(config=RED, serve=RED_CONFIG)
    await harness.run(0.25)
    assert (
        harness.message("RollbackInProgress")
        == "Goal state changed mid-upgrade, rolling back to original cluster."
    )
    await harness.until(lambda: harness.pending not in {green, ""}, seconds=300)
    red = harness.pending
    assert harness.active == blue
    await harness.until(lambda: harness.is_complete() and harness.active == red, seconds=500)
    messages = {
        name: {
            each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
            for each in harness.puts(name)
        }
        for name in (blue, green, red)
    }
    assert messages == {blue: {"v1"}, green: {"v2"}, red: {"v3"}}


@pytest.mark.acceptance("rayservice", 63)
async def test_63_a_rollback_does_not_wait_for_a_pending_cluster_without_a_ready_head() -> None:
    harness = await a_running_pair()
    harness.apply(config=GREEN, serve=GREEN_CONFIG)
    await harness.until(lambda: harness.view.capacities == (80, 40), seconds=100)
    blue, green = harness.active, harness.pending
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": "",
    }
    when = {"lastTransitionTime": rfc3339(harness.clock.now())}
    harness.kube.set_status(
        RAY_CLUSTER, "default", green, {"state": "", "conditions": [{**lost, **when}]}
    )
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=10)
    assert harness.capacities(blue)[-1] == 100
    await harness.until(harness.is_complete, seconds=10)
    assert (harness.active, harness.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 64)
async def test_64_a_rollback_needs_no_gateway() -> None:
    harness = await at_weight(30)
    blue = harness.active
    harness.gateway.is_programmed = False
    harness.gateway.accepts_routes = False
    harness.gateway.forget()
    harness.apply(config=BLUE)
    await harness.until(harness.is_complete, seconds=400)
    assert harness.active == blue


@pytest.mark.acceptance("rayservice", 62)
async def test_62_capacity_stays_above_traffic_on_the_way_back() -> None:
    """Judged by the capacity that Serve got and the weights of the route at each write, not by what the status shows later."""
    strategy = a_strategy(surge=30, step=7, interval=1)
    harness = await back_from(strategy)
    pair = (harness.active, harness.pending)
    seen: list[tuple[dict[str, int], dict[str, int]]] = []

    def note(*_: object) -> None:
        if harness.pending == pair[1]:
            seen.append(
                ({name: harness.capacities(name)[-1] for name in pair}, dict(harness.weights))
            )

    harness.serve.on_put.append(note)
    harness.kube.on_change.append(note)
    harness.apply(config=BLUE, upgradeStrategy=strategy)
    await harness.until(harness.is_complete, seconds=200)
    short = [each for each in seen if each[0][pair[1]] < each[1].get(pair[1], 0)]
    assert not short, short[:3]
    assert all(sum(capacities.values()) <= 130 for capacities, _ in seen)
    assert {capacities[pair[1]] for capacities, _ in seen} >= {100, 0}


async def back_from(strategy: Json) -> Pair:
    """Return an upgrade to green of which the active cluster has a capacity of 10."""
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, serve=GREEN_CONFIG, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.capacities == (10, 100), seconds=300)
    return harness


@pytest.mark.acceptance("rayservice", 65)
async def test_65_a_name_that_is_reverted_before_its_cluster_exists_leaves_none() -> None:
    harness = await a_running_pair()
    blue = harness.active

    def refused(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", RAY_CLUSTER.kind)
        return errors.Unavailable("the API server is busy") if is_creation else None

    harness.kube.faults.append(refused)
    harness.apply(config=GREEN)
    await harness.run(2)
    named = harness.pending
    assert (bool(named), harness.clusters) == (True, [blue])
    harness.kube.faults.remove(refused)
    done = len(harness.kube.requests)
    harness.apply(config=BLUE)
    await harness.run(10)
    assert (harness.clusters, harness.active, harness.pending) == ([blue], blue, "")
    assert f"create RayCluster {named}" not in [str(each) for each in harness.kube.requests[done:]]


@pytest.mark.acceptance("rayservice", 66)
async def test_66_a_spec_that_is_reverted_in_the_last_moment_is_not_promoted() -> None:
    strategy = a_strategy(surge=50, step=25, interval=2)
    harness = await a_running_pair(upgradeStrategy=strategy)
    blue = harness.active
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.view.weights[1] == 100, seconds=60)
    harness.is_service_down = True
    await harness.until(lambda: harness.capacities(blue)[-1] == 0, seconds=10)
    harness.is_service_down = False
    harness.apply(config=BLUE, upgradeStrategy=strategy)
    await harness.run(0.25)
    assert (harness.active, harness.is_rolling_back()) == (blue, True)
    await harness.until(harness.is_complete, seconds=100)
    assert (harness.active, harness.weights) == (blue, {blue: 100})


@pytest.mark.acceptance("rayservice", 67)
async def test_67_a_third_spec_replaces_a_pending_cluster_that_never_was_ready() -> None:
    harness = await a_running_pair()
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(10)
    blue, green = harness.active, harness.pending
    harness.apply(config=RED)
    await harness.run(1)
    assert (harness.active, harness.weights[blue]) == (blue, 100)
    assert harness.pending not in {"", green}


@pytest.mark.acceptance("rayservice", 68)
async def test_68_a_lost_active_cluster_is_replaced_by_the_pending_one() -> None:
    harness = await at_weight(10)
    blue, green = harness.active, harness.pending
    await harness.kube.delete(RAY_CLUSTER, "default", blue)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)
    assert "RollbackImpossible" in harness.reasons()
    await harness.run(1)
    assert (harness.weights, harness.capacities(green)[-1]) == ({green: 100}, 100)


async def test_a_lost_pending_cluster_costs_its_share_and_nothing_else() -> None:
    harness = await at_weight(30)
    blue, green = harness.active, harness.pending
    harness.holds_pods = True
    await harness.kube.delete(RAY_CLUSTER, "default", green)
    await harness.run(2)
    assert harness.weights[blue] == 100


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspend_takes_all_away_and_resume_starts_anew() -> None:
    harness = await at_weight(30)
    harness.apply(config=GREEN, suspend=True)
    await harness.run(10)
    assert (
        harness.condition("Suspended")[0],
        harness.clusters,
        harness.gateways,
        harness.route,
    ) == (
        "True",
        [],
        [],
        None,
    )
    assert {"DeletedGateway", "DeletedHTTPRoute"} <= set(harness.reasons())
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=30)
    assert (harness.view.capacities, harness.view.weights) == ((100, None), (100, None))


@pytest.mark.acceptance("rayservice", 85)
async def test_85_a_service_that_goes_in_mid_upgrade_takes_all_with_it() -> None:
    harness = await at_weight(30)
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(10)
    assert (harness.clusters, harness.gateways, harness.route) == ([], [], None)


@pytest.mark.long
async def test_a_pending_cluster_that_turns_silent_keeps_its_share_and_resumes() -> None:
    harness = await at_weight(30)
    head = harness.serve.head(f"{harness.pending}-head-svc")
    head.behaviour = "silent"
    await harness.run(25)
    assert harness.view.weights == (70, 30)
    head.behaviour = "ok"
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=500)


async def test_silence_ends_no_cluster_to_which_a_late_gateway_still_sends() -> None:
    """A rollback does not wait for the capacity of a silent cluster, but for its last request."""
    harness = await at_weight(30)
    green = harness.pending
    harness.serve.head(f"{green}-head-svc").behaviour = "silent"
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.weights.get(green, 0) == 0, seconds=300)
    harness.gateway.is_asleep = True
    await harness.run(200)
    assert green in harness.clusters
    harness.gateway.is_asleep = False
    await harness.until(lambda: green not in harness.clusters, seconds=400)
    assert harness.clusters == [harness.active]


async def test_the_events_of_a_third_spec_name_the_cause_of_each_upgrade() -> None:
    strategy = a_strategy(surge=100, step=50, interval=1)
    harness = await at_weight(50, upgradeStrategy=strategy)
    green = harness.pending
    harness.apply(config=RED, serve=RED_CONFIG, upgradeStrategy=strategy)
    await harness.until(lambda: harness.pending not in {green, ""}, seconds=100)
    started = [note for _, reason, note in harness.kube.events() if reason == "UpgradeStarted"]
    assert [note.partition(": ")[2] for note in started] == [
        "the cluster spec changed",
        "the spec changed again, and all traffic is back on the active cluster",
    ]
