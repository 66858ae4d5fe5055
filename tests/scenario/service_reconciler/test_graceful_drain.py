"""A blue/green upgrade with an old cluster that drains: what is written when, and what ends it."""

from common import labels
from common.kube.resources import POD
from common.ray.ongoing import Ongoing
from scenario.service_reconciler.harness import Harness, trace_of
from support.builders.ray_service import a_cluster_config
from support.golden import Golden

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
ON = {labels.GRACEFUL_DRAIN: "true"}


async def an_upgraded_harness(
    *, ongoing: int | Ongoing | None, delay: int = 20, **annotations: str
) -> tuple[Harness, str]:
    """Return a harness right after promotion, and its old cluster."""
    harness = Harness()
    asked = ON | {
        f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()
    }
    harness.apply(annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await harness.until(harness.is_complete)
    old = harness.active
    harness.serve.head(f"{old}-head-svc").ongoing = ongoing
    harness.apply(config=GREEN, annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await harness.run(1)
    await harness.until(harness.is_complete)
    await harness.run(0.5)
    return harness, old


def drain_notes(harness: Harness) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if reason == "DrainEnded"]


def pod_writes(harness: Harness) -> list[str]:
    return [each for each in harness.kube.writes() if f" {POD.kind} " in f"{each} "]


async def test_the_old_pods_are_marked_at_once_and_only_they(golden: Golden) -> None:
    harness, old = await an_upgraded_harness(ongoing=0)
    marked = {
        pod["metadata"]["name"]
        for pod in harness.kube.all(POD)
        if pod["metadata"]["annotations"].get(labels.DRAINING) == "true"
    }
    assert marked == {f"{old}-head", f"{old}-worker"}
    await harness.run(60)
    assert harness.clusters == [harness.active]
    golden.check("service_reconciler/graceful_drain.txt", trace_of(harness))


def refreshes(harness: Harness, old: str) -> list[str | None]:
    pods = (
        harness.kube.objects[(POD.kind, "default", f"{old}-{each}")] for each in ("head", "worker")
    )
    return [pod["metadata"]["annotations"].get(labels.DRAIN_REFRESH) for pod in pods]


async def test_marked_pods_are_changed_again_since_a_kubelet_may_have_missed_the_mark() -> None:
    harness, old = await an_upgraded_harness(ongoing=2)
    assert refreshes(harness, old) == [None, None]
    seen: list[list[str | None]] = []
    for seconds in (4, 7, 20):
        await harness.run(seconds)
        seen.append(refreshes(harness, old))
    assert seen == [["1", "1"], ["2", "2"], ["3", "3"]]
    before = pod_writes(harness)
    await harness.run(20)
    assert pod_writes(harness) == before


async def test_they_are_changed_again_in_time_although_nothing_is_in_flight() -> None:
    harness, old = await an_upgraded_harness(ongoing=Ongoing(has_ha_proxy=True), delay=0)
    await harness.run(4)
    assert refreshes(harness, old) == ["1", "1"]
    await harness.run(7)
    assert refreshes(harness, old) == ["2", "2"]


async def test_it_goes_when_the_last_request_is_answered() -> None:
    harness, old = await an_upgraded_harness(ongoing=2)
    await harness.run(40)
    assert old in harness.clusters
    harness.serve.head(f"{old}-head-svc").ongoing = 0
    await harness.run(2)
    assert old not in harness.clusters
    assert drain_notes(harness) == [
        f"RayCluster default/{old} was deleted with 0 requests in flight"
    ]


async def test_the_cap_ends_it_with_requests_in_flight() -> None:
    harness, old = await an_upgraded_harness(ongoing=2, drain_timeout="10s")
    await harness.run(25)
    assert old in harness.clusters
    await harness.run(15)
    assert old not in harness.clusters
    assert drain_notes(harness)[0].startswith(f"RayCluster default/{old} was deleted with ")


async def test_a_pod_without_a_request_count_is_drained_for_the_whole_grace_period() -> None:
    harness, old = await an_upgraded_harness(ongoing=None)
    await harness.run(75)
    assert old in harness.clusters
    await harness.run(15)
    assert old not in harness.clusters
    assert drain_notes(harness) == [
        f"RayCluster default/{old} was deleted with an unknown number of requests in flight"
    ]


async def test_a_restart_forgets_neither_the_drain_nor_its_cap() -> None:
    harness, old = await an_upgraded_harness(ongoing=5, drain_timeout="30")
    await harness.run(35)
    harness.restart()
    await harness.run(10)
    assert old in harness.clusters
    await harness.run(15)
    assert old not in harness.clusters
    assert harness.reasons().count("DrainStarted") == 1


async def test_a_pod_that_joins_late_is_marked_too() -> None:
    harness, old = await an_upgraded_harness(ongoing=0)
    marks = {labels.CLUSTER: old, labels.NODE_TYPE: "worker"}
    harness.kube.put(
        POD,
        {
            "metadata": {"name": f"{old}-late", "labels": marks, "annotations": ON},
            "spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.52.0"}]},
        },
    )
    await harness.run(5)
    late = harness.kube.objects[(POD.kind, "default", f"{old}-late")]
    assert late["metadata"]["annotations"][labels.DRAINING] == "true"


async def test_behind_ha_proxy_it_waits_for_requests_that_only_the_replicas_know_of() -> None:
    draining = Ongoing(
        replicas=1, has_ha_proxy=True, has_older=True
    )  # of the head and of the worker, each
    harness, old = await an_upgraded_harness(ongoing=draining, drain_timeout="30")
    await harness.run(60)
    assert old not in harness.clusters
    assert drain_notes(harness) == [
        f"RayCluster default/{old} was deleted with 2 requests in flight"
    ]


async def test_it_waits_for_streams_that_only_the_replicas_report_any_more() -> None:
    harness, old = await an_upgraded_harness(
        ongoing=Ongoing(replicas=3, lacks_proxy=True), delay=0, drain_timeout="200"
    )
    await harness.run(150)
    assert old in harness.clusters
    harness.serve.head(f"{old}-head-svc").ongoing = Ongoing(lacks_proxy=True)
    await harness.run(20)
    assert old not in harness.clusters


async def test_behind_ha_proxy_numbers_settle_for_longer() -> None:
    harness, old = await an_upgraded_harness(ongoing=Ongoing(has_ha_proxy=True), delay=0)
    await harness.run(20)
    assert old in harness.clusters
    await harness.run(10)
    assert old not in harness.clusters


async def test_an_unreadable_time_out_is_reported() -> None:
    harness, _ = await an_upgraded_harness(ongoing=0, drain_timeout="soon")
    (note,) = [note for _, reason, note in harness.kube.events() if reason == "DrainStarted"]
    assert (
        'raybus.io/drain-timeout "soon" is neither a duration such as 90s nor a number of seconds'
        in note
    )
