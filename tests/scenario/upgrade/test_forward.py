"""Upgrades in steps, forward, by both services; spec rayservice §8, acceptance 39-58."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, Gate
from common.kube.resources import ENDPOINT_SLICE, GATEWAY, HTTP_ROUTE, POD, RAY_CLUSTER, SERVICE
from common.upgrade.controls import Policy
from raybus_cli.planning import steps
from scenario.upgrade.harness import GATEWAY_API, GREEN, Pair, a_running_pair, trace_of
from support.builders.ray_service import a_serve_config, a_strategy
from support.golden import Golden

FAST = a_strategy(surge=50, step=25, interval=2)
BEFORE: Json = {"upgradeStrategy": {"type": "NewCluster"}}


async def upgraded(harness: Pair, *, seconds: float = 500, **fields: object) -> tuple[str, str]:
    """Upgrade to green; return both clusters."""
    blue = harness.active
    harness.trace.clear()
    harness.apply(**{"config": GREEN, **fields})
    await harness.run(0.25)
    green = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=seconds)
    return blue, green


@pytest.mark.acceptance("rayservice", 39)
async def test_39_a_new_service_has_a_gateway_a_route_and_no_serve_service_of_its_own() -> None:
    harness = Pair()
    harness.apply()
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    listener = {"name": "http", "protocol": "HTTP", "port": 80}
    assert [each["spec"] for each in harness.gateways] == [
        {"gatewayClassName": "fast", "listeners": [listener]}
    ]
    assert harness.weights == {harness.active: 100}
    assert (SERVICE.kind, "default", "demo-serve-svc") not in harness.kube.objects
    assert harness.capacities(harness.active) == [100]


@pytest.mark.acceptance("rayservice", 40)
async def test_40_the_pending_cluster_starts_at_its_least_and_without_capacity() -> None:
    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(
        lambda: bool(harness.pending) and bool(harness.puts(harness.pending)), seconds=20
    )
    groups = harness.kube.objects[(RAY_CLUSTER.kind, "default", harness.pending)]["spec"][
        "workerGroupSpecs"
    ]
    assert ["replicas" in each for each in groups] == [False]
    assert harness.capacities(harness.pending)[0] == 0


@pytest.mark.acceptance("rayservice", 41, 42, 43, 44)
@pytest.mark.parametrize(
    ("surge", "step", "interval"),
    [
        pytest.param(20, 5, 10, id="41: aligned"),
        pytest.param(30, 7, 10, id="42: the step does not divide the surge"),
        pytest.param(100, 100, 1, id="43: all at once"),
        pytest.param(60, 60, 10, id="44: the surge does not divide 100"),
        pytest.param(50, 25, 2, id="large steps"),
    ],
)
async def test_41_to_44_the_trace_of_an_upgrade(
    surge: int, step: int, interval: int, golden: Golden
) -> None:
    strategy = a_strategy(surge=surge, step=step, interval=interval)
    harness = await a_running_pair(upgradeStrategy=strategy)
    start = harness.clock.monotonic()
    await upgraded(harness, upgradeStrategy=strategy)
    golden.check(
        f"traffic_manager/forward-{surge}-{step}-{interval}.txt", trace_of(harness, since=start)
    )


@pytest.mark.acceptance("rayservice", 41)
async def test_41_each_capacity_is_sent_once() -> None:
    harness = await a_running_pair()
    blue, green = await upgraded(harness)
    assert harness.capacities(green) == [0, 20, 40, 60, 80, 100]
    assert harness.capacities(blue) == [100, 80, 60, 40, 20, 0]


@pytest.mark.acceptance("rayservice", 45)
@pytest.mark.parametrize(("surge", "step"), [(0, 0), (20, 0)])
async def test_45_a_stalled_upgrade_is_reported_and_nothing_is_repeated(
    surge: int, step: int
) -> None:
    strategy = a_strategy(surge=surge, step=step, interval=1)
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.run(60)
    assert harness.weights == {harness.active: 100, harness.pending: 0}
    assert harness.capacities(harness.pending) == [0, *([surge] if surge else [])]
    assert harness.reasons().count("UpgradeCannotProgress") == 1


def answering_with(
    harness: Pair, cluster: str, change: Callable[[Json], Json]
) -> Callable[[], None]:
    """Let a cluster's Serve answer something else than it is; return what ends that."""
    head = harness.serve.head(f"{cluster}-head-svc")
    honest = head.details
    head.details = lambda: change(honest())

    def end() -> None:
        head.details = honest

    return end


