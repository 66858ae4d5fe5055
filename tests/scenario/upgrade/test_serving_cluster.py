"""Whatever gets requests stays: no interleaving of edits and deletions takes the only cluster that serves."""

from common import labels
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import NAMESPACE, a_serve_config, a_strategy

HALF = a_strategy(surge=50, step=50, interval=5)
SLOW = a_strategy(surge=50, step=50, interval=600)


def annotations_of(harness: Pair, cluster: str) -> dict[str, str]:
    return harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]["metadata"].get(
        "annotations", {}
    )


async def at_half() -> Pair:
    """Return an upgrade to green that gave the pending cluster half of the traffic."""
    harness = await a_running_pair(upgradeStrategy=HALF)
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"), upgradeStrategy=HALF)
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    return harness


async def test_a_reverted_goal_does_not_drop_the_pending_cluster_that_alone_serves() -> None:
    harness = await at_half()
    blue, green = harness.active, harness.pending
    harness.apply(config=BLUE, upgradeStrategy=SLOW)
    await harness.run(0.25)
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await harness.run(2)
    assert (harness.active, harness.weights.get(green)) == (green, 100)
    assert labels.DELETE_AFTER not in annotations_of(harness, green)
    await harness.until(
        lambda: harness.is_complete() and harness.active not in {blue, green}, seconds=1300
    )
    assert green in harness.clusters
    await harness.run(130)
    assert harness.clusters == [harness.active]


async def test_a_third_spec_does_not_drop_it_either_and_follows_as_an_upgrade_from_it() -> None:
    harness = await at_half()
    blue, green = harness.active, harness.pending
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    harness.apply(config=BLUE, upgradeStrategy=SLOW)
    await harness.run(2)
    assert (harness.active, harness.weights.get(green)) == (green, 100)
    assert harness.pending not in {"", blue, green}


async def test_the_drain_clock_starts_when_the_gateway_has_accepted_a_route_without_the_cluster() -> (
    None
):
    harness = await at_half()
    blue, green = harness.active, harness.pending
    harness.serve.head(f"{green}-head-svc").ongoing = 7

    def sleeps(put: str) -> None:
        """Let the Gateway follow the way back, and not the route without the old cluster."""
        harness.gateway.is_asleep |= (
            put == f"after put {green}-head-svc" and harness.capacities(green)[-1] == 0
        )

    harness.serve.on_put.append(sleeps)
    fast = a_strategy(surge=50, step=50, interval=1)
    harness.apply(config=BLUE, upgradeStrategy=fast, rayClusterDeletionDelaySeconds=10)
    await harness.until(harness.is_complete, seconds=60)
    assert (harness.active, harness.weights) == (blue, {blue: 100})
    await harness.run(200)
    assert labels.DELETE_AFTER not in annotations_of(harness, green)
    text = f"RayCluster default/{green} is not needed any more and is kept: it gets requests from HTTPRoute default/demo-httproute"
    notes = [note for _, reason, note in harness.kube.events() if reason == "OldClusterKept"]
    assert notes == [f"{text}, which its Gateway has not accepted yet as it is now"]
    harness.gateway.is_asleep = False
    await harness.run(2)
    assert labels.DELETE_AFTER in annotations_of(harness, green)
    await harness.run(30)
    assert green in harness.clusters, "it works on requests"
    harness.serve.head(f"{green}-head-svc").ongoing = 0
    await harness.run(5)
    assert harness.clusters == [blue]


async def test_requests_that_come_back_stop_the_clock() -> None:
    harness = await at_half()
    blue, green = harness.active, harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)
    await harness.run(3)
    assert labels.DELETE_AFTER in annotations_of(harness, blue)
    harness.is_traffic_down = True
    route = harness.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, "demo-httproute")]
    [rule] = route["spec"]["rules"]
    [ref] = rule["backendRefs"]
    both = [{**ref, "weight": 60}, {**ref, "name": f"{blue}-serve-svc", "weight": 40}]
    harness.kube.put(
        HTTP_ROUTE, {**route, "spec": {**route["spec"], "rules": [{**rule, "backendRefs": both}]}}
    )
    await harness.run(100)
    assert not {labels.DELETE_AFTER, labels.DRAINING_SINCE} & set(annotations_of(harness, blue))
    harness.is_traffic_down = False
    await harness.run(40)
    assert blue in harness.clusters
    await harness.run(60)
    assert harness.clusters == [green]
