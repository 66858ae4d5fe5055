"""Creation and validation as users see them; spec rayservice §3, §7.1, acceptance 1-15."""

import re
from typing import Any

import pytest

from common.api.opaque import Json
from common.feature_gates import FeatureGate
from common.kube.resources import RAY_SERVICE, SERVICE
from common.runtime.key import Key
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service
from support.simulator.simulator import Simulator
from support.tables import cases

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
    sim = Simulator()
    sim.apply()
    await sim.reconcile()
    assert sim.service["metadata"]["finalizers"] == ["ray.io/rayservice-finalizer"]
    assert re.fullmatch(r"demo-[bcdfghjklmnpqrstvwxz2456789]{5}", sim.pending)
    assert sim.condition("Ready") == sim.condition("UpgradeInProgress") == ("False", "Initializing")
    assert sim.message("Ready") == sim.message("UpgradeInProgress") == "RayService is initializing"
    assert sim.clusters == [sim.pending]
    assert sim.service["metadata"]["generation"] == 1


async def test_with_zero_values_the_finalizer_makes_a_second_generation_and_no_second_cluster() -> (
    None
):
    sim = Simulator(settings=Config(writes_zero_values=True))
    sim.apply()
    await sim.until(sim.is_complete)
    assert (sim.service["metadata"]["generation"], sim.status["observedGeneration"]) == (2, 2)
    (container,) = sim.service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["spec"][
        "containers"
    ]
    assert container == {"name": "ray-head", "image": "rayproject/ray:2.52.0", "resources": {}}
    await sim.run(30)
    assert (sim.clusters, sim.service["metadata"]["generation"]) == ([sim.active], 2)


async def test_the_name_is_durable_before_its_cluster_exists() -> None:
    sim = Simulator()
    sim.apply()
    await sim.reconcile()
    kinds = [
        f"{each.verb} {each.kind}"
        for each in sim.kube.requests
        if each.verb in {"update", "create"}
    ]
    assert kinds.index("update RayService") < kinds.index("create RayCluster")


async def test_the_status_has_kuberays_shape() -> None:
    sim = Simulator()
    sim.apply()
    await sim.reconcile()
    empty: Json = {
        "desiredCPU": "0",
        "desiredGPU": "0",
        "desiredMemory": "0",
        "desiredTPU": "0",
        "head": {},
    }
    assert sim.status["activeServiceStatus"] == {"rayClusterStatus": empty}
    assert sim.status["pendingServiceStatus"] == {
        "rayClusterName": sim.pending,
        "rayClusterStatus": empty,
    }
    assert "serviceStatus" not in sim.status
    assert "numServeEndpoints" not in sim.status


@pytest.mark.acceptance("rayservice", 2)
async def test_02_names_derived_from_47_characters_fit() -> None:
    sim = Simulator()
    name = "a" * 47
    sim.kube.put(RAY_SERVICE, a_ray_service(name=name))
    sim.key = Key("default", name)
    await sim.until(lambda: len(sim.kube.all(SERVICE)) == 3)
    (cluster,) = sim.clusters
    services = {each["metadata"]["name"] for each in sim.kube.all(SERVICE)}
    assert services == {f"{name}-head-svc", f"{name}-serve-svc", f"{cluster}-head-svc"}
    assert (len(cluster), max(map(len, services)) <= 63) == (53, True)


@pytest.mark.acceptance("rayservice", 3)
async def test_03_a_name_of_48_characters_is_refused_and_left_alone() -> None:
    sim = Simulator()
    name = "a" * 48
    sim.kube.put(RAY_SERVICE, a_ray_service(name=name))
    sim.key = Key("default", name)
    await sim.run(5)
    status = sim.kube.objects[("RayService", "default", name)]["status"]
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
    assert sim.kube.events() == [
        ("Warning", "InvalidRayServiceMetadata", f"default/{name}: {note}")
    ]
    assert (sim.clusters, sim.kube.all(SERVICE)) == ([], [])
    assert sim.kube.writes().count(f"update RayService/status {name}") == 1
    assert (
        await sim.services["service"].parts.reconciler(sim.key, sim.clock.now()) is None
    )  # no requeue


@pytest.mark.acceptance("rayservice", 6, 7, 8, 9, 10, 11)
@cases(
    ("fields", "message"),
    {
        "6: no autoscaler": (
            {**incremental(), "config": a_cluster_config()},
            "Ray Autoscaler is required for NewClusterWithIncrementalUpgrade",
        ),
        "7: the step is greater than the surge": (
            incremental(stepSizePercent=50),
            "stepSizePercent must be less than or equal to maxSurgePercent",
        ),
        "8: no interval": (
            incremental(intervalSeconds=0),
            "intervalSeconds must be greater than 0",
        ),
        "9: surge 101": (
            incremental(maxSurgePercent=101),
            "maxSurgePercent must be between 0 and 100",
        ),
        "10: no such strategy": (
            {"upgradeStrategy": {"type": "Foo"}},
            "Spec.UpgradeStrategy.Type value Foo is invalid, "
            "valid options are NewClusterWithIncrementalUpgrade, NewCluster, or None",
        ),
        "11: a name for the head Service": (
            {
                "config": a_cluster_config(
                    headGroupSpec={**HEAD, "headService": {"metadata": {"name": "mine"}}}
                )
            },
            "spec.rayClusterConfig.headGroupSpec.headService.metadata.name should not be set",
        ),
    },
)
async def test_06_to_11_a_broken_rule_has_the_message_of_kuberay(
    fields: dict[str, Any], message: str
) -> None:
    sim = Simulator()
    sim.apply(**fields)
    await sim.run(1)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    note = f"The RayService spec is invalid: {message}"
    assert sim.message("Ready") == note
    assert sim.kube.events() == [("Warning", "InvalidRayServiceSpec", f"default/demo: {note}")]
    assert sim.clusters == []


