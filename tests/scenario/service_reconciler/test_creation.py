"""Creation and validation as users see them; spec rayservice §3, §7.1, acceptance 1-15."""

import re
from typing import Any

import pytest

from common.api.opaque import Json
from common.feature_gates import Gate
from common.kube.resources import RAY_SERVICE, SERVICE
from common.runtime.key import Key
from scenario.service_reconciler.world import World
from service_reconciler.config import Config
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service

HEAD: Json = a_cluster_config()["headGroupSpec"]
OPTIONS = {"maxSurgePercent": 20, "stepSizePercent": 5, "intervalSeconds": 10, "gatewayClassName": "eg"}


def incremental(**options: Any) -> dict[str, Any]:
    return {
        "config": a_cluster_config(enableInTreeAutoscaling=True),
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {key: value for key, value in {**OPTIONS, **options}.items() if value is not None},
        },
    }


@pytest.mark.acceptance("rayservice", 1)
async def test_01_the_first_look_sets_the_finalizer_and_names_and_creates_the_cluster() -> None:
    world = World()
    world.apply()
    await world.look()
    assert world.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]
    assert re.fullmatch(r"demo-[bcdfghjklmnpqrstvwxz2456789]{5}", world.pending)
    assert world.condition("Ready") == world.condition("UpgradeInProgress") == ("False", "Initializing")
    assert world.message("Ready") == world.message("UpgradeInProgress") == "RayService is initializing"
    assert world.clusters == [world.pending]
    assert world.service["metadata"]["generation"] == 1


async def test_with_zero_values_the_finalizer_makes_a_second_generation_and_no_second_cluster() -> None:
    world = World(config=Config(writes_zero_values=True))
    world.apply()
    await world.until(world.is_settled)
    assert (world.service["metadata"]["generation"], world.status["observedGeneration"]) == (2, 2)
    (container,) = world.service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert container == {"name": "ray-head", "image": "rayproject/ray:2.52.0", "resources": {}}
    await world.run(30)
    assert (world.clusters, world.service["metadata"]["generation"]) == ([world.active], 2)


async def test_the_name_is_durable_before_its_cluster_exists() -> None:
    world = World()
    world.apply()
    await world.look()
    kinds = [f"{each.verb} {each.kind}" for each in world.kube.requests if each.verb in {"update", "create"}]
    assert kinds.index("update RayService") < kinds.index("create RayCluster")


async def test_the_status_has_kuberays_shape() -> None:
    world = World()
    world.apply()
    await world.look()
    empty: Json = {"desiredCPU": "0", "desiredGPU": "0", "desiredMemory": "0", "desiredTPU": "0", "head": {}}
    assert world.status["activeServiceStatus"] == {"rayClusterStatus": empty}
    assert world.status["pendingServiceStatus"] == {"rayClusterName": world.pending, "rayClusterStatus": empty}
    assert "serviceStatus" not in world.status
    assert "numServeEndpoints" not in world.status


@pytest.mark.acceptance("rayservice", 2)
async def test_02_names_derived_from_47_characters_fit() -> None:
    world = World()
    name = "a" * 47
    world.kube.put(RAY_SERVICE, a_ray_service(name=name))
    world.key = Key("default", name)
    await world.until(lambda: len(world.kube.all(SERVICE)) == 3)
    (cluster,) = world.clusters
    services = {each["metadata"]["name"] for each in world.kube.all(SERVICE)}
    assert services == {f"{name}-head-svc", f"{name}-serve-svc", f"{cluster}-head-svc"}
    assert (len(cluster), max(map(len, services)) <= 63) == (53, True)


@pytest.mark.acceptance("rayservice", 3)
async def test_03_a_name_of_48_characters_is_refused_and_left_alone() -> None:
    world = World()
    name = "a" * 48
    world.kube.put(RAY_SERVICE, a_ray_service(name=name))
    world.key = Key("default", name)
    await world.run(5)
    status = world.kube.objects[("RayService", "default", name)]["status"]
    told = "The RayService metadata is invalid: RayService name should be no more than 47 characters"
    (ready,) = status["conditions"]
    assert [ready[key] for key in ("type", "status", "reason", "message")] == [
        "Ready",
        "False",
        "ValidationFailed",
        told,
    ]
    assert "observedGeneration" not in status
    assert world.kube.events() == [("Warning", "InvalidRayServiceMetadata", f"default/{name}: {told}")]
    assert (world.clusters, world.kube.all(SERVICE)) == ([], [])
    assert world.kube.writes().count(f"update RayService/status {name}") == 1
    assert await world.app.reconciler(world.key, now=world.clock.now()) is None  # nobody looks again


@pytest.mark.acceptance("rayservice", 6, 7, 8, 9, 10, 11, 12)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {**incremental(), "config": a_cluster_config()},
            "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade",
            id="6: no autoscaler",
        ),
        pytest.param(
            incremental(stepSizePercent=50),
            "stepSizePercent must be less than or equal to maxSurgePercent",
            id="7: the step is greater than the surge",
        ),
        pytest.param(incremental(intervalSeconds=0), "intervalSeconds must be greater than 0", id="8: no interval"),
        pytest.param(incremental(maxSurgePercent=101), "maxSurgePercent must be between 0 and 100", id="9: surge 101"),
        pytest.param(
            {"upgradeStrategy": {"type": "Foo"}},
            "Spec.UpgradeStrategy.Type value Foo is invalid, "
            "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
            id="10: no such strategy",
        ),
        pytest.param(
            {"config": a_cluster_config(headGroupSpec={**HEAD, "headService": {"metadata": {"name": "mine"}}})},
            "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
            id="11: a name for the head Service",
        ),
        pytest.param(
            {"config": a_cluster_config(authOptions={"enableK8sTokenAuth": True}), "upgradeStrategy": {"type": "Foo"}},
            "K8s token auth mode is currently not supported for RayService",
            id="12: token auth comes before every other rule",
        ),
    ],
)
async def test_06_to_12_a_broken_rule_is_told_in_kuberays_words(fields: dict[str, Any], message: str) -> None:
    world = World()
    world.apply(**fields)
    await world.run(1)
    assert world.condition("Ready") == ("False", "ValidationFailed")
    told = f"The RayService spec is invalid: {message}"
    assert world.message("Ready") == told
    assert world.kube.events() == [("Warning", "InvalidRayServiceSpec", f"default/demo: {told}")]
    assert world.clusters == []


