"""Upgrades in steps, forward, by both services; spec rayservice §8, acceptance 39-58."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import ENDPOINT_SLICE, GATEWAY, HTTP_ROUTE, POD, RAY_CLUSTER, SERVICE
from common.upgrade.controls import Policy
from raybus_cli.planning import steps
from support.builders.ray_service import a_serve_config, a_strategy
from support.golden import Golden
from support.simulator.services import GATEWAY_API
from support.simulator.simulator import GREEN, Simulator, a_pair, a_running_pair

FAST = a_strategy(surge=50, step=25, interval=2)
BEFORE: Json = {"upgradeStrategy": {"type": "NewCluster"}}


async def upgraded(sim: Simulator, *, seconds: float = 500, **fields: object) -> tuple[str, str]:
    """Upgrade to green; return both clusters."""
    blue = sim.active
    sim.observer.trace.clear()
    sim.apply(**{"config": GREEN, **fields})
    await sim.run(0.25)
    green = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=seconds)
    return blue, green


@pytest.mark.acceptance("rayservice", 39)
async def test_39_a_new_service_has_a_gateway_a_route_and_no_serve_service_of_its_own() -> None:
    sim = a_pair()
    sim.apply()
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    listener = {"name": "http", "protocol": "HTTP", "port": 80}
    assert [each["spec"] for each in sim.gateways] == [
        {"gatewayClassName": "fast", "listeners": [listener]}
    ]
    assert sim.weights == {sim.active: 100}
    assert (SERVICE.kind, "default", "demo-serve-svc") not in sim.kube.objects
    assert sim.capacities(sim.active) == [100]


@pytest.mark.acceptance("rayservice", 40)
async def test_40_the_pending_cluster_starts_at_its_least_and_without_capacity() -> None:
    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.pending) and bool(sim.puts(sim.pending)), seconds=20)
    groups = sim.kube.objects[(RAY_CLUSTER.kind, "default", sim.pending)]["spec"][
        "workerGroupSpecs"
    ]
    assert ["replicas" in each for each in groups] == [False]
    assert sim.capacities(sim.pending)[0] == 0


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
    sim = await a_running_pair(upgradeStrategy=strategy)
    start = sim.clock.monotonic()
    await upgraded(sim, upgradeStrategy=strategy)
    golden.check(
        f"traffic_manager/forward-{surge}-{step}-{interval}.txt", sim.observer.trace_since(start)
    )


@pytest.mark.acceptance("rayservice", 41)
async def test_41_each_capacity_is_sent_once() -> None:
    sim = await a_running_pair()
    blue, green = await upgraded(sim)
    assert sim.capacities(green) == [0, 20, 40, 60, 80, 100]
    assert sim.capacities(blue) == [100, 80, 60, 40, 20, 0]


@pytest.mark.acceptance("rayservice", 45)
@pytest.mark.parametrize(("surge", "step"), [(0, 0), (20, 0)])
async def test_45_a_stalled_upgrade_is_reported_and_nothing_is_repeated(
    surge: int, step: int
) -> None:
    strategy = a_strategy(surge=surge, step=step, interval=1)
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.run(60)
    assert sim.weights == {sim.active: 100, sim.pending: 0}
    assert sim.capacities(sim.pending) == [0, *([surge] if surge else [])]
    assert sim.reasons().count("UpgradeCannotProgress") == 1


def answering_with(
    sim: Simulator, cluster: str, change: Callable[[Json], Json]
) -> Callable[[], None]:
    """Let a cluster's Serve answer something else than it is; return what ends that."""
    head = sim.serve.head(f"{cluster}-head-svc")
    honest = head.details
    head.details = lambda: change(honest())

    def end() -> None:
        head.details = honest

    return end


def weights_seen(sim: Simulator) -> set[int | None]:
    """Return every share that the pending cluster had since the trace was cleared."""
    return {view.weights[1] for _, view in sim.observer.trace}


@pytest.mark.acceptance("rayservice", 46)
async def test_46_an_application_that_deploys_in_mid_upgrade_stops_the_weights_until_it_runs() -> (
    None
):
    def deploying(answer: Json) -> Json:
        apps = {
            name: {**app, "status": "DEPLOYING"} for name, app in answer["applications"].items()
        }
        return {**answer, "applications": apps}

    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.weights.get(sim.pending) == 5, seconds=60)
    end = answering_with(sim, sim.pending, deploying)
    sim.observer.trace.clear()
    await sim.run(35)
    assert weights_seen(sim) <= {5}
    assert (sim.view.weights, sim.view.capacities) == ((95, 5), (100, 20))
    end()
    await sim.until(lambda: sim.weights[sim.pending] == 10, seconds=5)


