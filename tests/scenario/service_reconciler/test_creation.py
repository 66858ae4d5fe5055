"""Creation and validation as users see them; spec rayservice §3, §7.1, acceptance 1-15."""

import re
from typing import Any

import pytest

from common.api.opaque import Json
from common.feature_gates import Gate
from common.kube.resources import RAY_SERVICE, SERVICE
from common.runtime.key import Key
from scenario.service_reconciler.harness import Harness
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service

HEAD: Json = a_cluster_config()["headGroupSpec"]
OPTIONS = {
    "maxSurgePercent": 20,
    "stepSizePercent": 5,
    "intervalSeconds": 10,
    "gatewayClassName": "eg",
}

COLLECTOR: Json = {
    "collectorOptions": {"image": "i", "env": [{"name": "STORAGE_BACKEND", "value": "X"}]}
}


def incremental(**options: Any) -> dict[str, Any]:
    return {
        "config": a_cluster_config(enableInTreeAutoscaling=True),
        "upgradeStrategy": {
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {
                key: value for key, value in {**OPTIONS, **options}.items() if value is not None
            },
        },
    }


@pytest.mark.acceptance("rayservice", 1)
async def test_01_the_first_reconcile_sets_the_finalizer_and_names_and_creates_the_cluster() -> (
    None
):
    harness = Harness()
    harness.apply()
    await harness.reconcile()
    assert harness.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]
    assert re.fullmatch(r"demo-[bcdfghjklmnpqrstvwxz2456789]{5}", harness.pending)
    assert (
        harness.condition("Ready")
        == harness.condition("UpgradeInProgress")
        == ("False", "Initializing")
    )
    assert (
        harness.message("Ready")
        == harness.message("UpgradeInProgress")
        == "RayService is initializing"
    )
    assert harness.clusters == [harness.pending]
    assert harness.service["metadata"]["generation"] == 1


async def test_with_zero_values_the_finalizer_makes_a_second_generation_and_no_second_cluster() -> (
    None
):
    harness = Harness(config=Config(writes_zero_values=True))
    harness.apply()
    await harness.until(harness.is_complete)
    assert (harness.service["metadata"]["generation"], harness.status["observedGeneration"]) == (
        2,
        2,
    )
    (container,) = harness.service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"][
        "containers"
    ]
    assert container == {"name": "ray-head", "image": "rayproject/ray:2.52.0", "resources": {}}
    await harness.run(30)
    assert (harness.clusters, harness.service["metadata"]["generation"]) == ([harness.active], 2)


async def test_the_name_is_durable_before_its_cluster_exists() -> None:
    harness = Harness()
    harness.apply()
    await harness.reconcile()
    kinds = [
        f"{each.verb} {each.kind}"
        for each in harness.kube.requests
        if each.verb in {"update", "create"}
    ]
    assert kinds.index("update RayService") < kinds.index("create RayCluster")


async def test_the_status_has_kuberays_shape() -> None:
    harness = Harness()
    harness.apply()
    await harness.reconcile()
    empty: Json = {
        "desiredCPU": "0",
        "desiredGPU": "0",
        "desiredMemory": "0",
        "desiredTPU": "0",
        "head": {},
    }
    assert harness.status["activeServiceStatus"] == {"rayClusterStatus": empty}
    assert harness.status["pendingServiceStatus"] == {
        "rayClusterName": harness.pending,
        "rayClusterStatus": empty,
    }
    assert "serviceStatus" not in harness.status
    assert "numServeEndpoints" not in harness.status


@pytest.mark.acceptance("rayservice", 2)
async def test_02_names_derived_from_47_characters_fit() -> None:
    harness = Harness()
    name = "a" * 47
    harness.kube.put(RAY_SERVICE, a_ray_service(name=name))
    harness.key = Key("default", name)
    await harness.until(lambda: len(harness.kube.all(SERVICE)) == 3)
    (cluster,) = harness.clusters
    services = {each["metadata"]["name"] for each in harness.kube.all(SERVICE)}
    assert services == {f"{name}-head-svc", f"{name}-serve-svc", f"{cluster}-head-svc"}
    assert (len(cluster), max(map(len, services)) <= 63) == (53, True)


@pytest.mark.acceptance("rayservice", 3)
async def test_03_a_name_of_48_characters_is_refused_and_left_alone() -> None:
    harness = Harness()
    name = "a" * 48
    harness.kube.put(RAY_SERVICE, a_ray_service(name=name))
    harness.key = Key("default", name)
    await harness.run(5)
    status = harness.kube.objects[("RayService", "default", name)]["status"]
    note = (
        "The RayService metadata is invalid: RayService name should be no more than 47 characters"
    )
    (ready,) = status["conditions"]
    assert [ready[key] for key in ("type", "status", "reason", "message")] == [
        "Ready",
        "False",
        "ValidationFailed",
        note,
    ]
    assert "observedGeneration" not in status
    assert harness.kube.events() == [
        ("Warning", "InvalidRayServiceMetadata", f"default/{name}: {note}")
    ]
    assert (harness.clusters, harness.kube.all(SERVICE)) == ([], [])
    assert harness.kube.writes().count(f"update RayService/status {name}") == 1
    assert await harness.app.reconciler(harness.key, harness.clock.now()) is None  # no requeue


