"""The old cluster of an upgrade in steps goes when its last request is answered; no pod gets a notice."""

from typing import Any

import pytest

from common import labels
from common.kube.resources import POD
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from support.builders.ray_service import a_strategy

FAST = a_strategy(surge=100, step=100, interval=1)


async def a_promoted_pair(
    *, ongoing: int | None, delay: int = 20, **annotations: str
) -> tuple[Pair, str]:
    """Return services right after promotion, and the old cluster."""
    asked = {f"raybus.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    fields: dict[str, Any] = {
        "upgradeStrategy": FAST,
        "rayClusterDeletionDelaySeconds": delay,
        "annotations": asked,
    }
    harness = await a_running_pair(**fields)
    old = harness.active
    harness.serve.head(f"{old}-head-svc").ongoing = ongoing
    harness.apply(config=GREEN, **fields)
    await harness.until(lambda: harness.is_complete() and harness.active != old, seconds=40)
    return harness, old


def notes(harness: Pair) -> list[tuple[str, str]]:
    return [(kind, note) for kind, reason, note in harness.kube.events() if reason == "DrainEnded"]


async def test_an_idle_cluster_goes_after_the_usual_delay_and_no_pod_is_marked() -> None:
    harness, old = await a_promoted_pair(ongoing=0)
    assert not [
        pod for pod in harness.kube.all(POD) if labels.DRAINING in pod["metadata"]["annotations"]
    ]
    await harness.run(20)
    assert old in harness.clusters
    await harness.run(5)
    assert old not in harness.clusters
    assert notes(harness) == [
        ("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")
    ]


async def test_a_busy_one_goes_when_its_last_request_is_answered() -> None:
    harness, old = await a_promoted_pair(ongoing=2)
    await harness.run(50)
    assert old in harness.clusters
    harness.serve.head(f"{old}-head-svc").ongoing = 0
    await harness.run(2)
    assert old not in harness.clusters


async def test_the_cap_ends_it_and_reports_the_cut_requests() -> None:
    harness, old = await a_promoted_pair(ongoing=2, drain_timeout="10")
    await harness.run(40)
    assert old not in harness.clusters
    assert notes(harness) == [
        ("Warning", f"RayCluster default/{old} was deleted with 4 requests in flight")
    ]


async def test_without_a_cap_it_goes_at_the_delay_as_with_kuberay() -> None:
    harness, old = await a_promoted_pair(ongoing=2, drain_timeout="0")
    await harness.run(25)
    assert old not in harness.clusters


async def test_where_no_pod_reports_its_requests_the_wait_is_short() -> None:
    harness, old = await a_promoted_pair(ongoing=None)
    await harness.run(30)
    assert old in harness.clusters
    await harness.run(10)
    assert old not in harness.clusters


def _with_pods_in(harness: Pair, old: str, phase: str) -> None:
    for role in ("head", "worker"):
        harness.kube.set_status(POD, "default", f"{old}-{role}", {"phase": phase, "podIP": ""})


async def test_a_running_pod_without_a_known_address_works_on_an_unknown_number_of_requests() -> (
    None
):
    harness, old = await a_promoted_pair(ongoing=0)
    _with_pods_in(harness, old, "Running")
    await harness.run(30)
    assert old in harness.clusters


@pytest.mark.parametrize("phase", ["Failed", "Succeeded", "Pending"])
async def test_where_no_container_runs_no_request_is_in_flight(phase: str) -> None:
    harness, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(harness, old, phase)
    await harness.run(25)
    assert old not in harness.clusters
    assert notes(harness) == [
        ("Normal", f"RayCluster default/{old} was deleted with 0 requests in flight")
    ]


async def test_a_pod_on_a_node_that_does_not_report_has_an_unknown_number_of_requests() -> None:
    harness, old = await a_promoted_pair(ongoing=None)
    _with_pods_in(harness, old, "Unknown")
    await harness.run(30)
    assert old in harness.clusters
    await harness.run(10)
    assert old not in harness.clusters
    assert notes(harness) == [
        (
            "Normal",
            f"RayCluster default/{old} was deleted with an unknown number of requests in flight",
        )
    ]


async def test_a_restart_forgets_nothing() -> None:
    harness, old = await a_promoted_pair(ongoing=1, drain_timeout="30")
    await harness.run(35)
    harness.restart()
    await harness.run(10)
    assert old in harness.clusters
    await harness.run(15)
    assert old not in harness.clusters