def weights_seen(harness: Pair) -> set[int | None]:
    """Return every share that the pending cluster had since the trace was cleared."""
    return {view.weights[1] for _, view in harness.trace}


@pytest.mark.acceptance("rayservice", 46)
async def test_46_an_application_that_deploys_in_mid_upgrade_stops_the_weights_until_it_runs() -> (
    None
):
    def deploying(answer: Json) -> Json:
        apps = {
            name: {**app, "status": "DEPLOYING"} for name, app in answer["applications"].items()
        }
        return {**answer, "applications": apps}

    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.weights.get(harness.pending) == 5, seconds=60)
    end = answering_with(harness, harness.pending, deploying)
    harness.trace.clear()
    await harness.run(35)
    assert weights_seen(harness) <= {5}
    assert (harness.view.weights, harness.view.capacities) == ((95, 5), (100, 20))
    end()
    await harness.until(lambda: harness.weights[harness.pending] == 10, seconds=5)


@pytest.mark.acceptance("rayservice", 47)
async def test_47_traffic_waits_until_serve_reports_the_target_capacity_that_it_was_sent() -> None:
    """The replicas that a capacity of 0 asks for all run: without the comparison they would prove the new capacity."""
    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(lambda: bool(harness.puts(harness.pending)), seconds=20)
    idle: Json = {"status": "HEALTHY", "message": "", "target_num_replicas": 0, "replicas": []}

    def old(answer: Json) -> Json:
        app: Json = {"status": "RUNNING", "message": "", "deployments": {"Model": idle}}
        return {
            **answer,
            "target_capacity": 0,
            "applications": dict.fromkeys(answer["applications"], app),
        }

    end = answering_with(harness, harness.pending, old)
    harness.trace.clear()
    await harness.until(lambda: harness.capacities(harness.pending)[-1] == 20, seconds=20)
    await harness.run(30)
    assert weights_seen(harness) <= {0, None}
    end()
    await harness.until(lambda: harness.weights[harness.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 48)
async def test_48_no_weight_ever_moves_to_a_backend_without_a_ready_endpoint() -> None:
    harness = await a_running_pair()
    harness.freezes_endpoints = True
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.view.capacities[1] == 20, seconds=20)
    await harness.run(40)
    assert weights_seen(harness) <= {0, None}
    harness.freezes_endpoints = False
    await harness.until(lambda: harness.weights[harness.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 49)
async def test_49_a_gateway_that_is_not_programmed_holds_the_upgrade_and_is_named() -> None:
    harness = Pair()
    harness.gateway.is_programmed = False
    harness.apply()
    await harness.until(lambda: harness.is_complete() and bool(harness.weights), seconds=20)
    harness.apply(config=GREEN)
    await harness.run(30)
    assert (harness.view.capacities, harness.view.weights) == ((100, 0), (100, 0))
    assert (
        "waiting: Gateway default/demo-gateway is not Programmed (AddressNotAssigned)"
        in harness.message("UpgradeInProgress")
    )
    assert harness.reasons().count("GatewayNotReady") == 1
    harness.gateway.is_programmed = True
    harness.gateway.forget()
    await harness.until(lambda: harness.weights[harness.pending] == 5, seconds=30)


@pytest.mark.acceptance("rayservice", 50)
async def test_50_an_acceptance_of_an_older_generation_does_not_count() -> None:
    harness = await a_running_pair()
    harness.gateway.is_asleep = True
    harness.apply(config=GREEN)
    await harness.run(30)
    assert (harness.view.capacities, harness.view.weights) == ((100, 0), (100, 0))


@pytest.mark.acceptance("rayservice", 51)
async def test_51_after_promotion_everything_follows_the_new_cluster() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue, green = await upgraded(harness, upgradeStrategy=FAST)
    await harness.run(1)
    assert (harness.weights, harness.selected("demo-head-svc")) == ({green: 100}, green)
    await harness.run(70)
    assert harness.clusters == [green]
    assert (SERVICE.kind, "default", f"{blue}-serve-svc") not in harness.kube.objects


@pytest.mark.acceptance("rayservice", 52)
async def test_52_a_new_serve_config_goes_to_the_pending_cluster_alone() -> None:
    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.view.weights[1] == 20, seconds=100)
    blue, green = harness.active, harness.pending
    capacity = harness.view.capacities[1]
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await harness.run(0.5)
    assert message_of(harness.puts(green)[-1]) == "v2"
    assert harness.puts(green)[-1]["target_capacity"] == capacity
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=400)
    assert {message_of(each) for each in harness.puts(blue)} == {"v1"}


