"""A cluster that asks for what is not built yet: never silently without it."""

import pytest

from cluster_reconciler.config import Config
from common.api.opaque import Json
from common.feature_gates import Gate
from scenario.cluster_reconciler.world import World, a_running_world
from support.builders.ray_cluster import a_ray_cluster

ALL = Config(gates=frozenset(Gate))
REASON = "UnsupportedRayClusterSpec"
PROTECTION = [
    pytest.param({"tls_options": {"enabled": True}}, "remove tlsOptions", id="TLS"),
    pytest.param({"network_policy": {"mode": "DenyAll"}}, "write NetworkPolicies", id="network policies"),
]


def message(world: World) -> str:
    return next(each.message for each in world.cluster().status.conditions if each.type == "ReplicaFailure")


@pytest.mark.parametrize(("spec", "remedy"), PROTECTION)
async def test_without_the_protection_asked_for_there_are_no_pods(spec: Json, remedy: str) -> None:
    world = World(ALL)
    world.apply(a_ray_cluster(**spec))
    await world.settle()
    assert world.names() == []
    assert REASON in world.reasons()
    assert world.conditions()["ReplicaFailure"] == ("True", REASON)
    assert remedy in message(world)
    assert (world.errors, world.promised) == ([], {})


@pytest.mark.parametrize(("spec", "remedy"), PROTECTION)
async def test_with_the_wish_withdrawn_the_cluster_comes_up(spec: Json, remedy: str) -> None:
    world = World(ALL)
    world.apply(a_ray_cluster(**spec))
    await world.settle()
    world.apply(a_ray_cluster())
    await world.settle()
    world.kubelet()
    await world.settle()
    assert len(world.names()) == 4
    assert "ReplicaFailure" not in world.conditions(), remedy
    assert world.cluster().status.state == "ready"


async def test_pods_that_run_already_stay_and_can_be_suspended() -> None:
    world = await a_running_world(config=ALL)
    before = world.names()
    world.apply(a_ray_cluster(tls_options={"enabled": True}))
    await world.settle()
    assert world.names() == before
    assert world.conditions()["ReplicaFailure"] == ("True", REASON)
    world.apply(a_ray_cluster(tls_options={"enabled": True}, suspend=True))
    await world.settle()
    assert world.names() == []
    assert world.conditions()["RayClusterSuspended"][0] == "True"


async def test_without_a_history_collector_the_cluster_runs() -> None:
    spec: Json = {"collectorOptions": {"image": "c", "env": [{"name": "STORAGE_BACKEND", "value": "local"}]}}
    world = World(ALL)
    world.apply(a_ray_cluster(history_server_options=spec))
    await world.settle()
    assert len(world.names()) == 4
    assert REASON in world.reasons()
    assert "ReplicaFailure" not in world.conditions()
