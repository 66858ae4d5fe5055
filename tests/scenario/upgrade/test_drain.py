"""The old cluster of an upgrade in steps goes when its last request is answered; no pod gets a notice."""

from typing import Any

import pytest

from common import labels
from common.kube.resources import POD
from support.builders.ray_service import a_strategy
from support.simulator.simulator import GREEN, Simulator, a_running_pair

FAST = a_strategy(surge=100, step=100, interval=1)


async def a_promoted_pair(
    *, ongoing: int | None, delay: int = 20, **annotations: str
) -> tuple[Simulator, str]:
    """Return services right after promotion, and the old cluster."""
    asked = {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    fields: dict[str, Any] = {
        "upgradeStrategy": FAST,
        "rayClusterDeletionDelaySeconds": delay,
        "annotations": asked,
    }
    sim = await a_running_pair(**fields)
    old = sim.active
    sim.serve.head(f"{old}-head-svc").ongoing = ongoing
    sim.apply(config=GREEN, **fields)
    await sim.until(lambda: sim.is_complete() and sim.active != old, seconds=40)
    return sim, old


def notes(sim: Simulator) -> list[tuple[str, str]]:
    return [(kind, note) for kind, reason, note in sim.kube.events() if reason == "DrainEnded"]


async def test_an_idle_cluster_goes_after_the_usual_delay_and_no_pod_is_marked() -> None:
    sim, old = await a_promoted_pair(ongoing=0)
    assert not [
        pod for pod in sim.kube.all(POD) if labels.DRAINING in pod["metadata"]["annotations"]
    ]
    await sim.run(20)
    assert old in sim.clusters
    await sim.run(5)
    assert old not in sim.clusters
    assert notes(sim) == [
        ("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")
    ]


async def test_a_busy_one_goes_when_its_last_request_is_answered() -> None:
    sim, old = await a_promoted_pair(ongoing=2)
    await sim.run(50)
    assert old in sim.clusters
    sim.serve.head(f"{old}-head-svc").ongoing = 0
    await sim.run(2)
    assert old not in sim.clusters


async def test_the_cap_ends_it_and_reports_the_cut_requests() -> None:
    sim, old = await a_promoted_pair(ongoing=2, drain_timeout="10")
    await sim.run(40)
    assert old not in sim.clusters
    assert notes(sim) == [
        ("Warning", f"RayCluster default/{old} was deleted with 4 requests in flight")
    ]


async def test_without_a_cap_it_goes_at_the_delay_as_with_kuberay() -> None:
    sim, old = await a_promoted_pair(ongoing=2, drain_timeout="0")
    await sim.run(25)
    assert old not in sim.clusters


async def test_where_no_pod_reports_its_requests_the_wait_is_short() -> None:
    sim, old = await a_promoted_pair(ongoing=None)
    await sim.run(30)
    assert old in sim.clusters
    await sim.run(10)
    assert old not in sim.clusters


def _with_pods_in(sim: Simulator, old: str, phase: str) -> None:
    for role in ("head", "worker"):
        sim.kube.set_status(POD, "default", f"{old}-{role}", {"phase": phase, "podIP": ""})


async def test_a_running_pod_without_a_known_address_works_on_an_unknown_number_of_requests() -> (
    None
):
    sim, old = await a_promoted_pair(ongoing=0)
    _with_pods_in(sim, old, "Running")
    await sim.run(30)
    assert old in sim.clusters


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Pending"])
async def test_where_no_container_runs_no_request_is_in_flight(phase: str) -> None:
    sim, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(sim, old, phase)
    await sim.run(25)
    assert old not in sim.clusters
    assert notes(sim) == [
        ("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")
    ]


async def test_a_pod_on_a_node_that_does_not_report_has_an_unknown_number_of_requests() -> None:
    sim, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(sim, old, "Unknown")
    await sim.run(30)
    assert old in sim.clusters
    await sim.run(10)
    assert old not in sim.clusters
    assert notes(sim) == [
        (
            "Normal",
            f"RayCluster default/{old} was deleted with an unknown number of requests in flight",
        )
    ]


async def test_a_restart_forgets_nothing() -> None:
    sim, old = await a_promoted_pair(ongoing=1, drain_timeout="30")
    await sim.run(35)
    sim.restart()
    await sim.run(10)
    assert old in sim.clusters
    await sim.run(15)
    assert old not in sim.clusters