@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_no_event_and_few_reads() -> None:
    harness = await a_running_pair()
    await harness.run(30)
    head = harness.serve.head(f"{harness.active}-head-svc")
    requests, gets, puts = len(harness.kube.requests), head.gets, harness.serve.attempts
    await harness.run(3600)
    assert [
        str(each) for each in harness.kube.requests[requests:] if each.verb not in {"get", "list"}
    ] == []
    assert harness.serve.attempts == puts
    assert len(harness.kube.requests) - requests <= 3600 / 60
    assert head.gets - gets <= 2 * 3600 / 4.5 + 2


@pytest.mark.acceptance("rayservice", 55)
async def test_55_what_users_added_to_the_route_stays() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    route = harness.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    rule = {**route["spec"]["rules"][0], "timeouts": {"request": "30s"}}
    meta = {**route["metadata"], "annotations": {**route["metadata"]["annotations"], "mine": "1"}}
    harness.kube.put(
        HTTP_ROUTE,
        {
            **route,
            "metadata": meta,
            "spec": {**route["spec"], "hostnames": ["a.example"], "rules": [rule]},
        },
    )
    await upgraded(harness, upgradeStrategy=FAST)
    held = harness.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert held["spec"]["rules"][0]["timeouts"] == {"request": "30s"}
    assert held["metadata"]["annotations"]["mine"] == "1"


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_the_gate_nothing_is_made() -> None:
    harness = Pair(gates=BETA - {Gate.INCREMENTAL_UPGRADE})
    harness.apply()
    await harness.until(harness.is_complete, seconds=20)
    await upgraded(harness, seconds=30)
    assert (harness.gateways, harness.route) == ([], None)


@pytest.mark.acceptance("rayservice", 57)
async def test_57_a_service_may_change_to_steps_together_with_its_spec_and_its_serve_service_works_throughout() -> (
    None
):
    harness = Pair()
    harness.apply(**BEFORE)
    await harness.until(harness.is_complete, seconds=20)
    harness.apply(config=GREEN)
    await harness.run(0.25)
    green = harness.pending
    for _ in range(2000):
        await harness.run(0.25)
        reached = clusters_behind(harness, "demo-serve-svc")
        assert reached
        assert (
            sum(
                harness.capacities(name)[-1] if name == green else 100
                for name in reached
                if harness.puts(name)
            )
            > 0
        )
        if harness.is_complete() and harness.active == green:
            break
    assert harness.capacities(green) == [0, 20, 40, 60, 80, 100]
    await harness.run(1)
    await harness.until(lambda: clusters_behind(harness, "demo-serve-svc") == {green}, seconds=100)


def clusters_behind(harness: Pair, service: str) -> set[str]:
    """Return the clusters of the ready pods that clients of a Service reach."""
    found = harness.kube.objects[(ENDPOINT_SLICE.kind, "default", f"{service}-1")]
    uids = {each["targetRef"]["uid"] for each in found["endpoints"] if each["conditions"]["ready"]}
    return {
        pod["metadata"]["labels"]["ray.io/cluster"]
        for pod in harness.kube.all(POD)
        if pod["metadata"]["uid"] in uids
    }