@pytest.mark.acceptance("rayservice", 9)
async def test_09_no_surge_means_all() -> None:
    sim = Simulator()
    sim.apply(**incremental(maxSurgePercent=None))
    await sim.reconcile()
    assert (sim.condition("Ready"), bool(sim.pending)) == (("False", "Initializing"), True)


@cases(
    ("fields", "message"),
    {
        "no container, reported before the name of the head Service": (
            {
                "config": a_cluster_config(
                    headGroupSpec={"template": {}, "headService": {"metadata": {"name": "mine"}}}
                )
            },
            "headGroupSpec should have at least one container",
        ),
        "bounds, reported before the upgrade strategy": (
            {
                "config": a_cluster_config(a_group(minReplicas=3, maxReplicas=2)),
                "upgradeStrategy": {"type": "Foo"},
            },
            "worker group small has minReplicas 3 greater than maxReplicas 2",
        ),
        "the second group": (
            {"config": a_cluster_config(a_group(), a_group("big", maxReplicas=None))},
            "worker group big must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        "an annotation of the RayService": (
            {
                "config": a_cluster_config(gcsFaultToleranceOptions={"redisAddress": "redis:6379"}),
                "annotations": {"ray.io/ft-enabled": "true"},
            },
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance",
        ),
        "a gate": (
            {"config": a_cluster_config(networkPolicy={"mode": "DenyAll"})},
            "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled",
        ),
        "an upgrade strategy of the cluster's own": (
            {"config": a_cluster_config(upgradeStrategy={"type": "Recreate"})},
            "upgradeStrategy cannot be set when RayCluster is created by RayService",
        ),
        "a text above its limit": (
            {"config": a_cluster_config(rayVersion="1" * 120_000 + "\n")},
            "Expected `str` of length <= 128 - at `$.rayClusterConfig.rayVersion`",
        ),
    },
)
async def test_the_rules_of_clusters_are_those_of_services(
    fields: dict[str, Any], message: str
) -> None:
    sim = Simulator()
    sim.apply(**fields)
    await sim.run(1)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    assert sim.message("Ready") == f"The RayService spec is invalid: {message}"
    assert sim.reasons() == ["InvalidRayServiceSpec"]
    assert sim.clusters == []


@pytest.mark.parametrize(
    "options", [{"tlsOptions": {"enabled": True}}, {"historyServerOptions": COLLECTOR}]
)
async def test_alpha_features_of_clusters_need_their_gate_here_too(options: dict[str, Any]) -> None:
    sim = Simulator()
    sim.apply(config=a_cluster_config(**options))
    await sim.run(1)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    assert "feature gate" in sim.message("Ready")
    sim = Simulator(settings=Config(gates=frozenset(FeatureGate)))
    sim.apply(config=a_cluster_config(**options))
    await sim.run(1)
    assert len(sim.clusters) == 1


@pytest.mark.acceptance("rayservice", 13)
@pytest.mark.parametrize("manager", ["kueue.x-k8s.io/multikueue", ""])
async def test_13_what_others_manage_is_not_touched(manager: str) -> None:
    sim = Simulator()
    sim.apply(managedBy=manager)
    await sim.run(600)
    assert (sim.kube.writes(), sim.reasons(), sim.status) == ([], [], {})


@pytest.mark.acceptance("rayservice", 14)
async def test_14_an_invalid_edit_leaves_a_running_service_alone_and_a_fix_is_ready_at_once() -> (
    None
):
    sim = Simulator()
    sim.apply()
    await sim.until(sim.is_complete)
    active, before, done = sim.active, sim.status, len(sim.kube.writes())
    sim.apply(
        upgradeStrategy={"type": "Foo"}, config=a_cluster_config(image="rayproject/ray:2.53.0")
    )
    await sim.run(300)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    assert sim.kube.writes()[done:] == ["update RayService/status demo"]
    untouched = ("serviceStatus", "numServeEndpoints", "observedGeneration", "activeServiceStatus")
    assert {key: sim.status[key] for key in untouched} == {key: before[key] for key in untouched}
    assert (sim.active, sim.selected(), sim.clusters) == (active, active, [active])
    sim.apply()
    await sim.reconcile()
    assert sim.condition("Ready") == ("True", "NonZeroServeEndpoints")
    assert sim.condition("UpgradeInProgress") == ("False", "NoPendingCluster")


@pytest.mark.acceptance("rayservice", 15)
@pytest.mark.parametrize("starts", [True, False])
async def test_15_created_invalid_then_fixed_it_starts_as_if_new_with_all_its_time(
    *, starts: bool
) -> None:
    sim = Simulator()
    sim.ray_clusters.holds_pods = not starts
    limited = {"ray.io/initializing-timeout": "30s"}
    sim.apply(upgradeStrategy={"type": "Foo"}, annotations=limited)
    await sim.run(40)
    sim.apply(annotations=limited)
    await sim.reconcile()
    assert sim.condition("Ready") == sim.condition("UpgradeInProgress") == ("False", "Initializing")
    await sim.run(29)
    assert sim.condition("Ready") == (
        ("True", "NonZeroServeEndpoints") if starts else ("False", "Initializing")
    )
    await sim.run(2)
    assert sim.is_complete() is starts
    assert sim.condition("Ready")[1] == (
        "NonZeroServeEndpoints" if starts else "InitializingTimeout"
    )
