"""The example controller (docs/how-to/controller.md): it writes when the address changes, and nothing else at any time."""

import os
import subprocess
import sys
from typing import Final

import pytest

from common import errors
from common.api import ray_cluster
from common.api.opaque import Body
from common.kube.resources import RAY_CLUSTER
from scenario.example_controller.harness import (
    EXAMPLE,
    NAMESPACE,
    Harness,
    a_harness_at_rest,
    example,
)
from support.fakes.kube import Request

pytestmark = pytest.mark.looptime

ADDRESS: Final = "http://c-head-svc.ns.svc:8265"
PATCH: Final = "patch RayCluster c"
ELSEWHERE: Final = {"managedBy": "kueue.x-k8s.io/multikueue"}


async def test_the_annotation_is_written_once_when_the_head_service_appears() -> None:
    harness = Harness()
    harness.apply_cluster()
    await harness.settle()
    assert (harness.address(), harness.writes()) == (None, [])
    harness.apply_head_service()
    await harness.settle()
    assert (harness.address(), harness.writes()) == (ADDRESS, [PATCH])


async def test_a_second_reconcile_reads_and_writes_nothing_at_the_api_server() -> None:
    harness = await a_harness_at_rest()
    harness.enqueue()
    await harness.settle()
    assert harness.kube.requests == []


async def test_a_restarted_controller_writes_nothing() -> None:
    before = await a_harness_at_rest()
    harness = Harness()
    for kind, body in ((kind, body) for (kind, _, _), body in before.kube.objects.items()):
        harness.kube.put(
            {"RayCluster": RAY_CLUSTER, "Service": example.resources.SERVICE}[kind], body
        )
    await harness.settle()
    assert (harness.address(), harness.writes()) == (ADDRESS, [])


@pytest.mark.parametrize(
    "annotations", [{"example.com/dashboard": "http://wrong"}, {}], ids=["changed", "removed"]
)
async def test_an_annotation_that_somebody_changes_is_corrected(
    annotations: dict[str, str],
) -> None:
    harness = await a_harness_at_rest()
    harness.apply_cluster(annotations=annotations)
    await harness.settle()
    assert (harness.address(), harness.writes()) == (ADDRESS, [PATCH])


async def test_the_annotation_follows_the_port_of_the_service() -> None:
    harness = await a_harness_at_rest()
    harness.apply_head_service(port=9000)
    await harness.settle()
    assert (harness.address(), harness.writes()) == ("http://c-head-svc.ns.svc:9000", [PATCH])


async def test_the_annotation_is_removed_with_the_head_service_and_the_others_stay() -> None:
    harness = await a_harness_at_rest()
    harness.apply_cluster(annotations={example.ANNOTATION: ADDRESS, "example.com/other": "stays"})
    await harness.delete_head_service()
    await harness.settle()
    assert (harness.address(), harness.writes()) == (None, [PATCH])
    assert harness.kube.objects["RayCluster", NAMESPACE, "c"]["metadata"]["annotations"] == {
        "example.com/other": "stays"
    }


@pytest.mark.parametrize("spec", [{"type": "ExternalName"}, {"selector": {}}], ids=str)
async def test_a_service_that_may_lead_elsewhere_is_not_the_dashboard(spec: Body) -> None:
    harness = await a_harness_at_rest()
    harness.apply_head_service(spec=spec)
    await harness.settle()
    assert harness.address() is None


async def test_a_service_that_is_being_deleted_is_not_the_dashboard() -> None:
    harness = Harness()
    harness.apply_cluster()
    harness.apply_head_service(
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.b/c"]}
    )
    await harness.settle()
    assert (harness.address(), harness.writes()) == (None, [])


async def test_a_conflict_is_retried_and_what_changed_meanwhile_stays() -> None:
    harness = Harness()
    harness.apply_cluster()
    harness.apply_head_service()
    harness.is_bus_late = True
    harness.apply_cluster(labels={"team": "a"})
    await harness.settle()
    assert harness.address() is None
    assert set(harness.writes()) == {PATCH}, (
        "each try is refused: it has the resourceVersion of a stale cache"
    )
    harness.deliver()
    await harness.settle()
    assert (harness.address(), harness.labels()) == (ADDRESS, {"team": "a"})
    assert harness.writes() == [PATCH]


async def test_an_unavailable_api_server_is_retried() -> None:
    harness = Harness()
    answers: list[errors.RaybusError] = [
        errors.Unavailable("no answer"),
        errors.Throttled("slowly", after=0.2),
    ]

    def fault(request: Request) -> errors.RaybusError | None:
        return answers.pop(0) if answers and request.verb == "patch" else None

    harness.kube.faults.append(fault)
    harness.apply_cluster()
    harness.apply_head_service()
    await harness.settle()
    assert (harness.address(), harness.writes()) == (ADDRESS, [PATCH, PATCH, PATCH])


async def test_a_cluster_of_another_controller_is_not_written() -> None:
    harness = Harness()
    harness.apply_cluster(spec=ELSEWHERE, annotations={example.ANNOTATION: "of another controller"})
    harness.apply_head_service()
    await harness.settle()
    assert (harness.address(), harness.writes()) == ("of another controller", [])


async def test_a_cluster_that_is_being_deleted_is_not_written() -> None:
    harness = Harness()
    harness.apply_cluster(deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/hold"])
    harness.apply_head_service()
    await harness.settle()
    assert (harness.address(), harness.writes()) == (None, [])


async def test_a_deleted_cluster_leaves_nothing_to_do() -> None:
    harness = await a_harness_at_rest()
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, "c")
    harness.writes()
    await harness.settle()
    harness.enqueue()
    await harness.settle()
    assert harness.writes() == []


async def test_each_cluster_has_the_address_of_its_own_service() -> None:
    harness = Harness()
    for name in ("c", "d"):
        harness.apply_cluster(name)
        harness.apply_head_service(name, port=9000 if name == "d" else 8265)
    await harness.settle()
    assert (harness.address("c"), harness.address("d")) == (
        ADDRESS,
        "http://d-head-svc.ns.svc:9000",
    )


async def test_the_plan_depends_on_the_observation_alone() -> None:
    harness = await a_harness_at_rest()
    harness.apply_cluster(annotations={})
    cluster = ray_cluster.decode(harness.kube.objects["RayCluster", NAMESPACE, "c"])
    service = harness.app.cache.get(example.Service, NAMESPACE, "c-head-svc")
    early, late = (example.make_plan((cluster, service), now=now) for now in (1, 2))
    assert early == late
    assert [str(each) for each in early.actions] == ["change RayCluster c"]


@pytest.mark.long  # it starts a process
def test_the_process_names_a_setting_that_is_wrong() -> None:
    environment = {**os.environ, "RAYBUS_NATS_URL": "http://nats"}
    ended = subprocess.run(
        [sys.executable, EXAMPLE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("dashboard-annotation: RAYBUS_NATS_URL='http://nats'")
