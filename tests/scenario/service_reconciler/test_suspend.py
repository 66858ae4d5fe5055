"""Suspend, time limit, deletion, metrics; spec rayservice §13.5-§16, acceptance 79-91."""

from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from common import errors
from common.api.ray_service import RayService
from common.kube.client import Patch
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import a_cluster_config
from support.fakes.kube import Request

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
TIMEOUT = {"ray.io/initializing-timeout": "10s"}


def own_services(harness: Harness) -> list[str]:
    return [
        each["metadata"]["name"]
        for each in harness.kube.all(SERVICE)
        if each["metadata"]["name"].startswith("demo-")
    ]


SUSPEND = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
WAITING = "Waiting for all Kubernetes resources owned by this RayService to be deleted."


@pytest.mark.acceptance("rayservice", 79)
async def test_79_the_request_to_suspend_is_durable_before_anything_goes() -> None:
    harness = await a_running_harness()
    (cluster,) = harness.clusters
    done, reported = len(harness.kube.requests), len(harness.kube.events())
    harness.apply(suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    requests = [
        each
        for each in harness.kube.requests[done:]
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
        note for _, _, note in harness.kube.events()[reported:]
    ]
    assert (harness.clusters, own_services(harness)) == ([], [])


@pytest.mark.acceptance("rayservice", 79)
async def test_79_suspended_is_in_every_condition_and_nothing_more_is_done() -> None:
    harness = await a_running_harness()
    harness.apply(suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    assert harness.condition("Suspended") == ("True", "SuspendComplete")
    assert (
        harness.message("Suspended")
        == harness.message("Suspending")
        == "All owned resources have been deleted."
    )
    assert harness.message("Ready") == "RayService is suspended."
    for kind in ("Suspending", "Ready", "UpgradeInProgress", "RollbackInProgress"):
        assert harness.condition(kind) == ("False", "SuspendComplete")
    done = len(harness.kube.requests)
    await harness.run(60)
    assert len(harness.kube.requests) == done
    assert await harness.app.reconciler(harness.key, harness.clock.now()) is None


@pytest.mark.acceptance("rayservice", 80)
async def test_80_suspend_is_finished_even_when_it_is_taken_back() -> None:
    harness = await a_running_harness()
    first = harness.active
    stored = harness.kube.objects[(RAY_CLUSTER.kind, "default", first)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    harness.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    for suspend in (True, False, True, False):
        harness.apply(suspend=suspend)
        await harness.run(2)
    assert harness.condition("Suspending") == ("True", "SuspendInProgress")
    assert harness.message("Suspending") == WAITING
    await harness.kube.patch(
        RAY_CLUSTER, "default", first, Patch(body={"metadata": {"finalizers": None}})
    )
    await harness.until(harness.is_complete)
    assert harness.active != first
    assert harness.condition("Suspended") == ("False", "RayServiceResumed")
    assert harness.message("Suspended") == "Spec.Suspend is false; RayService has resumed."


@pytest.mark.acceptance("rayservice", 81)
async def test_81_born_suspended_nothing_is_ever_created() -> None:
    harness = Harness()
    harness.apply(suspend=True)
    await harness.run(60)
    assert harness.condition("Suspended") == ("True", "SuspendComplete")
    assert not [each for each in harness.kube.writes() if each.startswith("create")]
    assert harness.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspended_in_mid_upgrade_it_resumes_on_one_fresh_cluster() -> None:
    harness = await a_running_harness()
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(1)
    before = {harness.active, harness.pending}
    harness.apply(config=GREEN, suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    assert harness.clusters == []
    harness.holds_pods = False
    harness.apply(config=GREEN)
    await harness.until(harness.is_complete)
    assert len(harness.clusters) == 1
    assert harness.active not in before


@pytest.mark.acceptance("rayservice", 83)
async def test_83_a_service_that_is_not_ready_in_time_fails_for_good() -> None:
    harness = Harness()
    harness.holds_pods = True
    harness.apply(annotations=TIMEOUT, rayClusterDeletionDelaySeconds=5)
    await harness.run(11)
    assert harness.condition("Ready") == ("False", "InitializingTimeout")
    text = "RayService failed to become ready within the configured timeout of 10s. Time spent initializing: 10s"
    assert harness.message("Ready") == text
    assert (harness.active, harness.pending) == ("", "")
    exceeded = "RayService initializing timeout exceeded after 10s (configured timeout: 10s)"
    assert ("Warning", "RayServiceInitializingTimeout", exceeded) in harness.kube.events()
    assert harness.reasons().count("RayServiceInitializingTimeout") == 1
    assert len(harness.clusters) == 1  # until its delay is over
    await harness.run(10)
    assert harness.clusters == []
    harness.holds_pods = False
    harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=5)  # without the annotation, too
    await harness.run(60)
    assert harness.clusters == []
    assert harness.condition("Ready") == ("False", "InitializingTimeout")


@pytest.mark.acceptance("rayservice", 84)
async def test_84_suspend_and_resume_start_a_timed_out_service_again() -> None:
    harness = Harness()
    harness.holds_pods = True
    harness.apply(annotations=TIMEOUT)
    await harness.run(12)
    harness.apply(annotations=TIMEOUT, suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    harness.holds_pods = False
    harness.apply(annotations=TIMEOUT)
    await harness.until(harness.is_complete, seconds=9)


@pytest.mark.acceptance("rayservice", 85)
async def test_85_deleted_in_mid_upgrade_both_clusters_go_at_once() -> None:
    harness = await a_running_harness()
    harness.apply(config=GREEN)
    await harness.until(lambda: bool(harness.pending))
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(2)
    assert harness.clusters == []
    assert harness.kube.all(RAY_SERVICE) == []


@pytest.mark.acceptance("rayservice", 85)
async def test_85_the_finalizer_waits_for_the_last_cluster() -> None:
    harness = await a_running_harness()
    stored = harness.kube.objects[(RAY_CLUSTER.kind, "default", harness.active)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    harness.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(5)
    assert len(harness.kube.all(RAY_SERVICE)) == 1
    assert harness.reasons().count("DeletedRayCluster") == 1


def hold(harness: Harness) -> None:
    stored = harness.kube.objects[(RAY_CLUSTER.kind, "default", harness.active)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    harness.kube.put(RAY_CLUSTER, {**stored, "metadata": held})


def refused(request: Request) -> errors.RaybusError | None:
    is_deletion = (request.verb, request.kind) == ("delete", RAY_CLUSTER.kind)
    return errors.Forbidden("denied by a webhook") if is_deletion else None


STATES: dict[str, dict[str, Any]] = {
    "as it was": {},
    "invalid": {"upgradeStrategy": {"type": "Foo"}},
    "suspended": {"suspend": True},
    "timed out": {"annotations": {"ray.io/initializing-timeout": "1s"}},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("cause", ["a finalizer", "a refusal"])
async def test_the_finalizer_goes_in_every_state_at_its_limit(state: str, cause: str) -> None:
    harness = await a_running_harness()
    cluster = harness.active
    if cause == "a finalizer":
        hold(harness)
    else:
        harness.kube.faults.append(refused)
    harness.apply(**STATES[state])
    await harness.run(3)
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(590)
    assert len(harness.kube.all(RAY_SERVICE)) == 1
    await harness.run(20)
    assert harness.kube.all(RAY_SERVICE) == []
    (note,) = [text for _, why, text in harness.kube.events() if why == "FinalizerReleased"]
    why = "example.com/keep" if cause == "a finalizer" else "its deletion is refused"
    assert f"{cluster} ({why})" in note


async def test_the_finalizer_goes_at_once_from_a_service_that_another_operator_manages() -> None:
    harness = await a_running_harness()
    hold(harness)
    stored = harness.service
    spec = {**stored["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}
    harness.kube.put(RAY_SERVICE, {**stored, "spec": spec})
    await harness.run(5)
    before = len(harness.kube.writes())
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(2)
    assert harness.kube.all(RAY_SERVICE) == []
    assert "patch RayService demo" in harness.kube.writes()[before:]
    assert not [each for each in harness.kube.writes()[before:] if "RayCluster" in each]


@pytest.mark.acceptance("rayservice", 86)
async def test_86_an_invalid_service_can_be_deleted() -> None:
    harness = await a_running_harness()
    harness.apply(upgradeStrategy={"type": "Foo"})
    await harness.reconcile()
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(2)
    assert (harness.clusters, harness.kube.all(RAY_SERVICE)) == ([], [])


@pytest.mark.acceptance("rayservice", 90)
async def test_90_three_gauges_describe_each_service_and_vanish_with_it() -> None:
    harness = await a_running_harness()
    registry = harness.metrics
    uid = harness.service["metadata"]["uid"]
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
    await harness.kube.delete(RAY_SERVICE, "default", "demo")
    await harness.run(3)
    left = [
        line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")
    ]
    assert left == []


@pytest.mark.acceptance("rayservice", 90)
async def test_90_each_gauge_has_one_series_with_the_value_that_holds_now() -> None:
    harness = await a_running_harness()
    registry = harness.metrics

    def values(family: str) -> list[str]:
        found = next(each for each in registry.collect() if each.name == family)
        return [sample.labels["condition"] for sample in found.samples]

    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.reconcile()
    assert values("kuberay_service_condition_upgrade_in_progress") == ["true"]
    harness.kube.set_status(RAY_SERVICE, "default", "demo", {})
    harness.app.cache.put(
        msgspec.json.decode(msgspec.json.encode(harness.service), type=RayService)
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
    harness = await a_running_harness()
    harness.apply(**fields)
    await harness.run(2)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    harness.apply(**fields, suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True", seconds=20)
    assert (harness.clusters, own_services(harness)) == ([], [])
    await harness.run(5)
    assert harness.condition("Suspended")[0] == "True"
    harness.apply(**fields)
    await harness.until(lambda: harness.condition("Ready") == ("False", "ValidationFailed"))
    harness.apply()
    await harness.until(harness.is_complete)
