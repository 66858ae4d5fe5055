"""Whatever gets requests stays: no interleaving of edits and deletions takes the only cluster that serves."""

from common import labels
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair
from service_reconciler.resources.ray_cluster import DELETE_AFTER
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy

HALF = a_strategy(surge=50, step=50, interval=5)
SLOW = a_strategy(surge=50, step=50, interval=600)


def annotations_of(world: Pair, cluster: str) -> dict[str, str]:
    return world.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]["metadata"].get("annotations", {})


async def at_half() -> Pair:
    """Return an upgrade to green that gave the pending cluster half of the traffic."""
    world = await a_running_pair(upgradeStrategy=HALF)
    world.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy=HALF)
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    return world


async def test_a_reverted_goal_does_not_drop_the_pending_cluster_that_alone_serves() -> None:
    world = await at_half()
    blue, green = world.active, world.pending
    world.apply(config=BLUE, upgradeStrategy=SLOW)
    await world.run(0.25)
    await world.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await world.run(2)
    assert (world.active, world.weights.get(green)) == (green, 100)
    assert DELETE_AFTER not in annotations_of(world, green)
    await world.until(lambda: world.is_settled() and world.active not in {blue, green}, seconds=1300)
    assert green in world.clusters
    await world.run(130)
    assert world.clusters == [world.active]


async def test_a_third_spec_does_not_drop_it_either_and_follows_as_an_upgrade_from_it() -> None:
    world = await at_half()
    blue, green = world.active, world.pending
    await world.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    world.apply(config=BLUE, upgradeStrategy=SLOW)
    await world.run(2)
    assert (world.active, world.weights.get(green)) == (green, 100)
    assert world.pending not in {"", blue, green}


async def test_the_drain_clock_starts_when_the_gateway_has_accepted_a_route_without_the_cluster() -> None:
    world = await at_half()
    blue, green = world.active, world.pending
    world.serve.head(f"{green}-head-svc").ongoing = 7

    def sleeps(put: str) -> None:
        """Let the Gateway follow the way back, and not the route without the old cluster."""
        world.gateway.is_asleep |= put == f"after put {green}-head-svc" and world.capacities(green)[-1] == 0

    world.serve.on_put.append(sleeps)
    fast = a_strategy(surge=50, step=50, interval=1)
    world.apply(config=BLUE, upgradeStrategy=fast, rayClusterDeletionDelaySeconds=10)
    await world.until(world.is_settled, seconds=60)
    assert (world.active, world.weights) == (blue, {blue: 100})
    await world.run(200)
    assert DELETE_AFTER not in annotations_of(world, green)
    text = f"RayCluster default/{green} is not needed any more and is kept: it gets requests from HTTPRoute default/demo-httproute"
    told = [note for _, reason, note in world.kube.events() if reason == "OldClusterKept"]
    assert told == [f"{text}, which its Gateway has not accepted yet as it is now"]
    world.gateway.is_asleep = False
    await world.run(2)
    assert DELETE_AFTER in annotations_of(world, green)
    await world.run(30)
    assert green in world.clusters, "it works on requests"
    world.serve.head(f"{green}-head-svc").ongoing = 0
    await world.run(5)
    assert world.clusters == [blue]


async def test_requests_that_come_back_stop_the_clock() -> None:
    world = await at_half()
    blue, green = world.active, world.pending
    await world.until(lambda: world.is_settled() and world.active == green, seconds=60)
    await world.run(3)
    assert DELETE_AFTER in annotations_of(world, blue)
    world.is_traffic_down = True
    route = world.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    [rule] = route["spec"]["rules"]
    [ref] = rule["backendRefs"]
    both = [{**ref, "weight": 60}, {**ref, "name": f"{blue}-serve-svc", "weight": 40}]
    world.kube.put(HTTP_ROUTE, {**route, "spec": {**route["spec"], "rules": [{**rule, "backendRefs": both}]}})
    await world.run(100)
    assert not {DELETE_AFTER, labels.DRAINING_SINCE} & set(annotations_of(world, blue))
    world.is_traffic_down = False
    await world.run(40)
    assert blue in world.clusters
    await world.run(60)
    assert world.clusters == [green]
