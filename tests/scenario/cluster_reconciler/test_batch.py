"""Batch schedulers in a cluster's life (spec raycluster §17; acceptance cases 116, 117)."""

from typing import Any

import pytest

from cluster_reconciler import batch
from cluster_reconciler.batch import POD_GROUP, PROTECTION, WORKLOAD
from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import Resource
from common.ray import batch_schedulers
from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_container, a_group, a_ray_cluster, a_template

GANG = {"ray.io/gang-scheduling-enabled": "true"}
WORKLOAD_AWARE = Config(gates=BETA | {FeatureGate.KUBERNETES_WAS})


def with_scheduler(name: str) -> Config:
    return Config(batch_scheduler=name)


def a_cluster(*, replicas: int = 3, **fields: Any) -> RayCluster:
    template = a_template(a_container(resources={"requests": {"cpu": "500m", "memory": "1Gi"}}))
    return a_ray_cluster(groups=[a_group(replicas=replicas, template=template)], **fields)


async def a_harness(cluster: RayCluster, config: Config) -> Harness:
    harness = Harness(config)
    harness.apply(cluster)
    await harness.settle()
    return harness


def pod_group(harness: Harness, name: str) -> Body:
    return harness.kube.objects["PodGroup", "ns", name]


async def test_case_116_volcano_asks_for_room_for_all_pods_before_any_is_made() -> None:
    harness = await a_harness(a_cluster(), with_scheduler("volcano"))
    writes = [text for text in harness.kube.writes() if text.startswith("create")]
    assert writes.index("create PodGroup ray-c-pg") < writes.index(
        f"create Pod {harness.names('head')[0]}"
    )
    spec = pod_group(harness, "ray-c-pg")["spec"]
    assert spec == {"minMember": 4, "minResources": {"cpu": "1500m", "memory": "3Gi"}}
    worker = harness.pods("worker")[0]
    assert worker["spec"]["schedulerName"] == "volcano"
    assert worker["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "ray-c-pg"
    assert worker["metadata"]["annotations"]["volcano.sh/task-spec"] == "g"


async def test_case_116_with_the_autoscaler_volcano_asks_for_the_least() -> None:
    cluster = a_cluster(enable_in_tree_autoscaling=True)
    harness = await a_harness(cluster, with_scheduler("volcano"))
    assert pod_group(harness, "ray-c-pg")["spec"]["minMember"] == 1


async def test_case_116_volcanos_numbers_follow_the_cluster() -> None:
    config = with_scheduler("volcano")
    harness = await a_harness(a_cluster(), config)
    harness.apply(a_cluster(replicas=5))
    await harness.settle()
    assert pod_group(harness, "ray-c-pg")["spec"] == {
        "minMember": 6,
        "minResources": {"cpu": "2500m", "memory": "5Gi"},
    }
    await harness.pass_time(1)
    harness.kube.requests.clear()
    await harness.pass_time(600)
    assert harness.kube.writes() == []


async def test_case_116_volcanos_numbers_follow_an_edit_of_a_suspended_cluster() -> None:
    harness = await a_harness(a_cluster(), with_scheduler("volcano"))
    for suspend, replicas in ((True, 3), (True, 5), (False, 5)):
        harness.apply(a_cluster(replicas=replicas, suspend=suspend))
        await harness.settle()
    assert pod_group(harness, "ray-c-pg")["spec"]["minMember"] == 6


@pytest.mark.parametrize(
    ("config", "kinds"),
    [
        (with_scheduler("volcano"), [batch_schedulers.VOLCANO_POD_GROUP]),
        (with_scheduler("scheduler-plugins"), [batch.PLUGINS_POD_GROUP]),
        (WORKLOAD_AWARE, [POD_GROUP, WORKLOAD]),
    ],
    ids=["volcano", "scheduler-plugins", "Kubernetes"],
)
@pytest.mark.parametrize(
    "broken", [{}, {"upgrade_strategy": {"type": "Sideways"}}], ids=["valid", "invalid"]
)
async def test_a_suspended_cluster_gives_the_room_of_its_gang_back(
    config: Config, kinds: list[Resource], broken: dict[str, Any]
) -> None:
    harness = await a_harness(a_cluster(labels=GANG), config)
    harness.kubelet()
    harness.kube.graceful_pods = True
    harness.apply(a_cluster(labels=GANG, suspend=True, **broken))
    await harness.settle()
    assert all(harness.kube.all(kind, "ns") for kind in kinds)
    assert harness.names()
    harness.finish_deletions()
    await harness.settle()
    for _ in kinds:
        await harness.reconcile()
    assert not any(harness.kube.all(kind, "ns") for kind in kinds)
    assert harness.conditions()["RayClusterSuspended"][0] == "True"
    harness.apply(a_cluster(labels=GANG, suspend=False))
    await harness.settle()
    assert all(harness.kube.all(kind, "ns") for kind in kinds)
    assert len(harness.names()) == 4


async def test_a_suspended_cluster_leaves_another_owners_pod_group_alone() -> None:
    harness = Harness(with_scheduler("volcano"))
    meta = {"name": "ray-c-pg", "namespace": "ns"}
    harness.kube.put(
        batch_schedulers.VOLCANO_POD_GROUP, {"metadata": meta, "spec": {"minMember": 1}}
    )
    harness.apply(a_cluster(suspend=True))
    await harness.settle()
    assert harness.conditions()["RayClusterSuspended"][0] == "True"
    assert harness.kube.all(batch_schedulers.VOLCANO_POD_GROUP, "ns")


async def test_a_job_of_ray_has_its_own_pod_group_so_the_labels_of_its_cluster_are_not_read() -> (
    None
):
    own = {
        batch_schedulers.TOPOLOGY_MODE: "hard",
        batch_schedulers.TOPOLOGY_TIER: "two",
        labels.ORIGIN_KIND: "RayJob",
    }
    harness = await a_harness(a_cluster(labels=own), with_scheduler("volcano"))
    assert len(harness.names()) == 4


async def test_a_pod_group_that_is_refused_blocks_pods_and_is_reported() -> None:
    harness = Harness(with_scheduler("volcano"))
    harness.kube.faults.append(
        lambda r: (
            errors.NotFound("no such kind") if r.verb == "create" and r.kind == "PodGroup" else None
        )
    )
    harness.apply(a_cluster())
    await harness.settle()
    assert harness.names() == []
    assert "FailedToCreatePodGroup" in harness.reasons()


@pytest.mark.parametrize("tier", ["two", "++1"])
async def test_a_tier_that_is_no_number_is_refused(tier: str) -> None:
    own = {batch_schedulers.TOPOLOGY_MODE: "hard", batch_schedulers.TOPOLOGY_TIER: tier}
    harness = await a_harness(a_cluster(labels=own), with_scheduler("volcano"))
    assert harness.names() == []
    assert harness.kube.all(batch_schedulers.VOLCANO_POD_GROUP, "ns") == []
    assert any("highest-tier-allowed label to int" in text for _, _, text in harness.kube.events())


async def test_scheduler_plugins_gets_a_pod_group_for_a_gang_only() -> None:
    config = with_scheduler("scheduler-plugins")
    assert (await a_harness(a_cluster(), config)).kube.all(batch.PLUGINS_POD_GROUP, "ns") == []
    harness = await a_harness(a_cluster(labels={"ray.io/gang-scheduling-enabled": ""}), config)
    group = pod_group(harness, "c")
    assert group["spec"] == {"minMember": 4, "minResources": {"cpu": "1500m", "memory": "3Gi"}}
    assert group["metadata"]["ownerReferences"][0].keys() == {"apiVersion", "kind", "name", "uid"}
    assert harness.pods("head")[0]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "c"


async def test_workload_aware_scheduling_gets_both_objects_before_pods() -> None:
    harness = await a_harness(a_cluster(labels=GANG), WORKLOAD_AWARE)
    gang = {"schedulingPolicy": {"gang": {"minCount": 4}}}
    workload = harness.kube.objects["Workload", "ns", "c"]
    assert workload["spec"]["podGroupTemplates"] == [{"name": "cluster", **gang}]
    template = {"workload": {"workloadName": "c", "podGroupTemplateName": "cluster"}}
    assert pod_group(harness, "c-cluster")["spec"] == {"podGroupTemplateRef": template, **gang}
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in harness.pods()} == {
        "c-cluster"
    }


