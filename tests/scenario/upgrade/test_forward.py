"""Upgrades in steps, forward, by both services; spec rayservice §8, acceptance 39-58."""

from collections.abc import Callable

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, Gate
from common.kube.resources import ENDPOINT_SLICE, GATEWAY, HTTP_ROUTE, POD, RAY_CLUSTER, SERVICE
from scenario.upgrade.world import GATEWAY_API, GREEN, Pair, a_running_pair, story_of
from support.builders.ray_service import a_serve_config, a_strategy
from support.golden import Golden

FAST = a_strategy(surge=50, step=25, interval=2)
BEFORE: Json = {"upgradeStrategy": {"type": "NewCluster"}}


async def upgraded(world: Pair, *, seconds: float = 500, **fields: object) -> tuple[str, str]:
    """Upgrade to green; return both clusters."""
    blue = world.active
    world.trace.clear()
    world.apply(**{"config": GREEN, **fields})
    await world.run(0.25)
    green = world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=seconds)
    return blue, green


@pytest.mark.acceptance("rayservice", 39)
async def test_39_a_new_service_has_a_gateway_a_route_and_no_serve_service_of_its_own() -> None:
    world = Pair()
    world.apply()
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    listener = {"name": "http", "protocol": "HTTP", "port": 80}
    assert [each["spec"] for each in world.gateways] == [{"gatewayClassName": "fast", "listeners": [listener]}]
    assert world.weights == {world.active: 100}
    assert (SERVICE.kind, "default", "demo-serve-svc") not in world.kube.objects
    assert world.capacities(world.active) == [100]


@pytest.mark.acceptance("rayservice", 40)
async def test_40_the_pending_cluster_starts_at_its_least_and_without_capacity() -> None:
    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.pending) and bool(world.puts(world.pending)), seconds=20)
    groups = world.kube.objects[(RAY_CLUSTER.kind, "default", world.pending)]["spec"]["workerGroupSpecs"]
    assert ["replicas" in each for each in groups] == [False]
    assert world.capacities(world.pending)[0] == 0


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
async def test_41_to_44_the_story_of_an_upgrade(surge: int, step: int, interval: int, golden: Golden) -> None:
    strategy = a_strategy(surge=surge, step=step, interval=interval)
    world = await a_running_pair(upgradeStrategy=strategy)
    start = world.clock.monotonic()
    await upgraded(world, upgradeStrategy=strategy)
    golden.check(f"traffic_manager/forward-{surge}-{step}-{interval}.txt", story_of(world, since=start))


@pytest.mark.acceptance("rayservice", 41)
async def test_41_each_capacity_is_sent_once() -> None:
    world = await a_running_pair()
    blue, green = await upgraded(world)
    assert world.capacities(green) == [0, 20, 40, 60, 80, 100]
    assert world.capacities(blue) == [100, 80, 60, 40, 20, 0]


@pytest.mark.acceptance("rayservice", 45)
@pytest.mark.parametrize(("surge", "step"), [(0, 0), (20, 0)])
async def test_45_what_cannot_progress_says_so_and_repeats_nothing(surge: int, step: int) -> None:
    strategy = a_strategy(surge=surge, step=step, interval=1)
    world = await a_running_pair(upgradeStrategy=strategy)
    world.apply(config=GREEN, upgradeStrategy=strategy)
    await world.run(60)
    assert world.weights == {world.active: 100, world.pending: 0}
    assert world.capacities(world.pending) == [0, *([surge] if surge else [])]
    assert world.reasons().count("UpgradeCannotProgress") == 1


def answering_with(world: Pair, cluster: str, change: Callable[[Json], Json]) -> Callable[[], None]:
    """Let a cluster's Serve answer something else than it is; return what ends that."""
    head = world.serve.head(f"{cluster}-head-svc")
    honest = head.details
    head.details = lambda: change(honest())

    def end() -> None:
        head.details = honest

    return end


def weights_seen(world: Pair) -> set[int | None]:
    """Return every share that the pending cluster had since the trace was cleared."""
    return {view.weights[1] for _, view in world.trace}


@pytest.mark.acceptance("rayservice", 46)
async def test_46_an_application_that_deploys_in_mid_upgrade_stops_the_weights_until_it_runs() -> None:
    def deploying(answer: Json) -> Json:
        apps = {name: {**app, "status": "DEPLOYING"} for name, app in answer["applications"].items()}
        return {**answer, "applications": apps}

    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: world.weights.get(world.pending) == 5, seconds=60)
    end = answering_with(world, world.pending, deploying)
    world.trace.clear()
    await world.run(35)
    assert weights_seen(world) <= {5}
    assert (world.view.weights, world.view.capacities) == ((95, 5), (100, 20))
    end()
    await world.until(lambda: world.weights[world.pending] == 10, seconds=5)


