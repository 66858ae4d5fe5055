"""NetworkPolicies follow their RayCluster where the gate is on (spec raycluster §21)."""

from typing import Any

import pytest

from cluster_reconciler.config import Config
from common import errors
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import NETWORK_POLICY
from scenario.cluster_reconciler.harness import NAMESPACE, Harness, a_running_harness
from support.builders.ray_cluster import a_group, a_ray_cluster

ON = Config(gates=BETA | {FeatureGate.NETWORK_POLICY})
REFUSED = {"create NetworkPolicy c-head"}
WEB = {"ports": [{"port": 80}]}


def policies(harness: Harness) -> dict[str, Body]:
    return {each["metadata"]["name"]: each for each in harness.kube.all(NETWORK_POLICY, NAMESPACE)}


def isolated(*groups: str, **policy: Any) -> RayCluster:
    return a_ray_cluster(groups=[a_group(each) for each in groups or ("g",)], network_policy=policy)


def noted(harness: Harness) -> list[str]:
    return [note for _, reason, note in harness.kube.events() if "NetworkPolicy" in reason]


@pytest.mark.acceptance("raycluster", 119)
async def test_each_group_has_one_and_that_of_a_removed_group_is_deleted() -> None:
    harness = await a_running_harness(isolated("a", "b"), ON)
    assert sorted(policies(harness)) == ["c-head", "c-workers-a", "c-workers-b"]
    assert "UnsupportedFeatures" not in harness.conditions()
    harness.apply(isolated("a"))
    await harness.settle()
    assert sorted(policies(harness)) == ["c-head", "c-workers-a"]
    assert noted(harness) == ["Deleted NetworkPolicy ns/c-workers-b"]


async def test_they_are_there_before_the_pods() -> None:
    harness = Harness(ON)
    harness.apply(isolated())
    await harness.settle()
    writes = harness.kube.writes()
    assert writes.index("create NetworkPolicy c-workers-g") < writes.index(
        f"create Pod {harness.names('head')[0]}"
    )
    assert noted(harness) == [
        "Created NetworkPolicy ns/c-head"
    ]  # the others are counted in its series


async def test_a_changed_rule_replaces_the_spec_alone() -> None:
    harness = await a_running_harness(isolated(), ON)
    harness.apply(isolated(head={"ingressRules": [WEB]}))
    await harness.settle()
    assert len(policies(harness)["c-head"]["spec"]["ingress"]) == 2
    assert noted(harness) == ["Updated NetworkPolicy ns/c-head"]


async def test_without_the_field_all_of_them_go() -> None:
    harness = await a_running_harness(isolated("a", "b"), ON)
    harness.apply(a_ray_cluster(groups=[a_group("a"), a_group("b")]))
    await harness.settle()
    assert policies(harness) == {}


async def test_what_was_deleted_or_changed_by_hand_comes_back() -> None:
    harness = await a_running_harness(isolated(), ON)
    await harness.pass_time(300)
    await harness.app.observer.kube.delete(NETWORK_POLICY, NAMESPACE, "c-workers-g")
    changed = policies(harness)["c-head"]
    await harness.app.observer.kube.replace(NETWORK_POLICY, NAMESPACE, {**changed, "spec": {}})
    await harness.pass_time(300)
    assert policies(harness)["c-head"]["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "c-workers-g" in policies(harness)


async def test_at_rest_they_are_listed_once_in_300_seconds_and_never_written() -> None:
    harness = await a_running_harness(isolated(), ON)
    for _ in range(3):
        await harness.pass_time(300)
    listed = [
        each
        for each in harness.kube.requests
        if (each.verb, each.kind) == ("list", "NetworkPolicy")
    ]
    assert len(listed) == 3
    assert harness.kube.writes() == []


@pytest.mark.parametrize(
    ("config", "cluster"),
    [(ON, a_ray_cluster()), (Config(), a_ray_cluster()), (Config(), isolated())],
    ids=["no field", "no field, gate off", "gate off"],
)
async def test_nothing_is_asked_for_without_a_reason(config: Config, cluster: RayCluster) -> None:
    harness = Harness(config)
    harness.apply(cluster)
    await harness.settle()
    assert not [each for each in harness.kube.requests if each.kind == "NetworkPolicy"]


async def test_a_policy_of_another_owner_is_left_alone_and_reported() -> None:
    harness = Harness(ON)
    own: Body = {
        "metadata": {"name": "c-head", "namespace": NAMESPACE, "labels": {"ray.io/cluster": "c"}},
        "spec": {},
    }
    harness.kube.put(NETWORK_POLICY, own)
    harness.apply(isolated())
    await harness.settle()
    assert policies(harness)["c-head"]["spec"] == {}
    assert len(harness.names()) == 4
    (note,) = [
        each for _, reason, each in harness.kube.events() if reason == "NetworkPolicyNameCollision"
    ]
    assert "Rename the existing NetworkPolicy" in note
    assert harness.errors


async def test_one_that_is_refused_keeps_no_pod_and_is_tried_again() -> None:
    harness = Harness(ON)
    harness.kube.faults.append(
        lambda each: errors.Forbidden("no rights") if str(each) in REFUSED else None
    )
    harness.apply(isolated())
    await harness.settle()
    assert len(harness.names()) == 4
    assert "Failed to create NetworkPolicy ns/c-head: no rights" in noted(harness)[0]
    assert harness.errors
