"""A model is upgraded under load, and no client notices; nor does one when parts of raybus die in the middle of it."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from common.api.core import Pod
from common.kube.resources import POD
from raybus_cli.demo.receipt import Receipt
from raybus_cli.demo.story import Plan
from raybus_cli.demo.watching import NAMESPACE, look
from raybus_cli.demo.world import PodList
from support import victims
from support.waiting import eventually_true

from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

Harm = Callable[[Rig], Awaitable[None]]

SERVICES = {
    "watcher": "-m watcher",
    "cluster-reconciler": "-m cluster_reconciler",
    "service-reconciler": "-m service_reconciler",
    "traffic-manager": "-m traffic_manager",
}


async def test_the_demo_upgrades_under_load_without_a_failed_request(rig: Rig) -> None:
    receipt = await upgraded(rig, Plan(manifests=DEPLOY), harm=None)
    assert receipt.traffic.requests >= 3000
    assert {"version 1, status 200", "version 2, status 200"} == set(receipt.traffic.by_answer)


async def kill_each_service(rig: Rig) -> None:
    for name, command in SERVICES.items():
        victims.kill((await pod_of(rig, name)).metadata.uid, command)
        await asyncio.sleep(3)


async def kill_nats(rig: Rig) -> None:
    victims.kill((await pod_of(rig, "nats")).metadata.uid, "nats-server")


async def lose_the_volume(rig: Rig) -> None:
    victims.kill_and_empty((await pod_of(rig, "nats")).metadata.uid, "nats-server", "/data")


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(kill_each_service, id="kill -9 of each service, one after the other"),
        pytest.param(kill_nats, id="kill -9 of NATS"),
        pytest.param(lose_the_volume, id="kill -9 of NATS and loss of the JetStream volume"),
    ],
)
async def test_no_request_fails_when_parts_of_raybus_die_in_mid_upgrade(rig: Rig, harm: Harm) -> None:
    await upgraded(rig, Plan(manifests=DEPLOY, least_requests=0, before_seconds=3, after_seconds=3), harm=harm)


async def upgraded(rig: Rig, plan: Plan, *, harm: Harm | None) -> Receipt:
    """Run the demo's upgrade, do harm once the new cluster is on its way, and expect one end state."""
    story = rig.story(plan)
    async with asyncio.timeout(500), asyncio.TaskGroup() as group:
        await story.serve()
        if harm is not None:
            group.create_task(harm_in_mid_upgrade(rig, harm))
        receipt = await story.upgrade()
    assert receipt.traffic.failures == []
    assert receipt.problem is None
    await expect_the_end_state(rig, receipt)
    return receipt


async def harm_in_mid_upgrade(rig: Rig, harm: Harm) -> None:
    async def has_begun() -> bool:
        return bool((await look(rig.kube)).pending)

    await eventually_true(has_begun, within=180, what="a pending cluster")
    await harm(rig)


async def expect_the_end_state(rig: Rig, receipt: Receipt) -> None:
    """One cluster, the new one, serves; every part of raybus is well again."""

    async def raybus_is_well() -> bool:
        return all(pod.is_running_and_ready for pod in await raybus_pods(rig))

    await eventually_true(raybus_is_well, within=90, what="raybus being well again")
    world = await look(rig.kube)
    assert world.service is not None
    assert world.service.is_ready
    assert world.clusters == (receipt.new_cluster,)
    assert world.active == receipt.new_cluster != receipt.old_cluster
    assert not world.pending
    heads = [pod for pod in world.pods if pod.metadata.labels["ray.io/node-type"] == "head"]
    assert (len(heads), len(world.pods)) == (1, 2), f"pods in {NAMESPACE}: one head, one worker"


async def raybus_pods(rig: Rig) -> list[Pod]:
    pods = msgspec.json.decode(await rig.kube.list(POD, "raybus"), type=PodList).items
    return [pod for pod in pods if pod.metadata.labels.get("app.kubernetes.io/name") != "nats-credentials"]


async def pod_of(rig: Rig, service: str) -> Pod:
    return next(pod for pod in await raybus_pods(rig) if pod.metadata.labels["app.kubernetes.io/name"] == service)
