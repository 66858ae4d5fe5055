"""A blue/green upgrade with an old cluster that drains: what is written when, and what ends it."""

from common import labels
from common.kube.resources import POD
from common.ray.ongoing import Ongoing
from support.builders.ray_service import a_cluster_config
from support.golden import Golden
from support.simulator.simulator import Simulator, trace_of_writes

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
ON = {labels.GRACEFUL_DRAIN: "true"}


async def an_upgraded_harness(
    *, ongoing: int | Ongoing | None, delay: int = 20, **annotations: str
) -> tuple[Simulator, str]:
    """Return a sim right after promotion, and its old cluster."""
    sim = Simulator()
    asked = ON | {
        f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()
    }
    sim.apply(annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await sim.until(sim.is_complete)
    old = sim.active
    sim.serve.head(f"{old}-head-svc").ongoing = ongoing
    sim.apply(config=GREEN, annotations=asked, rayClusterDeletionDelaySeconds=delay)
    await sim.run(1)
    await sim.until(sim.is_complete)
    await sim.run(0.5)
    return sim, old


def drain_notes(sim: Simulator) -> list[str]:
    return [note for _, reason, note in sim.kube.events() if reason == "DrainEnded"]


def pod_writes(sim: Simulator) -> list[str]:
    return [each for each in sim.kube.writes() if f" {POD.kind} " in f"{each} "]


async def test_the_old_pods_are_marked_at_once_and_only_they(golden: Golden) -> None:
    sim, old = await an_upgraded_harness(ongoing=0)
    marked = {
        pod["metadata"]["name"]
        for pod in sim.kube.all(POD)
        if pod["metadata"]["annotations"].get(labels.DRAINING) == "true"
    }
    assert marked == {f"{old}-head", f"{old}-worker"}
    await sim.run(60)
    assert sim.clusters == [sim.active]
    golden.check("service_reconciler/graceful_drain.txt", trace_of_writes(sim, sim.writes.lines))


def refreshes(sim: Simulator, old: str) -> list[str | None]:
    pods = (sim.kube.objects[(POD.kind, "default", f"{old}-{each}")] for each in ("head", "worker"))
    return [pod["metadata"]["annotations"].get(labels.DRAIN_REFRESH) for pod in pods]


async def test_marked_pods_are_changed_again_since_a_kubelet_may_have_missed_the_mark() -> None:
    sim, old = await an_upgraded_harness(ongoing=2)
    assert refreshes(sim, old) == [None, None]
    seen: list[list[str | None]] = []
    for seconds in (4, 7, 20):
        await sim.run(seconds)
        seen.append(refreshes(sim, old))
    assert seen == [["1", "1"], ["2", "2"], ["3", "3"]]
    before = pod_writes(sim)
    await sim.run(20)
    assert pod_writes(sim) == before


async def test_they_are_changed_again_in_time_although_nothing_is_in_flight() -> None:
    sim, old = await an_upgraded_harness(ongoing=Ongoing(has_ha_proxy=True), delay=0)
    await sim.run(4)
    assert refreshes(sim, old) == ["1", "1"]
    await sim.run(7)
    assert refreshes(sim, old) == ["2", "2"]


async def test_it_goes_when_the_last_request_is_answered() -> None:
    sim, old = await an_upgraded_harness(ongoing=2)
    await sim.run(40)
    assert old in sim.clusters
    sim.serve.head(f"{old}-head-svc").ongoing = 0
    await sim.run(2)
    assert old not in sim.clusters
    assert drain_notes(sim) == [f"RayCluster default/{old} was deleted with 0 requests in flight"]


async def test_the_cap_ends_it_with_requests_in_flight() -> None:
    sim, old = await an_upgraded_harness(ongoing=2, drain_timeout="10s")
    await sim.run(25)
    assert old in sim.clusters
    await sim.run(15)
    assert old not in sim.clusters
    assert drain_notes(sim)[0].startswith(f"RayCluster default/{old} was deleted with ")


async def test_a_pod_without_a_request_count_is_drained_for_the_whole_grace_period() -> None:
    sim, old = await an_upgraded_harness(ongoing=None)
    await sim.run(75)
    assert old in sim.clusters
    await sim.run(15)
    assert old not in sim.clusters
    assert drain_notes(sim) == [
        f"RayCluster default/{old} was deleted with an unknown number of requests in flight"
    ]


async def test_a_restart_forgets_neither_the_drain_nor_its_cap() -> None:
    sim, old = await an_upgraded_harness(ongoing=5, drain_timeout="30")
    await sim.run(35)
    sim.restart()
    await sim.run(10)
    assert old in sim.clusters
    await sim.run(15)
    assert old not in sim.clusters
    assert sim.reasons().count("DrainStarted") == 1


async def test_a_pod_that_joins_late_is_marked_too() -> None:
    sim, old = await an_upgraded_harness(ongoing=0)
    marks = {labels.CLUSTER: old, labels.NODE_TYPE: "worker"}
    sim.kube.put(
        POD,
        {
            "metadata": {"name": f"{old}-late", "labels": marks, "annotations": ON},
            "spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.52.0"}]},
        },
    )
    await sim.run(5)
    late = sim.kube.objects[(POD.kind, "default", f"{old}-late")]
    assert late["metadata"]["annotations"][labels.DRAINING] == "true"


async def test_behind_ha_proxy_it_waits_for_requests_that_only_the_replicas_know_of() -> None:
    draining = Ongoing(
        replicas=1, has_ha_proxy=True, has_older=True
    )  # of the head and of the worker, each
    sim, old = await an_upgraded_harness(ongoing=draining, drain_timeout="30")
    await sim.run(60)
    assert old not in sim.clusters
    assert drain_notes(sim) == [f"RayCluster default/{old} was deleted with 2 requests in flight"]


async def test_it_waits_for_streams_that_only_the_replicas_report_any_more() -> None:
    sim, old = await an_upgraded_harness(
        ongoing=Ongoing(replicas=3, lacks_proxy=True), delay=0, drain_timeout="200"
    )
    await sim.run(150)
    assert old in sim.clusters
    sim.serve.head(f"{old}-head-svc").ongoing = Ongoing(lacks_proxy=True)
    await sim.run(20)
    assert old not in sim.clusters


async def test_behind_ha_proxy_numbers_settle_for_longer() -> None:
    sim, old = await an_upgraded_harness(ongoing=Ongoing(has_ha_proxy=True), delay=0)
    await sim.run(20)
    assert old in sim.clusters
    await sim.run(10)
    assert old not in sim.clusters


async def test_an_unreadable_time_out_is_reported() -> None:
    sim, _ = await an_upgraded_harness(ongoing=0, drain_timeout="soon")
    (note,) = [note for _, reason, note in sim.kube.events() if reason == "DrainStarted"]
    assert (
        'raybus.io/drain-timeout "soon" is neither a duration such as 90s nor a number of seconds'
        in note
    )
