"""The loss of a head.

Without fault tolerance the cluster starts anew; with it the workers and their work continue. Real
Ray, a real Redis, and Ray's embedded store on a volume are used; spec raycluster §7, §9.4, §11.13.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from common.api.opaque import Json
from common.kube.resources import JOB
from localcluster.demo.cluster_state import ClusterList
from support.waiting import eventually_true

from .conftest import Rig
from .ray_cluster import NAMESPACE, RunningCluster, a_cluster, a_group, running, spread

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "open-sesame"
START = """
@ray.remote(num_cpus=0.1)
class Counter:
    value = 0
    def more(self):
        self.value += 1
        return self.value
counter = Counter.options(name='counter', lifetime='detached', max_restarts=-1).remote()
print(ray.get([counter.more.remote() for _ in range(3)])[-1])
"""
CONTINUE = "print(ray.get(ray.get_actor('counter').more.remote()))"
LIVE_NODES = "print(sum(node['Alive'] for node in ray.nodes()))"


def an_impatient_group(name: str) -> Json:
    """Return a group whose worker ends and restarts after 10 s without its head; Ray's default is
    60 s.
    """
    group = a_group(name)
    group["template"]["spec"]["containers"][0]["env"] += [
        {"name": "RAY_gcs_rpc_server_reconnect_timeout_s", "value": "10"}
    ]
    return group


async def lose_the_head(cluster: RunningCluster) -> None:
    """Take the head away and wait until another one runs."""
    lost = await cluster.head()
    await cluster.kill(lost)

    async def another_runs() -> bool:
        heads = await cluster.pods(group="headgroup")
        return any(
            pod.is_running_and_ready and pod.metadata.uid != lost.metadata.uid for pod in heads
        )

    await eventually_true(another_runs, within=120, what="another head")


async def expect_nodes(cluster: RunningCluster, number: int) -> None:
    async def all_live() -> bool:
        return await cluster.run(LIVE_NODES) == str(number)

    await eventually_true(all_live, within=120, every=2, what=f"{number} live Ray nodes")


async def test_without_fault_tolerance_another_head_comes_and_the_workers_join_it(rig: Rig) -> None:
    async with running(rig, a_cluster("plain", an_impatient_group("workers"))) as cluster:
        await cluster.wait_for(workers=1)
        assert await cluster.run(START) == "3"
        (worker,) = await cluster.pods(group="workers")
        await lose_the_head(cluster)
        await expect_nodes(cluster, 2)
        await cluster.wait_for(workers=1)
        (same,) = await cluster.pods(group="workers")
        assert same.metadata.uid == worker.metadata.uid, (
            "the pod stays; its container starts again and joins"
        )
        with pytest.raises(Exception, match="counter"):
            await cluster.run(CONTINUE)


async def expect_that_work_goes_on(cluster: RunningCluster) -> None:
    """Lose the head while an actor holds a value in its memory, and check that the value survives."""
    await cluster.wait_for(workers=1)
    assert await cluster.run(START) == "3"
    workers = spread(await cluster.pods(group="workers"))
    await lose_the_head(cluster)
    await expect_nodes(cluster, 2)
    assert await cluster.run(CONTINUE) == "4"
    assert spread(await cluster.pods(group="workers")) == workers


@pytest.mark.ondemand
async def test_with_redis_work_goes_on_and_nothing_is_left_in_redis_at_the_end(rig: Rig) -> None:
    secret = {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}
    options = {"redisAddress": "redis:6379", "redisPassword": secret}
    manifest = a_cluster("lasting", a_group("workers"), gcsFaultToleranceOptions=options)
    async with redis(rig):
        async with running(rig, manifest) as cluster:
            await expect_that_work_goes_on(cluster)
            assert await redis_size(rig) > 0
            await rig.kubectl.run(
                "delete", "raycluster", "lasting", "-n", NAMESPACE, "--wait=false"
            )
            await eventually_true(
                lambda: job_exists(rig), within=60, what="the Job that empties Redis"
            )
            await eventually_true(
                lambda: is_gone(rig, "lasting"), within=120, what="the RayCluster going"
            )
        assert await redis_size(rig) == 0
        forced = await rig.kubectl.run(
            "get", "events", "-n", NAMESPACE, "-o", "jsonpath={.items[*].reason}"
        )
        assert "ForceDeletedStuckCluster" not in forced.split()


@pytest.mark.ondemand
async def test_with_the_embedded_store_work_goes_on(rig: Rig) -> None:
    options = {"backend": "rocksdb"}
    manifest = a_cluster("embedded", a_group("workers"), gcsFaultToleranceOptions=options)
    manifest["spec"]["headGroupSpec"]["template"]["spec"]["securityContext"] = {"fsGroup": 100}
    async with running(rig, manifest) as cluster:
        await expect_that_work_goes_on(cluster)


async def job_exists(rig: Rig) -> bool:
    body = await rig.kube.list(
        JOB, NAMESPACE, label_selector="ray.io/cluster=lasting,ray.io/node-type=redis-cleanup"
    )
    return bool(msgspec.json.decode(body)["items"])


async def is_gone(rig: Rig, name: str) -> bool:
    listed = await rig.kubectl.run("get", "raycluster", "-n", NAMESPACE, "-o", "json")
    return name not in {
        each.metadata.name for each in msgspec.json.decode(listed, type=ClusterList).items
    }


async def redis_size(rig: Rig) -> int:
    """Return how many keys Redis holds."""
    command = ("redis-cli", "--no-auth-warning", "-a", PASSWORD, "dbsize")
    output = await rig.kubectl.run("exec", "-n", NAMESPACE, "redis", "--", *command)
    return int(output.split()[-1])


@asynccontextmanager
async def redis(rig: Rig) -> AsyncGenerator[None]:
    """Run a Redis with a password for the length of a `with` block."""
    manifest = "\n---\n".join(msgspec.json.encode(each).decode() for each in redis_objects())
    await rig.kubectl.run("apply", "-f", "-", stdin=manifest)
    try:
        await rig.kubectl.run(
            "wait", "-n", NAMESPACE, "pod/redis", "--for=condition=Ready", "--timeout=60s"
        )
        yield
    finally:
        await rig.kubectl.run(
            "delete", "pod,service,secret", "redis", "-n", NAMESPACE, "--grace-period=1"
        )


def redis_objects() -> list[Json]:
    """Return Redis without any file: its pod, its Service and its password."""
    metadata = {"name": "redis", "namespace": NAMESPACE, "labels": {"app": "redis"}}
    container = {
        "name": "redis",
        "image": "registry.invalid/raybus/redis:dev",
        "imagePullPolicy": "IfNotPresent",
        "args": ["--save", "", "--appendonly", "no", "--dir", "/tmp", "--requirepass", PASSWORD],
        "readinessProbe": {"tcpSocket": {"port": 6379}, "periodSeconds": 1},
    }
    port = {"port": 6379}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {"containers": [container]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": "redis"}, "ports": [port]},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": {"password": PASSWORD},
        },
    ]
