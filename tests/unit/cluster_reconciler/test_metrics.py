from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry

from cluster_reconciler.metrics import DURATION, ClusterMetrics
from cluster_reconciler.observe import ClusterMemory
from common import labels
from common.runtime.cache import Cache
from common.runtime.key import Key
from support.builders.pods import NOW
from support.builders.ray_cluster import a_ray_cluster

PROVISIONED = {
    "type": "RayClusterProvisioned",
    "status": "True",
    "reason": "x",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
CREATED = {"creationTimestamp": NOW.isoformat()}
SERIES = {"name": "c", "namespace": "ns", "uid": "uid-of-c"}


@pytest.mark.acceptance("raycluster", 115)
def test_series_follow_the_state_and_end_with_their_cluster() -> None:
    cache, registry = Cache(), CollectorRegistry()
    ClusterMetrics(cache, {}, registry)
    cache.put(a_ray_cluster())
    assert registry.get_sample_value("kuberay_cluster_info", SERIES | {"owner_kind": "None"}) == 1
    assert (
        registry.get_sample_value(
            "kuberay_cluster_condition_provisioned", SERIES | {"condition": "false"}
        )
        == 1
    )
    owned = a_ray_cluster(
        metadata={"resourceVersion": "2"},
        labels={labels.ORIGIN_KIND: "RayService"},
        status={"conditions": [PROVISIONED]},
    )
    cache.put(owned)
    assert (
        registry.get_sample_value("kuberay_cluster_info", SERIES | {"owner_kind": "RayService"})
        == 1
    )
    assert (
        registry.get_sample_value(
            "kuberay_cluster_condition_provisioned", SERIES | {"condition": "true"}
        )
        == 1
    )
    cache.remove(type(owned), "ns", "c", version=3)
    assert (
        registry.get_sample_value("kuberay_cluster_info", SERIES | {"owner_kind": "RayService"})
        is None
    )


@pytest.mark.acceptance("raycluster", 27, 115)
def test_the_time_to_provision_is_kept_until_the_cluster_is_gone() -> None:
    cache, registry, memories = Cache(), CollectorRegistry(), dict[Key, ClusterMemory]()
    ClusterMetrics(cache, memories, registry)
    cluster = a_ray_cluster(metadata=CREATED)
    cache.put(cluster)
    assert registry.get_sample_value(DURATION.name, SERIES) is None
    memories[Key("ns", "c")] = ClusterMemory(cluster.metadata.uid, provisioned_after=7.5)
    assert registry.get_sample_value(DURATION.name, SERIES) == 7.5
    memories[Key("ns", "c")] = ClusterMemory("another", provisioned_after=8.5)
    assert registry.get_sample_value(DURATION.name, SERIES) is None
    memories[Key("ns", "c")] = ClusterMemory(cluster.metadata.uid, provisioned_after=7.5)
    cache.remove(type(cluster), "ns", "c", version=3)
    assert registry.get_sample_value(DURATION.name, SERIES) is None


@pytest.mark.acceptance("raycluster", 115)
def test_another_process_reads_the_time_to_provision_from_the_status() -> None:
    cache, registry = Cache(), CollectorRegistry()
    ClusterMetrics(cache, {}, registry)
    since = {"lastTransitionTime": (NOW + timedelta(seconds=7)).isoformat()}
    cache.put(a_ray_cluster(metadata=CREATED, status={"conditions": [PROVISIONED | since]}))
    assert registry.get_sample_value(DURATION.name, SERIES) == 7
