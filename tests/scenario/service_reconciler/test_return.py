"""A spec that is reverted after its upgrade, while the replaced cluster still exists; ADR 44."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER, UPGRADE_POLICY
from scenario.service_reconciler.harness import Harness, a_running_harness
from scenario.upgrade.harness import BLUE as STEPS_BLUE
from scenario.upgrade.harness import GREEN as STEPS_GREEN
from scenario.upgrade.harness import a_running_pair
from support import upgrade_laws
from support.builders.ray_service import NAMESPACE, a_cluster_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.fakes.kube import Request

BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
FOLLOWS: Json = {labels.UPGRADE_POLICY: "careful"}
MARKS = {labels.DELETE_AFTER, labels.DRAINING_SINCE}


def annotations_of(harness: Harness, cluster: str) -> dict[str, str]:
    found = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster)]
    return found["metadata"]["annotations"]


def creations(harness: Harness) -> list[str]:
    return [
        each.name for each in harness.kube.requests if str(each).startswith("create RayCluster")
    ]


async def upgraded(
    bake: str | None = None, annotations: Json | None = None, **fields: Any
) -> tuple[Harness, str]:
    """Return a service right after its promotion to the green spec, and the replaced cluster."""
    harness = await a_running_harness(config=BLUE, annotations=annotations, **fields)
    blue, follows = harness.active, dict(annotations or {})
    if bake is not None:
        harness.kube.put(UPGRADE_POLICY, a_policy(spec={"bake": bake}, namespace=NAMESPACE))
        follows |= FOLLOWS
    harness.apply(config=GREEN, annotations=follows, **fields)
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    return harness, blue


async def test_a_cluster_that_returns_after_its_bake_keeps_no_deadline() -> None:
    harness, blue = await upgraded(bake="60s")
    green = harness.active
    harness.clock.advance(70)  # nobody reconciles
    harness.apply(config=BLUE, annotations=FOLLOWS)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=20)
    assert creations(harness) == [blue, green]
    assert not MARKS & annotations_of(harness, blue).keys()
    harness.apply(config=RED)
    await harness.until(lambda: harness.is_complete() and harness.active not in {blue, green})
    await harness.run(55)
    assert blue in harness.clusters
    await harness.until(lambda: blue not in harness.clusters, seconds=10)


async def test_a_reverted_upgrade_returns_to_the_replaced_cluster_within_its_deletion_delay() -> (
    None
):
    harness, blue = await upgraded()
    green = harness.active
    await harness.run(30)
    assert MARKS & annotations_of(harness, blue).keys()
    began = harness.clock.monotonic()
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=20)
    assert harness.clock.monotonic() - began < 5
    assert creations(harness) == [blue, green]
    await harness.run(50)
    assert not MARKS & annotations_of(harness, blue).keys()
    await harness.until(lambda: harness.clusters == [blue], seconds=20)
    await harness.run(60)
    assert harness.clusters == [blue]


async def test_the_return_is_an_upgrade_of_its_own_with_a_receipt_of_the_first_one() -> None:
    harness, blue = await upgraded()
    green = harness.active
    await harness.run(30)
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.active == blue and harness.clusters == [blue], seconds=99)
    published: dict[tuple[str, str], list[upgrade_laws.CloudEvent[upgrade_laws.Data]]] = {}
    for each in harness.events.unique():
        upgrade = each.event.data.upgrade
        published.setdefault((upgrade.old, upgrade.new), []).append(each.event)
    assert {pair: upgrade_laws.kinds(events) for pair, events in published.items() if pair[0]} == {
        pair: ["started", "cluster-created", "promoted", "drain-started", "completed"]
        for pair in ((blue, green), (green, blue))
    }
    assert "UpgradeReceipt" in harness.reasons()


async def test_a_restart_at_any_write_of_a_return_starts_no_third_cluster() -> None:
    harness, _ = await upgraded()
    await harness.run(30)
    first, number = harness.writes, 0
    harness.apply(config=BLUE)
    await harness.run(20)
    last = harness.writes
    for number in range(1, last - first + 1):
        harness, blue = await upgraded()
        await harness.run(30)
        harness.kill_before = harness.writes + number
        harness.apply(config=BLUE)
        await harness.run(20)
        assert (harness.is_complete(), harness.active) == (True, blue), number
        assert len(creations(harness)) == 2
        assert not MARKS & annotations_of(harness, blue).keys()


async def test_a_cluster_does_not_return_while_its_deadline_cannot_be_removed() -> None:
    harness, blue = await upgraded()
    green = harness.active
    await harness.run(30)

    def refused(request: Request) -> errors.RaybusError | None:
        is_patch = (request.verb, request.kind, request.name) == ("patch", "RayCluster", blue)
        return errors.Forbidden("no patch") if is_patch else None

    harness.kube.faults.append(refused)
    harness.apply(config=BLUE)
    await harness.run(10)
    assert (harness.active, harness.pending) == (green, "")
    harness.kube.faults.remove(refused)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=30)


async def test_pods_of_a_cluster_that_returns_keep_their_connections_again() -> None:
    harness, blue = await upgraded(annotations={labels.GRACEFUL_DRAIN: "true"})
    await harness.run(10)
    harness.apply(config=BLUE, annotations={labels.GRACEFUL_DRAIN: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=20)
    await harness.run(2)
    pods = [each for each in harness.kube.all(POD) if each["metadata"]["name"].startswith(blue)]
    assert pods
    assert not [each for each in pods if labels.DRAINING in each["metadata"]["annotations"]]


@pytest.mark.parametrize("what", ["no head", "too few workers", "deleted", "suspended"])
async def test_a_cluster_that_is_not_whole_does_not_return(what: str) -> None:
    harness, blue = await upgraded()
    stored = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]
    if what == "no head":
        harness.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": []})
        harness.holds_pods = True
        harness.apply(config=BLUE)
        await harness.run(2)
        harness.holds_pods = False
    elif what == "too few workers":
        counts = {"desiredWorkerReplicas": 2, "readyWorkerReplicas": 1}
        harness.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {**stored["status"], **counts})
    elif what == "suspended":
        harness.kube.put(RAY_CLUSTER, {**stored, "spec": {**stored["spec"], "suspend": True}})
    else:
        held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
        harness.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
        await harness.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.is_complete() and len(creations(harness)) == 3, seconds=30)
    assert harness.active == creations(harness)[-1]


async def test_only_the_way_back_is_free_of_a_new_cluster() -> None:
    """The newer version would return without the gates that it passed once."""
    harness, blue = await upgraded()
    await harness.run(5)
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=20)
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)
    assert harness.active == creations(harness)[2]


async def test_a_return_that_is_taken_back_leaves_the_newer_cluster() -> None:
    harness, blue = await upgraded()
    green = harness.active
    await harness.run(5)
    harness.serve.head(f"{blue}-head-svc").behaviour = "silent"
    harness.apply(config=BLUE)
    await harness.until(lambda: harness.pending == blue, seconds=5)
    await harness.run(2)
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.clusters == [green], seconds=200)
    assert (harness.active, harness.pending, harness.selected()) == (green, "", green)


@pytest.mark.long
async def test_in_steps_the_replaced_cluster_returns_too() -> None:
    strategy = a_strategy(surge=100, step=50, interval=1)
    harness = await a_running_pair(upgradeStrategy=strategy, config=STEPS_BLUE)
    blue = harness.active
    harness.apply(config=STEPS_GREEN, upgradeStrategy=strategy)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=200)
    green = harness.active
    await harness.run(20)
    harness.apply(config=STEPS_BLUE, upgradeStrategy=strategy)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=200)
    assert creations(harness) == [blue, green]
    assert harness.capacities(blue)[-1] == 100
    await harness.until(lambda: harness.clusters == [blue], seconds=200)
    assert harness.weights == {blue: 100}