@pytest.mark.acceptance("rayservice", 47)
async def test_47_traffic_waits_until_serve_reports_the_target_capacity_that_it_was_sent() -> None:
    """The replicas that a capacity of 0 asks for all run: without the comparison they would prove the new capacity."""
    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.puts(sim.pending)), seconds=20)
    idle: Json = {"status": "HEALTHY", "message": "", "target_num_replicas": 0, "replicas": []}

    def old(answer: Json) -> Json:
        app: Json = {"status": "RUNNING", "message": "", "deployments": {"Model": idle}}
        return {
            **answer,
            "target_capacity": 0,
            "applications": dict.fromkeys(answer["applications"], app),
        }

    end = answering_with(sim, sim.pending, old)
    sim.observer.trace.clear()
    await sim.until(lambda: sim.capacities(sim.pending)[-1] == 20, seconds=20)
    await sim.run(30)
    assert weights_seen(sim) <= {0, None}
    end()
    await sim.until(lambda: sim.weights[sim.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 48)
async def test_48_no_weight_ever_moves_to_a_backend_without_a_ready_endpoint() -> None:
    sim = await a_running_pair()
    sim.ray_clusters.freezes_endpoints = True
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.view.capacities[1] == 20, seconds=20)
    await sim.run(40)
    assert weights_seen(sim) <= {0, None}
    sim.ray_clusters.freezes_endpoints = False
    await sim.until(lambda: sim.weights[sim.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 49)
async def test_49_a_gateway_that_is_not_programmed_holds_the_upgrade_and_is_named() -> None:
    sim = a_pair()
    sim.gateway.is_programmed = False
    sim.apply()
    await sim.until(lambda: sim.is_complete() and bool(sim.weights), seconds=20)
    sim.apply(config=GREEN)
    await sim.run(30)
    assert (sim.view.capacities, sim.view.weights) == ((100, 0), (100, 0))
    assert (
        "waiting: Gateway default/demo-gateway is not Programmed (AddressNotAssigned)"
        in sim.message("UpgradeInProgress")
    )
    assert sim.reasons().count("GatewayNotReady") == 1
    sim.gateway.is_programmed = True
    sim.gateway.forget()
    await sim.until(lambda: sim.weights[sim.pending] == 5, seconds=30)


@pytest.mark.acceptance("rayservice", 50)
async def test_50_an_acceptance_of_an_older_generation_does_not_count() -> None:
    sim = await a_running_pair()
    sim.gateway.is_asleep = True
    sim.apply(config=GREEN)
    await sim.run(30)
    assert (sim.view.capacities, sim.view.weights) == ((100, 0), (100, 0))


@pytest.mark.acceptance("rayservice", 51)
async def test_51_after_promotion_everything_follows_the_new_cluster() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue, green = await upgraded(sim, upgradeStrategy=FAST)
    await sim.run(1)
    assert (sim.weights, sim.selected("demo-head-svc")) == ({green: 100}, green)
    await sim.run(70)
    assert sim.clusters == [green]
    assert (SERVICE.kind, "default", f"{blue}-serve-svc") not in sim.kube.objects


@pytest.mark.acceptance("rayservice", 52)
async def test_52_a_new_serve_config_goes_to_the_pending_cluster_alone() -> None:
    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.view.weights[1] == 20, seconds=100)
    blue, green = sim.active, sim.pending
    capacity = sim.view.capacities[1]
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await sim.run(0.5)
    assert message_of(sim.puts(green)[-1]) == "v2"
    assert sim.puts(green)[-1]["target_capacity"] == capacity
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=400)
    assert {message_of(each) for each in sim.puts(blue)} == {"v1"}


@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_no_event_and_few_reads() -> None:
    sim = await a_running_pair()
    await sim.run(30)
    head = sim.serve.head(f"{sim.active}-head-svc")
    requests, gets, puts = len(sim.kube.requests), head.gets, sim.serve.attempts
    await sim.run(3600)
    assert [
        str(each) for each in sim.kube.requests[requests:] if each.verb not in {"get", "list"}
    ] == []
    assert sim.serve.attempts == puts
    assert len(sim.kube.requests) - requests <= 3600 / 60
    assert head.gets - gets <= 2 * 3600 / 4.5 + 2


@pytest.mark.acceptance("rayservice", 55)
async def test_55_what_users_added_to_the_route_stays() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    route = sim.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    rule = {**route["spec"]["rules"][0], "timeouts": {"request": "30s"}}
    meta = {**route["metadata"], "annotations": {**route["metadata"]["annotations"], "mine": "1"}}
    sim.kube.put(
        HTTP_ROUTE,
        {
            **route,
            "metadata": meta,
            "spec": {**route["spec"], "hostnames": ["a.example"], "rules": [rule]},
        },
    )
    await upgraded(sim, upgradeStrategy=FAST)
    held = sim.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert held["spec"]["rules"][0]["timeouts"] == {"request": "30s"}
    assert held["metadata"]["annotations"]["mine"] == "1"


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_the_gate_nothing_is_made() -> None:
    sim = a_pair(gates=BETA - {FeatureGate.INCREMENTAL_UPGRADE})
    sim.apply()
    await sim.until(sim.is_complete, seconds=20)
    await upgraded(sim, seconds=30)
    assert (sim.gateways, sim.route) == ([], None)


