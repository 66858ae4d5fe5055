"""Clusters in Kueue's queues: nothing runs before it is admitted, and no upgrade exceeds the quota at any moment.

Kueue, its webhooks and the pods' nodes (kwok) are real; Serve is a fake. A cluster asks for two processors: its head for one, its worker for
another. At each event of a watch the pods that are there are added up.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE
from integration.service_reconciler.conftest import Live, running
from integration.service_reconciler.test_life import active, condition, is_complete
from localcluster.control_plane import ControlPlane
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service
from support.waiting import eventually_true

from . import kueue

pytestmark = [pytest.mark.integration]

ONE: Final = {"requests": {"cpu": "1"}}
CLUSTER: Final = 2
"""Processors that one cluster asks for."""
TIMEOUT: Final = 60.0
QUEUED: Final = "is suspended by its queue"


class Event(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: Json


class Queued(msgspec.Struct):
    """A namespace with a queue, and what its pods ask for."""

    live: Live
    queue: str
    most: int = 0
    """Maximum of the processors that all pods of the namespace requested, at any event."""

    async def set_quota(self, processors: float, **fields: str) -> None:
        """Give the queue so many processors."""
        await kueue.set_quota(self.live.kube, self.queue, processors, **fields)

    async def create(self, **fields: Any) -> None:
        """Create a RayService of the queue."""
        body = a_ray_service(config=a_config("2.52.0"), rayClusterDeletionDelaySeconds=1, **fields)
        del body["metadata"]["namespace"]
        body["metadata"]["labels"][kueue.QUEUE_LABEL] = self.queue
        await self.live.kube.create(RAY_SERVICE, self.live.namespace, body)

    async def clusters(self) -> list[Body]:
        """Read the RayClusters."""
        return await self.live.found(RAY_CLUSTER)

    async def until(self, holds: Callable[[Json], bool], what: str) -> Json:
        """Wait until something holds of the RayService's status."""

        async def is_so() -> bool:
            return holds((await self.live.service()).get("status", {}))

        try:
            await eventually_true(is_so, within=TIMEOUT, what=what)
        except AssertionError as failure:
            workloads = [
                (each["metadata"]["name"], each.get("status"))
                for each in await self.live.found(kueue.WORKLOAD)
            ]
            suspended = [
                (each["metadata"]["name"], each["spec"].get("suspend"))
                for each in await self.clusters()
            ]
            status = (await self.live.service()).get("status")
            raise AssertionError(f"{failure}\n{status}\n{suspended}\n{workloads}") from failure
        return (await self.live.service())["status"]


def a_config(version: str) -> Json:
    """Return a cluster of a head and a worker, of one processor each."""
    group = a_group()
    group["template"]["spec"]["containers"][0]["resources"] = ONE
    config = a_cluster_config(group, image=f"rayproject/ray:{version}")
    config["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"] = ONE
    return config


def message(status: Json, kind: str) -> str:
    """Return the message of a condition."""
    found = [each for each in status.get("conditions", []) if each["type"] == kind]
    return found[0]["message"] if found else ""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def clusters_in_queues(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[None]:
    """Run Kueue with RayClusters as its jobs."""
    async with kueue.running(
        control_plane, tmp_path_factory.mktemp("kueue"), ["ray.io/raycluster"]
    ):
        yield


@pytest.fixture
async def queued(
    kube: KubeClient, namespace: str, clusters_in_queues: None
) -> AsyncIterator[Queued]:
    """Run both services in a namespace with a queue."""
    async with queue_of(kube, namespace) as found:
        yield found


@asynccontextmanager
async def queue_of(kube: KubeClient, namespace: str) -> AsyncGenerator[Queued]:
    """Make a queue, run both services and add up the pods, for the length of a block."""
    async with running(kube, Config()) as serve, asyncio.TaskGroup() as group:
        found = Queued(live=Live(kube, serve, namespace), queue=f"q-{uuid4().hex[:6]}")
        await found.set_quota(0)
        await kueue.make_queue(kube, namespace, found.queue)
        following = group.create_task(add_up(found))
        yield found
        following.cancel()


async def add_up(queued: Queued) -> None:
    """Follow the pods of a namespace, and note the most that they ask for together."""
    pods: dict[str, int] = {}
    while True:
        async with queued.live.kube.stream(
            POD.path(queued.live.namespace), query={"watch": "true"}
        ) as lines:
            async for line in lines:
                event = msgspec.json.decode(line, type=Event)
                if event.type in {"ADDED", "MODIFIED", "DELETED"}:
                    uid, spec = event.object["metadata"]["uid"], event.object["spec"]
                    pods[uid] = sum(
                        int(each["resources"]["requests"]["cpu"]) for each in spec["containers"]
                    )
                    if event.type == "DELETED":
                        del pods[uid]
                    queued.most = max(queued.most, sum(pods.values()))


async def test_nothing_runs_before_it_is_admitted_and_nothing_after_its_eviction(
    queued: Queued,
) -> None:
    await queued.set_quota(CLUSTER - 0.5)
    await queued.create()
    await queued.until(lambda s: QUEUED in message(s, "Ready"), "the wait is reported")
    await asyncio.sleep(3)
    assert await queued.live.names(POD) == []
    await queued.set_quota(CLUSTER)
    await queued.until(is_complete, "it serves")
    assert queued.most == CLUSTER
    await queued.set_quota(CLUSTER, stop="HoldAndDrain")
    await queued.live.eventually(POD, [])
    await queued.until(lambda s: QUEUED in message(s, "Ready"), "the eviction is reported")
    await queued.set_quota(CLUSTER)
    await queued.until(is_complete, "it serves again")
    assert queued.most == CLUSTER


async def test_an_upgrade_waits_for_quota_while_the_old_cluster_serves(queued: Queued) -> None:
    await queued.set_quota(1.5 * CLUSTER)
    await queued.create()
    blue = active(await queued.until(is_complete, "it serves"))
    await queued.live.patch(rayClusterConfig=a_config("2.53.0"))
    await queued.until(lambda s: QUEUED in message(s, "UpgradeInProgress"), "the wait is reported")
    await asyncio.sleep(5)
    status = (await queued.live.service())["status"]
    assert active(status) == blue
    assert condition(status, "Ready")[0] == "True"
    assert queued.most == CLUSTER
    await queued.set_quota(2 * CLUSTER)
    status = await queued.until(
        lambda s: is_complete(s) and active(s) != blue, "the new cluster serves"
    )
    await queued.live.eventually(RAY_CLUSTER, [active(status)])
    assert queued.most <= 2 * CLUSTER
