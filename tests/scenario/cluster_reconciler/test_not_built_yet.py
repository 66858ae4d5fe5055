"""A cluster that asks for what is not built yet: accepted, and never silently without it (spec raycluster §4.4, §11.16, §20)."""

import pytest

from cluster_reconciler.config import Config
from common.api.opaque import Json
from common.feature_gates import Gate
from common.kube.resources import RAY_CLUSTER
from scenario.cluster_reconciler.harness import Harness, a_running_harness
from support.builders.ray_cluster import a_ray_cluster

GATES = frozenset(Gate) - {Gate.KUBERNETES_WAS}
WITH_CERT_MANAGER = Config(gates=GATES, has_cert_manager=True)
WITHOUT = Config(gates=GATES)
REASON = "UnsupportedRayClusterSpec"
TLS: Json = {"tls_options": {"enabled": True}}
COLLECTOR: Json = {"collectorOptions": {"image": "c", "env": [{"name": "STORAGE_BACKEND", "value": "local"}]}}
HISTORY: Json = {"history_server_options": COLLECTOR}


def message(harness: Harness, kind: str = "UnsupportedFeatures") -> str:
    return next(each.message for each in harness.cluster().status.conditions if each.type == kind)


def notes_of(harness: Harness, reason: str = REASON) -> list[str]:
    return [note for kind, why, note in harness.kube.events() if (kind, why) == ("Warning", reason)]


async def test_the_cluster_runs_and_what_it_lacks_is_reported_once() -> None:
    harness = Harness(WITHOUT)
    harness.apply(a_ray_cluster(**HISTORY))
    await harness.settle()
    assert len(notes_of(harness)) == 1
    harness.kubelet()
    await harness.settle()
    harness.kube.requests.clear()
    assert harness.cluster().status.state == "ready"
    assert harness.conditions()["UnsupportedFeatures"] == ("True", REASON)
    assert "ReplicaFailure" not in harness.conditions()
    assert "historyServerOptions is not supported yet" in message(harness)
    harness.start()
    await harness.settle()
    await harness.pass_time(1000)
    assert harness.kube.writes() == []
    assert notes_of(harness) == []
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert "UnsupportedFeatures" not in harness.conditions()


@pytest.mark.acceptance("raycluster", 17)
async def test_tls_without_cert_manager_is_refused_and_nothing_is_made() -> None:
    harness = Harness(WITHOUT)
    harness.apply(a_ray_cluster(**TLS))
    await harness.settle()
    (note,) = notes_of(harness, "InvalidRayClusterSpec")
    assert note == (
        "The RayCluster spec is invalid ns/c: tlsOptions requires cert-manager, but cert-manager is not installed"
    )
    assert harness.kube.writes() == ["update RayCluster/status c"]
    assert (harness.errors, harness.promised) == ([], {})
    assert harness.conditions()["UnsupportedFeatures"] == ("True", REASON)


@pytest.mark.acceptance("raycluster", 120)
async def test_tls_with_cert_manager_creates_all_but_pods_and_reports_that() -> None:
    harness = Harness(WITH_CERT_MANAGER)
    harness.apply(a_ray_cluster(**TLS))
    await harness.settle()
    assert harness.names() == []
    assert ("Service", "ns", "c-head-svc") in harness.kube.objects
    assert harness.conditions()["ReplicaFailure"] == ("True", REASON)
    assert "remove tlsOptions" in message(harness)
    assert len(notes_of(harness)) == 1
    assert (harness.errors, harness.promised) == ([], {})


@pytest.mark.parametrize("config", [WITHOUT, WITH_CERT_MANAGER], ids=["without cert-manager", "with it"])
async def test_with_tls_withdrawn_the_cluster_comes_up(config: Config) -> None:
    harness = await a_running_harness(a_ray_cluster(**TLS), config)
    harness.apply(a_ray_cluster())
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    assert len(harness.names()) == 4
    assert {"ReplicaFailure", "UnsupportedFeatures"}.isdisjoint(harness.conditions())
    assert harness.cluster().status.state == "ready"


async def test_pods_that_run_already_stay_and_can_be_suspended() -> None:
    harness = await a_running_harness(config=WITH_CERT_MANAGER)
    before = harness.names()
    harness.apply(a_ray_cluster(**TLS))
    await harness.settle()
    assert harness.names() == before
    assert harness.conditions()["ReplicaFailure"] == ("True", REASON)
    harness.apply(a_ray_cluster(**TLS, suspend=True))
    await harness.settle()
    assert harness.names() == []
    assert harness.conditions()["RayClusterSuspended"][0] == "True"


async def test_a_deleted_cluster_that_asks_for_tls_goes() -> None:
    harness = await a_running_harness(a_ray_cluster(**TLS), WITHOUT)
    await harness.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    assert harness.kube.writes() == ["delete RayCluster c"]