@pytest.mark.acceptance("rayservice", 57)
async def test_57_a_service_may_change_to_steps_together_with_its_spec_and_its_serve_service_works_throughout() -> (
    None
):
    sim = a_pair()
    sim.apply(**BEFORE)
    await sim.until(sim.is_complete, seconds=20)
    sim.apply(config=GREEN)
    await sim.run(0.25)
    green = sim.pending
    for _ in range(2000):
        await sim.run(0.25)
        reached = clusters_behind(sim, "demo-serve-svc")
        assert reached
        assert (
            sum(
                sim.capacities(name)[-1] if name == green else 100
                for name in reached
                if sim.puts(name)
            )
            > 0
        )
        if sim.is_complete() and sim.active == green:
            break
    assert sim.capacities(green) == [0, 20, 40, 60, 80, 100]
    await sim.run(1)
    await sim.until(lambda: clusters_behind(sim, "demo-serve-svc") == {green}, seconds=100)


def clusters_behind(sim: Simulator, service: str) -> set[str]:
    """Return the clusters of the ready pods that clients of a Service reach."""
    found = sim.kube.objects[(ENDPOINT_SLICE.kind, "default", f"{service}-1")]
    uids = {each["targetRef"]["uid"] for each in found["endpoints"] if each["conditions"]["ready"]}
    return {
        pod["metadata"]["labels"]["ray.io/cluster"]
        for pod in sim.kube.all(POD)
        if pod["metadata"]["uid"] in uids
    }


@pytest.mark.acceptance("rayservice", 58)
async def test_58_a_service_that_leaves_the_steps_in_mid_upgrade_finishes_as_it_began() -> None:
    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.view.capacities[1] == 40, seconds=100)
    blue, green = sim.active, sim.pending
    sim.apply(config=GREEN, **BEFORE)
    shares: list[int] = []
    for _ in range(4 * 300):
        await sim.run(0.25)
        shares.append(sim.weights[green])
        assert not [
            name for name, weight in sim.weights.items() if weight and name not in sim.clusters
        ]
        if sim.clusters == [green]:
            break
    assert shares == sorted(shares)  # one move after the other, and none back
    assert blue not in sim.weights
    assert sim.puts(green)[-1].get("target_capacity", 100) == 100
    assert (sim.clusters, sim.weights, sim.selected()) == ([green], {green: 100}, green)


async def test_without_the_gateway_api_the_service_serves_and_reports_what_is_missing() -> None:
    sim = a_pair()
    sim.unknown_kinds |= GATEWAY_API
    sim.apply()
    await sim.until(sim.is_complete, seconds=20)
    await sim.run(60)
    assert "GatewayAPIMissing" in sim.reasons()
    sim.apply(config=GREEN)
    await sim.run(60)
    assert sim.message("UpgradeInProgress").endswith(
        "does not exist (is the Gateway API installed?)"
    )
    assert sim.capacities(sim.active) == [100]
    sim.unknown_kinds.clear()
    await sim.until(lambda: sim.weights.get(sim.pending) == 5, seconds=60)
    assert sim.kube.all(GATEWAY)


async def test_a_route_that_somebody_deletes_comes_back_as_it_was() -> None:
    sim = await a_running_pair()
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.view.weights[1] == 25, seconds=100)
    await sim.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await sim.run(0.5)
    assert sim.weights == {sim.active: 75, sim.pending: 25}
    assert sim.view.capacities == (80, 40)


def message_of(config: Json) -> str:
    """Return what differs between versions of the application."""
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]


async def test_each_event_names_the_service_that_acts() -> None:
    sim = await a_running_pair()
    await upgraded(sim, upgradeStrategy=FAST)
    written = [
        each.body for each in sim.kube.requests if (each.verb, each.kind) == ("create", "Event")
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
    sim = await a_running_pair(upgradeStrategy=FAST)
    written = sim.status["lastUpdateTime"]
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending))
    assert sim.status["lastUpdateTime"] > written
    moves: list[tuple[str, str]] = []
    for weight in (25, 50):
        await sim.until(lambda at=weight: sim.view.weights[1] == at, seconds=60)
        sides = [sim.status[f"{role}ServiceStatus"] for role in ("active", "pending")]
        active, pending = (each["lastTrafficMigratedTime"] for each in sides)
        moved = datetime.fromisoformat(pending)
        assert active == pending
        assert timedelta(0) <= sim.clock.now() - moved <= timedelta(seconds=2)
        assert sim.status["lastUpdateTime"] >= pending
        moves.append((active, pending))
    assert moves[0] < moves[1]


async def test_the_forecast_contains_the_first_interval() -> None:
    strategy = a_strategy(surge=100, step=25, interval=20)
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.apply(config=GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.weights)
    began = sim.clock.monotonic()
    await sim.until(lambda: sim.weights.get(sim.pending) == 100, seconds=120)
    policy = Policy(surge=100, step=25, interval=timedelta(seconds=20))
    forecast = steps.simulate(policy).length.total_seconds()
    assert abs(sim.clock.monotonic() - began - forecast) <= 2