@pytest.mark.acceptance("rayservice", 47)
async def test_47_traffic_waits_until_serve_says_that_it_runs_with_the_capacity_that_it_was_told() -> None:
    """The replicas that a capacity of 0 asks for all run: without the comparison they would prove the new capacity."""
    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.puts(world.pending)), seconds=20)
    idle: Json = {"status": "HEALTHY", "message": "", "target_num_replicas": 0, "replicas": []}

    def old(answer: Json) -> Json:
        app: Json = {"status": "RUNNING", "message": "", "deployments": {"Model": idle}}
        return {**answer, "target_capacity": 0, "applications": dict.fromkeys(answer["applications"], app)}

    end = answering_with(world, world.pending, old)
    world.trace.clear()
    await world.until(lambda: world.capacities(world.pending)[-1] == 20, seconds=20)
    await world.run(30)
    assert weights_seen(world) <= {0, None}
    end()
    await world.until(lambda: world.weights[world.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 48)
async def test_48_no_weight_ever_moves_to_a_backend_without_a_ready_endpoint() -> None:
    world = await a_running_pair()
    world.freezes_endpoints = True
    world.apply(config=GREEN)
    await world.until(lambda: world.view.capacities[1] == 20, seconds=20)
    await world.run(40)
    assert weights_seen(world) <= {0, None}
    world.freezes_endpoints = False
    await world.until(lambda: world.weights[world.pending] == 5, seconds=5)


@pytest.mark.acceptance("rayservice", 49)
async def test_49_a_gateway_that_is_not_programmed_holds_the_upgrade_and_is_named() -> None:
    world = Pair()
    world.gateway.is_programmed = False
    world.apply()
    await world.until(lambda: world.is_settled() and bool(world.weights), seconds=20)
    world.apply(config=GREEN)
    await world.run(30)
    assert (world.view.capacities, world.view.weights) == ((100, 0), (100, 0))
    assert "waiting: Gateway default/demo-gateway is not Programmed (AddressNotAssigned)" in world.message(
        "UpgradeInProgress"
    )
    assert world.reasons().count("GatewayNotReady") == 1
    world.gateway.is_programmed = True
    world.gateway.forget()
    await world.until(lambda: world.weights[world.pending] == 5, seconds=30)


@pytest.mark.acceptance("rayservice", 50)
async def test_50_an_acceptance_of_an_older_generation_does_not_count() -> None:
    world = await a_running_pair()
    world.gateway.is_asleep = True
    world.apply(config=GREEN)
    await world.run(30)
    assert (world.view.capacities, world.view.weights) == ((100, 0), (100, 0))


@pytest.mark.acceptance("rayservice", 51)
async def test_51_after_promotion_everything_follows_the_new_cluster() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue, green = await upgraded(world, upgradeStrategy=FAST)
    await world.run(1)
    assert (world.weights, world.selected("demo-head-svc")) == ({green: 100}, green)
    await world.run(70)
    assert world.clusters == [green]
    assert (SERVICE.kind, "default", f"{blue}-serve-svc") not in world.kube.objects


@pytest.mark.acceptance("rayservice", 52)
async def test_52_a_new_serve_config_goes_to_the_pending_cluster_alone() -> None:
    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: world.view.weights[1] == 20, seconds=100)
    blue, green = world.active, world.pending
    capacity = world.view.capacities[1]
    world.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await world.run(0.5)
    assert message_of(world.puts(green)[-1]) == "v2"
    assert world.puts(green)[-1]["target_capacity"] == capacity
    await world.until(lambda: world.is_settled() and world.active == green, seconds=400)
    assert {message_of(each) for each in world.puts(blue)} == {"v1"}


@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_no_event_and_few_reads() -> None:
    world = await a_running_pair()
    await world.run(30)
    head = world.serve.head(f"{world.active}-head-svc")
    requests, gets, puts = len(world.kube.requests), head.gets, world.serve.attempts
    await world.run(3600)
    assert [str(each) for each in world.kube.requests[requests:] if each.verb not in {"get", "list"}] == []
    assert world.serve.attempts == puts
    assert len(world.kube.requests) - requests <= 3600 / 60
    assert head.gets - gets <= 2 * 3600 / 4.5 + 2