@pytest.mark.acceptance("rayservice", 9)
async def test_09_no_surge_means_all() -> None:
    world = World()
    world.apply(**incremental(maxSurgePercent=None))
    await world.look()
    assert (world.condition("Ready"), bool(world.pending)) == (("False", "Initializing"), True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"config": a_cluster_config(headGroupSpec={"template": {}, "headService": {"metadata": {"name": "mine"}}})},
            "headGroupSpec should have at least one container",
            id="no container, told before the name of the head Service",
        ),
        pytest.param(
            {"config": a_cluster_config(a_group(minReplicas=3, maxReplicas=2)), "upgradeStrategy": {"type": "Foo"}},
            "worker group small has minReplicas 3 greater than maxReplicas 2",
            id="bounds, told before the upgrade strategy",
        ),
        pytest.param(
            {"config": a_cluster_config(a_group(), a_group("big", maxReplicas=None))},
            "worker group big must set both minReplicas and maxReplicas when autoscaling is disabled",
            id="the second group",
        ),
        pytest.param(
            {
                "config": a_cluster_config(gcsFaultToleranceOptions={"redisAddress": "redis:6379"}),
                "annotations": {"ray.io/ft-enabled": "true"},
            },
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance",
            id="an annotation of the RayService",
        ),
        pytest.param(
            {"config": a_cluster_config(networkPolicy={"mode": "DenyAll"})},
            "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled",
            id="a gate",
        ),
        pytest.param(
            {"config": a_cluster_config(upgradeStrategy={"type": "Recreate"})},
            "upgradeStrategy cannot be set when RayCluster is created by RayService",
            id="an upgrade strategy of the cluster's own",
        ),
    ],
)
async def test_the_rules_of_clusters_are_those_of_services(fields: dict[str, Any], message: str) -> None:
    world = World()
    world.apply(**fields)
    await world.run(1)
    assert world.condition("Ready") == ("False", "ValidationFailed")
    assert world.message("Ready") == f"The RayService spec is invalid: {message}"
    assert world.reasons() == ["InvalidRayServiceSpec"]
    assert world.clusters == []


async def test_certificates_that_are_not_built_yet_are_refused_before_there_is_a_cluster() -> None:
    world = World(config=Config(gates=frozenset(Gate)))
    world.apply(config=a_cluster_config(tlsOptions={"enabled": True}))
    await world.run(1)
    assert world.condition("Ready") == ("False", "ValidationFailed")
    assert "tlsOptions.enabled is not supported yet; remove" in world.message("Ready")
    assert world.clusters == []


@pytest.mark.acceptance("rayservice", 13)
@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", ""])
async def test_13_what_others_manage_is_not_touched(manager: str) -> None:
    world = World()
    world.apply(managedBy=manager)
    await world.run(600)
    assert (world.kube.writes(), world.reasons(), world.status) == ([], [], {})


@pytest.mark.acceptance("rayservice", 14)
async def test_14_an_invalid_edit_leaves_a_running_service_alone_and_a_fix_is_ready_at_once() -> None:
    world = World()
    world.apply()
    await world.until(world.is_settled)
    active, before, done = world.active, world.status, len(world.kube.writes())
    world.apply(upgradeStrategy={"type": "Foo"}, config=a_cluster_config(image="rayproject/ray:2.53.0"))
    await world.run(300)
    assert world.condition("Ready") == ("False", "ValidationFailed")
    assert world.kube.writes()[done:] == ["update RayService/status demo"]
    untouched = ("serviceStatus", "numServeEndpoints", "observedGeneration", "activeServiceStatus")
    assert {key: world.status[key] for key in untouched} == {key: before[key] for key in untouched}
    assert (world.active, world.selected(), world.clusters) == (active, active, [active])
    world.apply()
    await world.look()
    assert world.condition("Ready") == ("True", "NonZeroServeEndpoints")
    assert world.condition("UpgradeInProgress") == ("False", "NoPendingCluster")


@pytest.mark.acceptance("rayservice", 15)
@pytest.mark.parametrize("starts", [True, False])
async def test_15_created_invalid_then_fixed_it_starts_as_if_new_with_all_its_time(*, starts: bool) -> None:
    world = World()
    world.holds_pods = not starts
    limited = {"ray.io/initializing-timeout": "30s"}
    world.apply(upgradeStrategy={"type": "Foo"}, annotations=limited)
    await world.run(40)
    world.apply(annotations=limited)
    await world.look()
    assert world.condition("Ready") == world.condition("UpgradeInProgress") == ("False", "Initializing")
    await world.run(29)
    assert world.condition("Ready") == (("True", "NonZeroServeEndpoints") if starts else ("False", "Initializing"))
    await world.run(2)
    assert world.is_settled() is starts
    assert world.condition("Ready")[1] == ("NonZeroServeEndpoints" if starts else "InitializingTimeout")
