"""A spec that is reverted after its upgrade, while the replaced cluster still exists; ADR 44."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER, UPGRADE_POLICY
from support.builders.ray_service import NAMESPACE, a_cluster_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.fakes.kube import refusing
from support.laws import event_order
from support.simulator.simulator import BLUE as STEPS_BLUE
from support.simulator.simulator import GREEN as STEPS_GREEN
from support.simulator.simulator import Simulator, a_running_pair, a_running_simulator

BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
FOLLOWS: Json = {labels.UPGRADE_POLICY: "careful"}
MARKS = {labels.DELETE_AFTER, labels.DRAINING_SINCE}


def annotations_of(sim: Simulator, cluster: str) -> dict[str, str]:
    found = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]
    return found["metadata"]["annotations"]


def creations(sim: Simulator) -> list[str]:
    return [each.name for each in sim.kube.requests if str(each).startswith("create RayCluster")]


async def upgraded(
    bake: str | None = None, annotations: Json | None = None, **fields: Any
) -> tuple[Simulator, str]:
    """Return a service right after its promotion to the green spec, and the replaced cluster."""
    sim = await a_running_simulator(config=BLUE, annotations=annotations, **fields)
    blue, follows = sim.active, dict(annotations or {})
    if bake is not None:
        sim.kube.put(UPGRADE_POLICY, a_policy(spec={"bake": bake}, namespace=NAMESPACE))
        follows |= FOLLOWS
    sim.apply(config=GREEN, annotations=follows, **fields)
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    return sim, blue


async def test_a_cluster_that_returns_after_its_bake_keeps_no_deadline() -> None:
    sim, blue = await upgraded(bake="60s")
    green = sim.active
    sim.clock.advance(70)  # nobody reconciles
    sim.apply(config=BLUE, annotations=FOLLOWS)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=20)
    assert creations(sim) == [blue, green]
    assert not MARKS & annotations_of(sim, blue).keys()
    sim.apply(config=RED)
    await sim.until(lambda: sim.is_complete() and sim.active not in {blue, green})
    await sim.run(55)
    assert blue in sim.clusters
    await sim.until(lambda: blue not in sim.clusters, seconds=10)


async def test_a_reverted_upgrade_returns_to_the_replaced_cluster_within_its_deletion_delay() -> (
    None
):
    sim, blue = await upgraded()
    green = sim.active
    await sim.run(30)
    assert MARKS & annotations_of(sim, blue).keys()
    began = sim.clock.monotonic()
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=20)
    assert sim.clock.monotonic() - began < 5
    assert creations(sim) == [blue, green]
    await sim.run(50)
    assert not MARKS & annotations_of(sim, blue).keys()
    await sim.until(lambda: sim.clusters == [blue], seconds=20)
    await sim.run(60)
    assert sim.clusters == [blue]


async def test_the_return_is_an_upgrade_of_its_own_with_a_receipt_of_the_first_one() -> None:
    sim, blue = await upgraded()
    green = sim.active
    await sim.run(30)
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.active == blue and sim.clusters == [blue], seconds=99)
    published: dict[
        tuple[str, str], list[event_order.CloudEvent[event_order.UpgradeEventData]]
    ] = {}
    for each in sim.events.unique():
        upgrade = each.event.data.upgrade
        published.setdefault((upgrade.old, upgrade.new), []).append(each.event)
    assert {pair: event_order.kinds(events) for pair, events in published.items() if pair[0]} == {
        pair: ["started", "cluster-created", "promoted", "drain-started", "completed"]
        for pair in ((blue, green), (green, blue))
    }
    assert "UpgradeReceipt" in sim.reasons()


async def test_a_restart_at_any_write_of_a_return_starts_no_third_cluster() -> None:
    sim, _ = await upgraded()
    await sim.run(30)
    first, number = sim.writes.count, 0
    sim.apply(config=BLUE)
    await sim.run(20)
    last = sim.writes.count
    for number in range(1, last - first + 1):
        sim, blue = await upgraded()
        await sim.run(30)
        sim.writes.kill_before = sim.writes.count + number
        sim.apply(config=BLUE)
        await sim.run(20)
        assert (sim.is_complete(), sim.active) == (True, blue), number
        assert len(creations(sim)) == 2
        assert not MARKS & annotations_of(sim, blue).keys()


async def test_a_cluster_does_not_return_while_its_deadline_cannot_be_removed() -> None:
    sim, blue = await upgraded()
    green = sim.active
    await sim.run(30)
    refused = refusing("patch", "RayCluster", errors.Forbidden("no patch"), name=blue)
    sim.kube.faults.append(refused)
    sim.apply(config=BLUE)
    await sim.run(10)
    assert (sim.active, sim.pending) == (green, "")
    sim.kube.faults.remove(refused)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=30)


async def test_pods_of_a_cluster_that_returns_keep_their_connections_again() -> None:
    sim, blue = await upgraded(annotations={labels.GRACEFUL_DRAIN: "true"})
    await sim.run(10)
    sim.apply(config=BLUE, annotations={labels.GRACEFUL_DRAIN: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=20)
    await sim.run(2)
    pods = [each for each in sim.kube.all(POD) if each["metadata"]["name"].startswith(blue)]
    assert pods
    assert not [each for each in pods if labels.DRAINING in each["metadata"]["annotations"]]


@pytest.mark.parametrize("what", ["no head", "too few workers", "deleted", "suspended"])
async def test_a_cluster_that_is_not_whole_does_not_return(what: str) -> None:
    sim, blue = await upgraded()
    stored = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]
    if what == "no head":
        sim.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": []})
        sim.ray_clusters.holds_pods = True
        sim.apply(config=BLUE)
        await sim.run(2)
        sim.ray_clusters.holds_pods = False
    elif what == "too few workers":
        counts = {"desiredWorkerReplicas": 2, "readyWorkerReplicas": 1}
        sim.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {**stored["status"], **counts})
    elif what == "suspended":
        sim.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    else:
        held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
        sim.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
        await sim.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.is_complete() and len(creations(sim)) == 3, seconds=30)
    assert sim.active == creations(sim)[-1]


async def test_only_the_way_back_is_free_of_a_new_cluster() -> None:
    """A newer version would return without passing its gates again."""
    sim, blue = await upgraded()
    await sim.run(5)
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=20)
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)
    assert sim.active == creations(sim)[2]


async def test_a_return_that_is_taken_back_leaves_the_newer_cluster() -> None:
    sim, blue = await upgraded()
    green = sim.active
    await sim.run(5)
    sim.serve.head(f"{blue}-head-svc").behaviour = "silent"
    sim.apply(config=BLUE)
    await sim.until(lambda: sim.pending == blue, seconds=5)
    await sim.run(2)
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.clusters == [green], seconds=200)
    assert (sim.active, sim.pending, sim.selected()) == (green, "", green)


@pytest.mark.long
async def test_in_steps_the_replaced_cluster_returns_too() -> None:
    strategy = a_strategy(surge=100, step=50, interval=1)
    sim = await a_running_pair(upgradeStrategy=strategy, config=STEPS_BLUE)
    blue = sim.active
    sim.apply(config=STEPS_GREEN, upgradeStrategy=strategy)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=200)
    green = sim.active
    await sim.run(20)
    sim.apply(config=STEPS_BLUE, upgradeStrategy=strategy)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=200)
    assert creations(sim) == [blue, green]
    assert sim.capacities(blue)[-1] == 100
    await sim.until(lambda: sim.clusters == [blue], seconds=200)
    assert sim.weights == {blue: 100}