@pytest.mark.acceptance("rayservice", 6, 7, 8, 9, 10, 11)
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
        pytest.param(
            incremental(intervalSeconds=0),
            "intervalSeconds must be greater than 0",
            id="8: no interval",
        ),
        pytest.param(
            incremental(maxSurgePercent=101),
            "maxSurgePercent must be between 0 and 100",
            id="9: surge 101",
        ),
        pytest.param(
            {"upgradeStrategy": {"type": "Foo"}},
            "Spec.UpgradeStrategy.Type value Foo is invalid, "
            "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
            id="10: no such strategy",
        ),
        pytest.param(
            {
                "config": a_cluster_config(
                    headGroupSpec={**HEAD, "headService": {"metadata": {"name": "mine"}}}
                )
            },
            "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
            id="11: a name for the head Service",
        ),
    ],
)
async def test_06_to_11_a_broken_rule_has_the_message_of_kuberay(
    fields: dict[str, Any], message: str
) -> None:
    harness = Harness()
    harness.apply(**fields)
    await harness.run(1)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    note = f"The RayService spec is invalid: {message}"
    assert harness.message("Ready") == note
    assert harness.kube.events() == [("Warning", "InvalidRayServiceSpec", f"default/demo: {note}")]
    assert harness.clusters == []


@pytest.mark.acceptance("rayservice", 9)
async def test_09_no_surge_means_all() -> None:
    harness = Harness()
    harness.apply(**incremental(maxSurgePercent=None))
    await harness.reconcile()
    assert (harness.condition("Ready"), bool(harness.pending)) == (("False", "Initializing"), True)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {
                "config": a_cluster_config(
                    headGroupSpec={"template": {}, "headService": {"metadata": {"name": "mine"}}}
                )
            },
            "headGroupSpec should have at least one container",
            id="no container, reported before the name of the head Service",
        ),
        pytest.param(
            {
                "config": a_cluster_config(a_group(minReplicas=3, maxReplicas=2)),
                "upgradeStrategy": {"type": "Foo"},
            },
            "worker group small has minReplicas 3 greater than maxReplicas 2",
            id="bounds, reported before the upgrade strategy",
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
        pytest.param(
            {"config": a_cluster_config(rayVersion="1" * 120_000 + "\n")},
            "Expected `str` of length <= 128 - at `$.rayClusterConfig.rayVersion`",
            id="a text above its limit",
        ),
    ],
)
async def test_the_rules_of_clusters_are_those_of_services(
    fields: dict[str, Any], message: str
) -> None:
    harness = Harness()
    harness.apply(**fields)
    await harness.run(1)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    assert harness.message("Ready") == f"The RayService spec is invalid: {message}"
    assert harness.reasons() == ["InvalidRayServiceSpec"]
    assert harness.clusters == []


@pytest.mark.parametrize(
    "options", [{"tlsOptions": {"enabled": True}}, {"historyServerOptions": COLLECTOR}]
)
async def test_alpha_features_of_clusters_need_their_gate_here_too(options: dict[str, Any]) -> None:
    harness = Harness()
    harness.apply(config=a_cluster_config(**options))
    await harness.run(1)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    assert "feature gate" in harness.message("Ready")
    harness = Harness(config=Config(gates=frozenset(Gate)))
    harness.apply(config=a_cluster_config(**options))
    await harness.run(1)
    assert len(harness.clusters) == 1


@pytest.mark.acceptance("rayservice", 13)
@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", ""])
async def test_13_what_others_manage_is_not_touched(manager: str) -> None:
    harness = Harness()
    harness.apply(managedBy=manager)
    await harness.run(600)
    assert (harness.kube.writes(), harness.reasons(), harness.status) == ([], [], {})


@pytest.mark.acceptance("rayservice", 14)
async def test_14_an_invalid_edit_leaves_a_running_service_alone_and_a_fix_is_ready_at_once() -> (
    None
):
    harness = Harness()
    harness.apply()
    await harness.until(harness.is_complete)
    active, before, done = harness.active, harness.status, len(harness.kube.writes())
    harness.apply(
        upgradeStrategy={"type": "Foo"}, config=a_cluster_config(image="rayproject/ray:2.53.0")
    )
    await harness.run(300)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    assert harness.kube.writes()[done:] == ["update RayService/status demo"]
    untouched = ("serviceStatus", "numServeEndpoints", "observedGeneration", "activeServiceStatus")
    assert {key: harness.status[key] for key in untouched} == {
        key: before[key] for key in untouched
    }
    assert (harness.active, harness.selected(), harness.clusters) == (active, active, [active])
    harness.apply()
    await harness.reconcile()
    assert harness.condition("Ready") == ("True", "NonZeroServeEndpoints")
    assert harness.condition("UpgradeInProgress") == ("False", "NoPendingCluster")


@pytest.mark.acceptance("rayservice", 15)
@pytest.mark.parametrize("starts", [True, False])
async def test_15_created_invalid_then_fixed_it_starts_as_if_new_with_all_its_time(
    *, starts: bool
) -> None:
    harness = Harness()
    harness.holds_pods = not starts
    limited = {"ray.io/initializing-timeout": "30s"}
    harness.apply(upgradeStrategy={"type": "Foo"}, annotations=limited)
    await harness.run(40)
    harness.apply(annotations=limited)
    await harness.reconcile()
    assert (
        harness.condition("Ready")
        == harness.condition("UpgradeInProgress")
        == ("False", "Initializing")
    )
    await harness.run(29)
    assert harness.condition("Ready") == (
        ("True", "NonZeroServeEndpoints") if starts else ("False", "Initializing")
    )
    await harness.run(2)
    assert harness.is_complete() is starts
    assert harness.condition("Ready")[1] == (
        "NonZeroServeEndpoints" if starts else "InitializingTimeout"
    )
