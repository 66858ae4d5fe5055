"""Whatever gets requests stays: no interleaving of edits and deletions takes the only cluster that serves."""

from common import labels
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, Simulator, a_running_pair

HALF = a_strategy(surge=50, step=50, interval=5)
SLOW = a_strategy(surge=50, step=50, interval=600)


def annotations_of(sim: Simulator, cluster: str) -> dict[str, str]:
    return sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]["metadata"].get(
        "annotations", {}
    )


async def at_half() -> Simulator:
    """Return an upgrade to green that gave the pending cluster half of the traffic."""
    sim = await a_running_pair(upgradeStrategy=HALF)
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy=HALF)
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    return sim


async def test_a_reverted_goal_does_not_drop_the_pending_cluster_that_alone_serves() -> None:
    sim = await at_half()
    blue, green = sim.active, sim.pending
    sim.apply(config=BLUE, upgradeStrategy=SLOW)
    await sim.run(0.25)
    await sim.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await sim.run(2)
    assert (sim.active, sim.weights.get(green)) == (green, 100)
    assert labels.DELETE_AFTER not in annotations_of(sim, green)
    await sim.until(lambda: sim.is_complete() and sim.active not in {blue, green}, seconds=1300)
    assert green in sim.clusters
    await sim.run(130)
    assert sim.clusters == [sim.active]


async def test_a_third_spec_does_not_drop_it_either_and_follows_as_an_upgrade_from_it() -> None:
    sim = await at_half()
    blue, green = sim.active, sim.pending
    await sim.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    sim.apply(config=BLUE, upgradeStrategy=SLOW)
    await sim.run(2)
    assert (sim.active, sim.weights.get(green)) == (green, 100)
    assert sim.pending not in {"", blue, green}


async def test_the_drain_clock_starts_when_the_gateway_has_accepted_a_route_without_the_cluster() -> (
    None
):
    sim = await at_half()
    blue, green = sim.active, sim.pending
    sim.serve.head(f"{green}-head-svc").ongoing = 7

    def sleeps(put: str) -> None:
        """Let the Gateway follow the way back, and not the route without the old cluster."""
        sim.gateway.is_asleep |= (
            put == f"after put {green}-head-svc" and sim.capacities(green)[-1] == 0
        )

    sim.serve.on_put.append(sleeps)
    fast = a_strategy(surge=50, step=50, interval=1)
    sim.apply(config=BLUE, upgradeStrategy=fast, rayClusterDeletionDelaySeconds=10)
    await sim.until(sim.is_complete, seconds=60)
    assert (sim.active, sim.weights) == (blue, {blue: 100})
    await sim.run(200)
    assert labels.DELETE_AFTER not in annotations_of(sim, green)
    text = f"RayCluster default/{green} is not needed any more and is kept: it gets requests from HTTPRoute default/demo-httproute"
    notes = [note for _, reason, note in sim.kube.events() if reason == "OldClusterKept"]
    assert notes == [f"{text}, which its Gateway has not accepted yet as it is now"]
    sim.gateway.is_asleep = False
    await sim.run(2)
    assert labels.DELETE_AFTER in annotations_of(sim, green)
    await sim.run(30)
    assert green in sim.clusters, "it works on requests"
    sim.serve.head(f"{green}-head-svc").ongoing = 0
    await sim.run(5)
    assert sim.clusters == [blue]


async def test_requests_that_come_back_stop_the_clock() -> None:
    sim = await at_half()
    blue, green = sim.active, sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)
    await sim.run(3)
    assert labels.DELETE_AFTER in annotations_of(sim, blue)
    sim.services["traffic"].is_down = True
    route = sim.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    [rule] = route["spec"]["rules"]
    [ref] = rule["backendRefs"]
    both = [{**ref, "weight": 60}, {**ref, "name": f"{blue}-serve-svc", "weight": 40}]
    sim.kube.put(
        HTTP_ROUTE, {**route, "spec": {**route["spec"], "rules": [{**rule, "backendRefs": both}]}}
    )
    await sim.run(100)
    assert not {labels.DELETE_AFTER, labels.DRAINING_SINCE} & set(annotations_of(sim, blue))
    sim.services["traffic"].is_down = False
    await sim.run(40)
    assert blue in sim.clusters
    await sim.run(60)
    assert sim.clusters == [green]