@pytest.mark.acceptance("rayservice", 58)
async def test_58_a_service_that_leaves_the_steps_in_mid_upgrade_finishes_as_it_began() -> None:
    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.view.capacities[1] == 40, seconds=100)
    blue, green = harness.active, harness.pending
    harness.apply(config=GREEN, **BEFORE)
    shares: list[int] = []
    for _ in range(4 * 300):
        await harness.run(0.25)
        shares.append(harness.weights[green])
        assert not [
            name
            for name, weight in harness.weights.items()
            if weight and name not in harness.clusters
        ]
        if harness.clusters == [green]:
            break
    assert shares == sorted(shares)  # one move after the other, and none back
    assert blue not in harness.weights
    assert harness.puts(green)[-1].get("target_capacity", 100) == 100
    assert (harness.clusters, harness.weights, harness.selected()) == ([green], {green: 100}, green)


async def test_without_the_gateway_api_the_service_serves_and_reports_what_is_missing() -> None:
    harness = Pair()
    harness.unknown_kinds |= GATEWAY_API
    harness.apply()
    await harness.until(harness.is_complete, seconds=20)
    await harness.run(60)
    assert "GatewayAPIMissing" in harness.reasons()
    harness.apply(config=GREEN)
    await harness.run(60)
    assert harness.message("UpgradeInProgress").endswith(
        "does not exist (is the Gateway API installed?)"
    )
    assert harness.capacities(harness.active) == [100]
    harness.unknown_kinds.clear()
    await harness.until(lambda: harness.weights.get(harness.pending) == 5, seconds=60)
    assert harness.kube.all(GATEWAY)


async def test_a_route_that_somebody_deletes_comes_back_as_it_was() -> None:
    harness = await a_running_pair()
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.view.weights[1] == 25, seconds=100)
    await harness.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await harness.run(0.5)
    assert harness.weights == {harness.active: 75, harness.pending: 25}
    assert harness.view.capacities == (80, 40)


def message_of(config: Json) -> str:
    """Return what differs between versions of the application."""
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]


async def test_each_event_names_the_service_that_acts() -> None:
    harness = await a_running_pair()
    await upgraded(harness, upgradeStrategy=FAST)
    written = [
        each.body for each in harness.kube.requests if (each.verb, each.kind) == ("create", "Event")
    ]
    acting: dict[str, set[str]] = {}
    for each in written:
        acting.setdefault(each["reportingController"], set()).add(each["reason"])
    assert set(acting) == {"raybus.io/service-reconciler", "raybus.io/traffic-manager"}
    assert (
        "CreatedRayCluster"
        in acting["raybus.io/service-reconciler"] - acting["raybus.io/traffic-manager"]
    )
    assert (
        "UpdatedHTTPRoute"
        in acting["raybus.io/traffic-manager"] - acting["raybus.io/service-reconciler"]
    )


async def test_the_status_has_the_times_of_its_writing_and_of_the_last_move_of_traffic() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    written = harness.status["lastUpdateTime"]
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending))
    assert harness.status["lastUpdateTime"] > written
    moves: list[tuple[str, str]] = []
    for weight in (25, 50):
        await harness.until(lambda at=weight: harness.view.weights[1] == at, seconds=60)
        sides = [harness.status[f"{role}ServiceStatus"] for role in ("active", "pending")]
        active, pending = (each["lastTrafficMigratedTime"] for each in sides)
        moved = datetime.fromisoformat(pending)
        assert active == pending
        assert timedelta(0) <= harness.clock.now() - moved <= timedelta(seconds=2)
        assert harness.status["lastUpdateTime"] >= pending
        moves.append((active, pending))
    assert moves[0] < moves[1]


async def test_the_forecast_contains_the_first_interval() -> None:
    strategy = a_strategy(surge=100, step=25, interval=20)
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.apply(config=GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: bool(harness.pending) and harness.pending in harness.weights)
    began = harness.clock.monotonic()
    await harness.until(lambda: harness.weights.get(harness.pending) == 100, seconds=120)
    policy = Policy(surge=100, step=25, interval=timedelta(seconds=20))
    forecast = steps.simulate(policy).length.total_seconds()
    assert abs(harness.clock.monotonic() - began - forecast) <= 2
