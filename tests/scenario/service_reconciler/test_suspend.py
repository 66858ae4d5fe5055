"""Suspend, time limit, deletion, metrics; spec rayservice §13.5-§16, acceptance 79-91."""

import msgspec
import pytest
from prometheus_client import generate_latest

from common.api.ray_service import RayService
from common.kube.client import Patch
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import a_cluster_config

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
TIMEOUT = {"ray.io/initializing-timeout": "10s"}


def own_services(world: World) -> list[str]:
    return [
        each["metadata"]["name"] for each in world.kube.all(SERVICE) if each["metadata"]["name"].startswith("demo-")
    ]


SUSPEND = "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService."
WAITING = "Waiting for all Kubernetes resources owned by this RayService to be deleted."


@pytest.mark.acceptance("rayservice", 79)
async def test_79_the_request_to_suspend_is_durable_before_anything_goes() -> None:
    world = await a_running_world()
    (cluster,) = world.clusters
    done, told = len(world.kube.requests), len(world.kube.events())
    world.apply(suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    requests = [
        each for each in world.kube.requests[done:] if each.verb not in {"get", "list"} and each.kind != "Event"
    ]
    assert str(requests[0]) == "update RayService/status demo"
    first = requests[0].body["status"]
    assert {each["type"]: (each["status"], each["reason"], each["message"]) for each in first["conditions"]} == {
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
        note for _, _, note in world.kube.events()[told:]
    ]
    assert (world.clusters, own_services(world)) == ([], [])


@pytest.mark.acceptance("rayservice", 79)
async def test_79_suspended_says_so_in_every_condition_and_does_nothing_more() -> None:
    world = await a_running_world()
    world.apply(suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    assert world.condition("Suspended") == ("True", "SuspendComplete")
    assert world.message("Suspended") == world.message("Suspending") == "All owned resources have been deleted."
    assert world.message("Ready") == "RayService is suspended."
    for kind in ("Suspending", "Ready", "UpgradeInProgress", "RollbackInProgress"):
        assert world.condition(kind) == ("False", "SuspendComplete")
    done = len(world.kube.requests)
    await world.run(60)
    assert len(world.kube.requests) == done
    assert await world.app.reconciler(world.key, now=world.clock.now()) is None


@pytest.mark.acceptance("rayservice", 80)
async def test_80_suspend_is_finished_even_when_it_is_taken_back() -> None:
    world = await a_running_world()
    first = world.active
    stored = world.kube.objects[(RAY_CLUSTER.kind, "default", first)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    for suspend in (True, False, True, False):
        world.apply(suspend=suspend)
        await world.run(2)
    assert world.condition("Suspending") == ("True", "SuspendInProgress")
    assert world.message("Suspending") == WAITING
    await world.kube.patch(RAY_CLUSTER, "default", first, Patch(body={"metadata": {"finalizers": None}}))
    await world.until(world.is_settled)
    assert world.active != first
    assert world.condition("Suspended") == ("False", "RayServiceResumed")
    assert world.message("Suspended") == "Spec.Suspend is false; RayService has resumed."


@pytest.mark.acceptance("rayservice", 81)
async def test_81_born_suspended_nothing_is_ever_created() -> None:
    world = World()
    world.apply(suspend=True)
    await world.run(60)
    assert world.condition("Suspended") == ("True", "SuspendComplete")
    assert not [each for each in world.kube.writes() if each.startswith("create")]
    assert world.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]


@pytest.mark.acceptance("rayservice", 82)
async def test_82_suspended_in_mid_upgrade_it_resumes_on_one_fresh_cluster() -> None:
    world = await a_running_world()
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(1)
    before = {world.active, world.pending}
    world.apply(config=GREEN, suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    assert world.clusters == []
    world.holds_pods = False
    world.apply(config=GREEN)
    await world.until(world.is_settled)
    assert len(world.clusters) == 1
    assert world.active not in before


@pytest.mark.acceptance("rayservice", 83)
async def test_83_a_service_that_is_not_ready_in_time_gives_up_for_good() -> None:
    world = World()
    world.holds_pods = True
    world.apply(annotations=TIMEOUT, rayClusterDeletionDelaySeconds=5)
    await world.run(11)
    assert world.condition("Ready") == ("False", "InitializingTimeout")
    text = "RayService failed to become ready within the configured timeout of 10s. Time spent initializing: 10s"
    assert world.message("Ready") == text
    assert (world.active, world.pending) == ("", "")
    exceeded = "RayService initializing timeout exceeded after 10s (configured timeout: 10s)"
    assert ("Warning", "RayServiceInitializingTimeout", exceeded) in world.kube.events()
    assert world.reasons().count("RayServiceInitializingTimeout") == 1
    assert len(world.clusters) == 1  # until its delay is over
    await world.run(10)
    assert world.clusters == []
    world.holds_pods = False
    world.apply(config=GREEN, rayClusterDeletionDelaySeconds=5)  # without the annotation, too
    await world.run(60)
    assert world.clusters == []
    assert world.condition("Ready") == ("False", "InitializingTimeout")


@pytest.mark.acceptance("rayservice", 84)
async def test_84_suspend_and_resume_start_a_timed_out_service_again() -> None:
    world = World()
    world.holds_pods = True
    world.apply(annotations=TIMEOUT)
    await world.run(12)
    world.apply(annotations=TIMEOUT, suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    world.holds_pods = False
    world.apply(annotations=TIMEOUT)
    await world.until(world.is_settled, seconds=9)


@pytest.mark.acceptance("rayservice", 85)
async def test_85_deleted_in_mid_upgrade_both_clusters_go_at_once() -> None:
    world = await a_running_world()
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.pending))
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.run(2)
    assert world.clusters == []
    assert world.kube.all(RAY_SERVICE) == []


@pytest.mark.acceptance("rayservice", 85)
async def test_85_the_finalizer_waits_for_the_last_cluster() -> None:
    world = await a_running_world()
    stored = world.kube.objects[(RAY_CLUSTER.kind, "default", world.active)]
    held = {**stored["metadata"], "finalizers": ["example.com/keep"]}
    world.kube.put(RAY_CLUSTER, {**stored, "metadata": held})
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.run(5)
    assert len(world.kube.all(RAY_SERVICE)) == 1
    assert world.reasons().count("DeletedRayCluster") == 1


@pytest.mark.acceptance("rayservice", 86)
async def test_86_an_invalid_service_can_be_deleted() -> None:
    world = await a_running_world()
    world.apply(upgradeStrategy={"type": "Foo"})
    await world.look()
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.run(2)
    assert (world.clusters, world.kube.all(RAY_SERVICE)) == ([], [])


@pytest.mark.acceptance("rayservice", 90)
async def test_90_three_gauges_tell_of_each_service_and_vanish_with_it() -> None:
    world = await a_running_world()
    registry = world.metrics
    uid = world.service["metadata"]["uid"]
    who = f'name="demo",namespace="default",uid="{uid}"'
    families = {each.name: each.documentation for each in registry.collect() if each.name.startswith("kuberay_")}
    assert families == {
        "kuberay_service_info": "Metadata information about RayService custom resources",
        "kuberay_service_condition_ready": "Describes whether the RayService is ready. Ready means users can send "
        "requests to the underlying cluster and the number of serve endpoints is greater than 0.",
        "kuberay_service_condition_upgrade_in_progress": "Describes whether the RayService is performing a "
        "zero-downtime upgrade.",
    }
    samples = [line for line in generate_latest(registry).decode().splitlines() if line.startswith("kuberay_")]
    assert sorted(samples) == [
        f'kuberay_service_condition_ready{{condition="true",{who}}} 1.0',
        f'kuberay_service_condition_upgrade_in_progress{{condition="false",{who}}} 1.0',
        f"kuberay_service_info{{{who}}} 1.0",
    ]
    await world.kube.delete(RAY_SERVICE, "default", "demo")
    await world.run(3)
    left = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    assert left == []


@pytest.mark.acceptance("rayservice", 90)
async def test_90_each_gauge_has_one_series_with_the_value_that_holds_now() -> None:
    world = await a_running_world()
    registry = world.metrics

    def values(family: str) -> list[str]:
        found = next(each for each in registry.collect() if each.name == family)
        return [sample.labels["condition"] for sample in found.samples]

    world.holds_pods = True
    world.apply(config=GREEN)
    await world.look()
    assert values("kuberay_service_condition_upgrade_in_progress") == ["true"]
    world.kube.set_status(RAY_SERVICE, "default", "demo", {})
    world.app.cache.put(msgspec.json.decode(msgspec.json.encode(world.service), type=RayService))
    assert values("kuberay_service_condition_ready") == ["false"]