@pytest.mark.acceptance("rayservice", 55)
async def test_55_what_users_added_to_the_route_stays() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    route = world.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    rule = {**route["spec"]["rules"][0], "timeouts": {"request": "30s"}}
    meta = {**route["metadata"], "annotations": {**route["metadata"]["annotations"], "mine": "1"}}
    world.kube.put(
        HTTP_ROUTE, {**route, "metadata": meta, "spec": {**route["spec"], "hostnames": ["a.example"], "rules": [rule]}}
    )
    await upgraded(world, upgradeStrategy=FAST)
    held = world.kube.objects[(HTTP_ROUTE.kind, "default", "demo-httproute")]
    assert held["spec"]["hostnames"] == ["a.example"]
    assert held["spec"]["rules"][0]["timeouts"] == {"request": "30s"}
    assert held["metadata"]["annotations"]["mine"] == "1"


@pytest.mark.acceptance("rayservice", 56)
async def test_56_without_the_gate_nothing_is_made() -> None:
    world = Pair(gates=BETA - {Gate.INCREMENTAL_UPGRADE})
    world.apply()
    await world.until(world.is_settled, seconds=20)
    await upgraded(world, seconds=30)
    assert (world.gateways, world.route) == ([], None)


@pytest.mark.acceptance("rayservice", 57)
async def test_57_a_service_may_change_to_steps_together_with_its_spec_and_its_serve_service_works_throughout() -> None:
    world = Pair()
    world.apply(**BEFORE)
    await world.until(world.is_settled, seconds=20)
    world.apply(config=GREEN)
    await world.run(0.25)
    green = world.pending
    for _ in range(2000):
        await world.run(0.25)
        reached = clusters_behind(world, "demo-serve-svc")
        assert reached
        assert sum(world.capacities(name)[-1] if name == green else 100 for name in reached if world.puts(name)) > 0
        if world.is_settled() and world.active == green:
            break
    assert world.capacities(green) == [0, 20, 40, 60, 80, 100]
    await world.run(1)
    await world.until(lambda: clusters_behind(world, "demo-serve-svc") == {green}, seconds=100)


def clusters_behind(world: Pair, service: str) -> set[str]:
    """Return the clusters of the ready pods that clients of a Service reach."""
    found = world.kube.objects[(ENDPOINT_SLICE.kind, "default", f"{service}-1")]
    uids = {each["targetRef"]["uid"] for each in found["endpoints"]}
    return {
        pod["metadata"]["labels"]["ray.io/cluster"] for pod in world.kube.all(POD) if pod["metadata"]["uid"] in uids
    }


@pytest.mark.acceptance("rayservice", 58)
async def test_58_a_service_that_leaves_the_steps_in_mid_upgrade_finishes_as_it_began() -> None:
    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: world.view.capacities[1] == 40, seconds=100)
    blue, green = world.active, world.pending
    world.apply(config=GREEN, **BEFORE)
    shares: list[int] = []
    for _ in range(4 * 300):
        await world.run(0.25)
        shares.append(world.weights[green])
        assert not [name for name, weight in world.weights.items() if weight and name not in world.clusters]
        if world.clusters == [green]:
            break
    assert shares == sorted(shares)  # one move after the other, and none back
    assert blue not in world.weights
    assert world.puts(green)[-1].get("target_capacity", 100) == 100
    assert (world.clusters, world.weights, world.selected()) == ([green], {green: 100}, green)


async def test_without_the_gateway_api_the_service_serves_and_says_what_is_missing() -> None:
    world = Pair()
    world.unknown_kinds |= GATEWAY_API
    world.apply()
    await world.until(world.is_settled, seconds=20)
    await world.run(60)
    assert "GatewayAPIMissing" in world.reasons()
    world.apply(config=GREEN)
    await world.run(60)
    assert world.message("UpgradeInProgress").endswith("does not exist (is the Gateway API installed?)")
    assert world.capacities(world.active) == [100]
    world.unknown_kinds.clear()
    await world.until(lambda: world.weights.get(world.pending) == 5, seconds=60)
    assert world.kube.all(GATEWAY)


async def test_a_route_that_somebody_deletes_comes_back_as_it_was() -> None:
    world = await a_running_pair()
    world.apply(config=GREEN)
    await world.until(lambda: world.view.weights[1] == 25, seconds=100)
    await world.kube.delete(HTTP_ROUTE, "default", "demo-httproute")
    await world.run(0.5)
    assert world.weights == {world.active: 75, world.pending: 25}
    assert world.view.capacities == (80, 40)


def message_of(config: Json) -> str:
    """Return what tells versions of the application apart."""
    return config["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
