"""Suspend, time limit, deletion, metrics; spec rayservice §13.5-§16, acceptance 79-91."""

from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from common import errors
from common.api.ray_service import RayService
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from support.builders.ray_service import a_cluster_config
from support.fakes.kube import refusing
from support.simulator.simulator import Simulator, a_running_simulator

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
TIMEOUT = {"ray.io/initializing-timeout": "10s"}


def own_services(sim: Simulator) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in sim.kube.all(SERVICE)
        if each["metadata"]["name"].startswith("demo-")
    ]


SUSPEND = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
WAITING = "Waiting for all Kubernetes resources owned by this RayService to be deleted."


@pytest.mark.acceptance("rayservice", 79)
async def test_79_the_request_to_suspend_is_durable_before_anything_goes() -> None:
    sim = await a_running_simulator()
    (cluster,) = sim.clusters
    done, reported = len(sim.kube.requests), len(sim.kube.events())
    sim.apply(suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    requests = [
        each
        for each in sim.kube.requests[done:]
        if each.verb not in {"get", "list"} and each.kind != "Event"
    ]
    assert str(requests[0]) == "update RayService/status demo"
    first = requests[0].body["status"]
    assert {
        each["type"]: (each["status"], each["reason"], each["message"])
        for each in first["conditions"]
    } == {
        "Suspending": ("True", "SuspendRequested", SUSPEND),
        "Ready": ("False", "SuspendInProgress", "RayService is suspending."),
        "UpgradeInProgress": ("False", "SuspendInProgress", "No upgrade in progress."),
        "RollbackInProgress": ("False", "SuspendInProgress", "No rollback in progress."),
    }
    assert "rayClusterName" not in first["activeServiceStatus"]
    assert not {"serviceStatus", "numServeEndpoints"} & set(first)
    assert {str(each) for each in requests if each.verb == "delete"} == {
        f"delete RayCluster {cluster}",
        "delete Service demo-head-svc",
        "delete Service demo-serve-svc",
    }
    assert f"Deleted the RayCluster default/{cluster} during suspend" in [
        note for _, _, note in sim.kube.events()[reported:]
    ]
    assert (sim.clusters, own_services(sim)) == ([], [])


@pytest.mark.acceptance("rayservice", 79)
async def test_79_suspended_is_in_every_condition_and_nothing_more_is_done() -> None:
    sim = await a_running_simulator()
    sim.apply(suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    assert sim.condition("Suspended") == ("True", "SuspendComplete")
    assert (
        sim.message("Suspended")
        == sim.message("Suspending")
        == "All owned resources have been deleted."
    )
    assert sim.message("Ready") == "RayService is suspended."
    for kind in ("Suspending", "Ready", "UpgradeInProgress", "RollbackInProgress"):
        assert sim.condition(kind) == ("False", "SuspendComplete")
    done = len(sim.kube.requests)
    await sim.run(60)
    assert len(sim.kube.requests) == done
    assert await sim.services["service"].parts.reconciler(sim.key, sim.clock.now()) is None


@pytest.mark.acceptance("rayservice", 80)
async def test_80_suspend_is_finished_even_when_it_is_taken_back() -> None:
    sim = await a_running_simulator()
    first = sim.active
    stored = sim.kube.objects[(RAY_CLUSTER.kind, "default", first)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    sim.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    for suspend in (True, False, True, False):
        sim.apply(suspend=suspend)
        await sim.run(2)
    assert sim.condition("Suspending") == ("True", "SuspendInProgress")
    assert sim.message("Suspending") == WAITING
    await sim.kube.patch(
        RAY_CLUSTER, "default", first, PatchRequest(body={"metadata": {"finalizers": None}})
    )
    await sim.until(sim.is_complete)
    assert sim.active != first
    assert sim.condition("Suspended") == ("False", "RayServiceResumed")
    assert sim.message("Suspended") == "Spec.Suspend is false; RayService has resumed."


@pytest.mark.acceptance("rayservice", 81)
async def test_81_born_suspended_nothing_is_ever_created() -> None:
    sim = Simulator()
    sim.apply(suspend=True)
    await sim.run(60)
    assert sim.condition("Suspended") == ("True", "SuspendComplete")
    assert not [each for each in sim.kube.writes() if each.startswith("create")]
    assert sim.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspended_in_mid_upgrade_it_resumes_on_one_fresh_cluster() -> None:
    sim = await a_running_simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(1)
    before = {sim.active, sim.pending}
    sim.apply(config=GREEN, suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    assert sim.clusters == []
    sim.ray_clusters.holds_pods = False
    sim.apply(config=GREEN)
    await sim.until(sim.is_complete)
    assert len(sim.clusters) == 1
    assert sim.active not in before


@pytest.mark.acceptance("rayservice", 83)
async def test_83_a_service_that_is_not_ready_in_time_fails_for_good() -> None:
    sim = Simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(annotations=TIMEOUT, rayClusterDeletionDelaySeconds=5)
    await sim.run(11)
    assert sim.condition("Ready") == ("False", "InitializingTimeout")
    text = "RayService failed to become ready within the configured timeout of 10s. Time spent initializing: 10s"
    assert sim.message("Ready") == text
    assert (sim.active, sim.pending) == ("", "")
    exceeded = "RayService initializing timeout exceeded after 10s (configured timeout: 10s)"
    assert ("Warning", "RayServiceInitializingTimeout", exceeded) in sim.kube.events()
    assert sim.reasons().count("RayServiceInitializingTimeout") == 1
    assert len(sim.clusters) == 1  # until its delay is over
    await sim.run(10)
    assert sim.clusters == []
    sim.ray_clusters.holds_pods = False
    sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=5)  # without the annotation, too
    await sim.run(60)
    assert sim.clusters == []
    assert sim.condition("Ready") == ("False", "InitializingTimeout")


@pytest.mark.acceptance("rayservice", 84)
async def test_84_suspend_and_resume_start_a_timed_out_service_again() -> None:
    sim = Simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(annotations=TIMEOUT)
    await sim.run(12)
    sim.apply(annotations=TIMEOUT, suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    sim.ray_clusters.holds_pods = False
    sim.apply(annotations=TIMEOUT)
    await sim.until(sim.is_complete, seconds=9)


async def test_ready_says_that_the_service_resumed_until_it_has_endpoints() -> None:
    sim = Simulator()
    sim.apply(suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    sim.ray_clusters.holds_pods = True
    sim.apply()
    await sim.run(20)
    assert sim.condition("Ready") == ("False", "Initializing")
    resumed = "RayService is initializing after resuming from suspend"
    assert sim.message("Ready").startswith(resumed)

    sim.ray_clusters.holds_pods = False
    await sim.until(sim.is_complete)
    assert resumed not in sim.message("Ready")


@pytest.mark.acceptance("rayservice", 85)
async def test_85_deleted_in_mid_upgrade_both_clusters_go_at_once() -> None:
    sim = await a_running_simulator()
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.pending))
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(2)
    assert sim.clusters == []
    assert sim.kube.all(RAY_SERVICE) == []


@pytest.mark.acceptance("rayservice", 85)
async def test_85_the_finalizer_waits_for_the_last_cluster() -> None:
    sim = await a_running_simulator()
    stored = sim.kube.objects[(RAY_CLUSTER.kind, "default", sim.active)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    sim.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(5)
    assert len(sim.kube.all(RAY_SERVICE)) == 1
    assert sim.reasons().count("DeletedRayCluster") == 1


def hold(sim: Simulator) -> None:
    stored = sim.kube.objects[(RAY_CLUSTER.kind, "default", sim.active)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    sim.kube.put(RAY_CLUSTER, {**stored, "metadata": held})


STATES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "invalid": {"upgradeStrategy": {"type": "Foo"}},
    "suspended": {"suspend": True},
    "timed out": {"annotations": {"ray.io/initializing-timeout": "1s"}},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cause", ["a finalizer", "a refusal"])
async def test_the_finalizer_goes_in_every_state_at_its_limit(state: str, cause: str) -> None:
    sim = await a_running_simulator()
    cluster = sim.active
    if cause == "a finalizer":
        hold(sim)
    else:
        denied = errors.Forbidden("denied by a webhook")
        sim.kube.faults.append(refusing("delete", RAY_CLUSTER.kind, denied))
    sim.apply(**STATES[state])
    await sim.run(3)
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(590)
    assert len(sim.kube.all(RAY_SERVICE)) == 1
    await sim.run(20)
    assert sim.kube.all(RAY_SERVICE) == []
    (note,) = [text for _, why, text in sim.kube.events() if why == "FinalizerReleased"]
    why = "example.com/keep" if cause == "a finalizer" else "its deletion is refused"
    assert f"{cluster} ({why})" in note


async def test_the_finalizer_goes_at_once_from_a_service_that_another_operator_manages() -> None:
    sim = await a_running_simulator()
    hold(sim)
    stored = sim.service
    spec = {**stored["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}
    sim.kube.put(RAY_SERVICE, {**stored, "spec": spec})
    await sim.run(5)
    before = len(sim.kube.writes())
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(2)
    assert sim.kube.all(RAY_SERVICE) == []
    assert "patch RayService demo" in sim.kube.writes()[before:]
    assert not [each for each in sim.kube.writes()[before:] if "RayCluster" in each]


@pytest.mark.acceptance("rayservice", 86)
async def test_86_an_invalid_service_can_be_deleted() -> None:
    sim = await a_running_simulator()
    sim.apply(upgradeStrategy={"type": "Foo"})
    await sim.reconcile()
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(2)
    assert (sim.clusters, sim.kube.all(RAY_SERVICE)) == ([], [])


@pytest.mark.acceptance("rayservice", 90)
async def test_90_three_gauges_describe_each_service_and_vanish_with_it() -> None:
    sim = await a_running_simulator()
    registry = sim.metrics
    uid = sim.service["metadata"]["uid"]
    labels_of_it = f'name="demo",namespace="default",uid="{uid}"'
    families = {
        each.name: each.documentation
        for each in registry.collect()
        if each.name.startswith("kuberay_")
    }
    assert families == {
        "kuberay_service_info": "Metadata information about RayService custom resources",
        "kuberay_service_condition_ready": "Describes whether the RayService is ready. Ready means users can send "
        "requests to the underlying cluster and the number of serve endpoints is greater than 0.",
        "kuberay_service_condition_upgrade_in_progress": "Describes whether the RayService is performing a "
        "zero-downtime upgrade.",
    }
    samples = [
        line
        for line in generate_latest(registry).decode().splitlines()
        if line.startswith("kuberay_")
    ]
    assert sorted(samples) == [
        f'kuberay_service_condition_ready{{condition="true",{labels_of_it}}} 1.0',
        f'kuberay_service_condition_upgrade_in_progress{{condition="false",{labels_of_it}}} 1.0',
        f"kuberay_service_info{{{labels_of_it}}} 1.0",
    ]
    await sim.kube.delete(RAY_SERVICE, "default", "demo")
    await sim.run(3)
    left = [
        line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")
    ]
    assert left == []


@pytest.mark.acceptance("rayservice", 90)
async def test_90_each_gauge_has_one_series_with_the_value_that_holds_now() -> None:
    sim = await a_running_simulator()
    registry = sim.metrics

    def values(family: str) -> list[str]:
        found = next(each for each in registry.collect() if each.name == family)
        return [sample.labels["condition"] for sample in found.samples]

    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.reconcile()
    assert values("kuberay_service_condition_upgrade_in_progress") == ["true"]
    sim.kube.set_status(RAY_SERVICE, "default", "demo", {})
    sim.services["service"].parts.cache.put(
        msgspec.json.decode(msgspec.json.encode(sim.service), type=RayService)
    )
    assert values("kuberay_service_condition_ready") == ["false"]


INVALID: dict[str, Any] = {
    "a rule": {"upgradeStrategy": {"type": "Foo"}},
    "a type": {"rayClusterDeletionDelaySeconds": "soon"},
    "the cluster": {"config": {"headGroupSpec": {"template": 7}}},
    "the metadata": {"annotations": {"ray.io/initializing-timeout": "never"}},
}


@pytest.mark.parametrize("fields", INVALID.values(), ids=INVALID.keys())
async def test_an_invalid_service_is_suspended_and_reports_the_violation_when_it_resumes(
    fields: dict[str, Any],
) -> None:
    sim = await a_running_simulator()
    sim.apply(**fields)
    await sim.run(2)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    sim.apply(**fields, suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True", seconds=20)
    assert (sim.clusters, own_services(sim)) == ([], [])
    await sim.run(5)
    assert sim.condition("Suspended")[0] == "True"
    sim.apply(**fields)
    await sim.until(lambda: sim.condition("Ready") == ("False", "ValidationFailed"))
    sim.apply()
    await sim.until(sim.is_complete)
