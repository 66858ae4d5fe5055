"""A cluster that asks for what is not built yet: accepted, and never silently without it (spec raycluster §4.4, §11.16, §20, §21)."""

import pytest

from cluster_reconciler.config import Config
from common.api.opaque import Json
from common.feature_gates import Gate
from common.kube.resources import RAY_CLUSTER
from scenario.cluster_reconciler.world import World, a_running_world
from support.builders.ray_cluster import a_ray_cluster

GATES = frozenset(Gate) - {Gate.KUBERNETES_WAS}
WITH_CERT_MANAGER = Config(gates=GATES, has_cert_manager=True)
WITHOUT = Config(gates=GATES)
REASON = "UnsupportedRayClusterSpec"
TLS: Json = {"tls_options": {"enabled": True}}
POLICIES: Json = {"network_policy": {"mode": "DenyAll"}}
COLLECTOR: Json = {"collectorOptions": {"image": "c", "env": [{"name": "STORAGE_BACKEND", "value": "local"}]}}
HISTORY: Json = {"history_server_options": COLLECTOR}
RUNNING = [
    pytest.param(POLICIES, "networkPolicy is not supported yet", id="network policies"),
    pytest.param(HISTORY, "historyServerOptions is not supported yet", id="history collector"),
]


def message(world: World, kind: str = "UnsupportedFeatures") -> str:
    return next(each.message for each in world.cluster().status.conditions if each.type == kind)


def told(world: World, reason: str = REASON) -> list[str]:
    return [note for kind, why, note in world.kube.events() if (kind, why) == ("Warning", reason)]


@pytest.mark.parametrize(("spec", "text"), RUNNING)
async def test_the_cluster_runs_and_is_told_once_what_it_lacks(spec: Json, text: str) -> None:
    world = await a_running_world(a_ray_cluster(**spec), WITHOUT)
    assert world.cluster().status.state == "ready"
    assert world.conditions()["UnsupportedFeatures"] == ("True", REASON)
    assert "ReplicaFailure" not in world.conditions()
    assert text in message(world)
    world.start()
    await world.settle()
    await world.pass_time(1000)
    assert world.kube.writes() == []
    assert told(world) == []


@pytest.mark.acceptance("raycluster", 119)
async def test_network_policies_are_not_made_which_is_told_by_a_condition_and_one_event() -> None:
    world = World(WITHOUT)
    world.apply(a_ray_cluster(**POLICIES))
    await world.settle()
    assert len(world.names()) == 4
    assert not any("NetworkPolicy" in text for text in world.kube.writes())
    (note,) = told(world)
    assert "write NetworkPolicies for the cluster's pods yourself" in note
    world.apply(a_ray_cluster())
    await world.settle()
    assert "UnsupportedFeatures" not in world.conditions()


@pytest.mark.acceptance("raycluster", 17)
async def test_tls_without_cert_manager_is_refused_and_nothing_is_made() -> None:
    world = World(WITHOUT)
    world.apply(a_ray_cluster(**TLS))
    await world.settle()
    (note,) = told(world, "InvalidRayClusterSpec")
    assert note == (
        "The RayCluster spec is invalid ns/c: tlsOptions requires cert-manager, but cert-manager is not installed"
    )
    assert world.kube.writes() == ["update RayCluster/status c"]
    assert (world.errors, world.promised) == ([], {})
    assert world.conditions()["UnsupportedFeatures"] == ("True", REASON)


@pytest.mark.acceptance("raycluster", 120)
async def test_tls_with_cert_manager_makes_all_but_pods_which_is_told() -> None:
    world = World(WITH_CERT_MANAGER)
    world.apply(a_ray_cluster(**TLS))
    await world.settle()
    assert world.names() == []
    assert ("Service", "ns", "c-head-svc") in world.kube.objects
    assert world.conditions()["ReplicaFailure"] == ("True", REASON)
    assert "remove tlsOptions" in message(world)
    assert len(told(world)) == 1
    assert (world.errors, world.promised) == ([], {})


@pytest.mark.parametrize("config", [WITHOUT, WITH_CERT_MANAGER], ids=["without cert-manager", "with it"])
async def test_with_tls_withdrawn_the_cluster_comes_up(config: Config) -> None:
    world = await a_running_world(a_ray_cluster(**TLS), config)
    world.apply(a_ray_cluster())
    await world.settle()
    world.kubelet()
    await world.settle()
    assert len(world.names()) == 4
    assert {"ReplicaFailure", "UnsupportedFeatures"}.isdisjoint(world.conditions())
    assert world.cluster().status.state == "ready"


async def test_pods_that_run_already_stay_and_can_be_suspended() -> None:
    world = await a_running_world(config=WITH_CERT_MANAGER)
    before = world.names()
    world.apply(a_ray_cluster(**TLS))
    await world.settle()
    assert world.names() == before
    assert world.conditions()["ReplicaFailure"] == ("True", REASON)
    world.apply(a_ray_cluster(**TLS, suspend=True))
    await world.settle()
    assert world.names() == []
    assert world.conditions()["RayClusterSuspended"][0] == "True"


async def test_a_deleted_cluster_that_asks_for_tls_goes() -> None:
    world = await a_running_world(a_ray_cluster(**TLS), WITHOUT)
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.settle()
    assert world.kube.writes() == ["delete RayCluster c"]
