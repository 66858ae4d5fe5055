"""How often the status is written while a cluster comes up: pods that get ready one after the other share a write."""

from typing import Any

from cluster_reconciler.execute import (
    MAX_GATHERING_TIME,
    PROGRESS_GATHER_TIME,
    PROGRESS_WRITES,
    SERVICE_GATHER_TIME,
)
from common import labels
from common.api.opaque import Body
from common.kube.resources import POD, RAY_CLUSTER
from scenario.cluster_reconciler.harness import NAMESPACE, Harness
from support.builders.ray_cluster import a_ray_cluster

READY: Body = {
    "phase": "Running",
    "podIP": "10.0.0.1",
    "conditions": [{"type": "Ready", "status": "True"}],
}


async def a_new_harness() -> Harness:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    return harness


async def make_ready(harness: Harness, *names: str, status: Body = READY) -> None:
    for name in names:
        harness.kube.set_status(POD, NAMESPACE, name, status)
        await harness.settle()


def status_writes(harness: Harness) -> int:
    return sum("/status" in str(request) for request in harness.kube.requests)


def reported(harness: Harness) -> Any:
    return harness.cluster().status.ready_worker_replicas


async def test_pods_that_get_ready_one_by_one_take_two_writes_in_all() -> None:
    harness = await a_new_harness()
    await make_ready(harness, *harness.names("head"), *harness.names("worker"))
    assert harness.cluster().status.state == "ready"
    assert status_writes(harness) == 2


async def test_pods_that_are_ready_before_the_first_status_take_one_write() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    await make_ready(harness, *harness.names("head"), *harness.names("worker"))
    assert (harness.cluster().status.state, status_writes(harness)) == ("ready", 1)


async def test_progress_is_reported_after_a_moment_while_other_pods_are_missing() -> None:
    harness = await a_new_harness()
    await make_ready(harness, *harness.names("head"), harness.names("worker")[0])
    assert reported(harness) == 0
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    assert reported(harness) == 1
    assert harness.conditions()["HeadPodReady"][0] == "True"


async def test_many_clusters_that_come_up_share_the_writes_of_their_progress() -> None:
    harness, clusters = Harness(), 2 * PROGRESS_WRITES
    for number in range(clusters):
        harness.apply(a_ray_cluster(f"c{number}"))
    await harness.settle()
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    assert status_writes(harness) <= PROGRESS_WRITES
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    assert status_writes(harness) == clusters
    assert harness.app.observer.in_progress == {}


async def test_progress_is_never_kept_for_longer_than_the_limit() -> None:
    harness = Harness()
    clusters = int(1.5 * PROGRESS_WRITES * MAX_GATHERING_TIME.total_seconds())
    for number in range(clusters):
        harness.apply(a_ray_cluster(f"c{number}"))
        await harness.settle()
    for _ in range(int(MAX_GATHERING_TIME / PROGRESS_GATHER_TIME)):
        assert status_writes(harness) < clusters
        harness.clock.advance(PROGRESS_GATHER_TIME.total_seconds())
        for key in [key for key, when in harness.promised.items() if when <= harness.clock.now()]:
            await harness.reconcile(key)
    assert status_writes(harness) == clusters


async def test_a_cluster_that_is_gone_makes_no_progress() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert len(harness.app.observer.in_progress) == 1
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, "c")
    await harness.settle()
    assert harness.app.observer.in_progress == {}


async def test_the_head_of_a_services_cluster_is_reported_sooner() -> None:
    harness = Harness()
    harness.apply(
        a_ray_cluster(labels={labels.ORIGIN_NAME: "demo", labels.ORIGIN_KIND: "RayService"})
    )
    await harness.settle()
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    await make_ready(harness, *harness.names("head"))
    assert (
        "HeadPodReady" not in harness.conditions()
        or harness.conditions()["HeadPodReady"][0] == "False"
    )
    await harness.pass_time(SERVICE_GATHER_TIME.total_seconds())
    assert harness.conditions()["HeadPodReady"][0] == "True"


async def test_the_progress_of_a_jobs_cluster_is_gathered_as_that_of_a_users() -> None:
    """A job waits until its cluster is ready, so earlier progress needs no write of its own."""
    harness = Harness()
    harness.apply(a_ray_cluster(labels={labels.ORIGIN_NAME: "demo", labels.ORIGIN_KIND: "RayJob"}))
    await harness.settle()
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    await make_ready(harness, *harness.names("head"))
    await harness.pass_time(SERVICE_GATHER_TIME.total_seconds())
    assert harness.conditions().get("HeadPodReady", ("False",))[0] == "False"
    await harness.pass_time(PROGRESS_GATHER_TIME.total_seconds())
    assert harness.conditions()["HeadPodReady"][0] == "True"


async def test_a_lost_worker_is_reported_at_once() -> None:
    harness = await a_new_harness()
    await make_ready(harness, *harness.names("head"), *harness.names("worker"))
    lost: Body = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    await make_ready(harness, harness.names("worker")[0], status=lost)
    assert reported(harness) == len(harness.names("worker")) - 1