async def test_a_gang_that_changes_its_size_is_announced_anew_pod_group_first() -> None:
    harness = await a_harness(a_cluster(labels=GANG), WORKLOAD_AWARE)
    group = pod_group(harness, "c-cluster")
    harness.kube.put(
        POD_GROUP, {**group, "metadata": {**group["metadata"], "finalizers": [PROTECTION]}}
    )
    harness.kube.requests.clear()
    harness.apply(a_cluster(labels=GANG, replicas=5))
    for _ in range(6):
        await harness.reconcile()
    assert [text for text in harness.kube.writes() if "Group" in text or "Workload" in text] == [
        "update PodGroup c-cluster",
        "delete PodGroup c-cluster",
        "delete Workload c",
        "create Workload c",
        "create PodGroup c-cluster",
    ]
    assert pod_group(harness, "c-cluster")["spec"]["schedulingPolicy"]["gang"]["minCount"] == 6
    assert len(harness.names("worker")) == 5


async def test_what_a_gang_leaves_behind_goes_when_it_is_none_any_more() -> None:
    harness = await a_harness(a_cluster(labels=GANG), WORKLOAD_AWARE)
    harness.apply(a_cluster())
    for _ in range(4):
        await harness.reconcile()
    assert [harness.kube.all(resource, "ns") for resource in (POD_GROUP, WORKLOAD)] == [[], []]


async def test_anothers_workload_is_in_the_way() -> None:
    harness = Harness(WORKLOAD_AWARE)
    harness.kube.put(WORKLOAD, {"metadata": {"name": "c", "namespace": "ns"}, "spec": {}})
    harness.apply(a_cluster(labels=GANG))
    await harness.settle()
    assert harness.names() == []
    assert "Workload ns/c already exists and is not owned by this RayCluster" in str(
        harness.errors[0]
    )
