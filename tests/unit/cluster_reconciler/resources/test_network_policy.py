"""NetworkPolicies as KubeRay makes them (spec raycluster §21)."""

from typing import Any

import pytest

from cluster_reconciler.resources import network_policy, owner
from common.api.opaque import Body, Json
from support.builders.ray_cluster import a_group, a_head, a_ray_cluster

AMONG: Body = {"podSelector": {"matchLabels": {"ray.io/cluster": "c"}}}
DNS: Json = {"to": [{"namespaceSelector": {}}], "ports": [{"port": 53, "protocol": "UDP"}]}
BY_JOB = {"ray.io/job-submission-mode": "K8sJobMode"}
JOB: Json = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "name": "j",
    "uid": "u",
    "controller": True,
}
WEB: Json = {"ports": [{"port": 80}]}


def built(policy: Json, **more: Any) -> dict[str, Body]:
    return network_policy.build(a_ray_cluster(network_policy=policy, **more))


def spec_of(policy: Json, name: str = "c-head", **more: Any) -> Body:
    return built(policy, **more)[name]["spec"]


def test_without_the_field_there_are_none() -> None:
    assert network_policy.build(a_ray_cluster()) == {}


def test_one_for_the_head_and_one_for_each_group() -> None:
    found = built({}, groups=[a_group("a"), a_group("b")])
    assert list(found) == ["c-head", "c-workers-a", "c-workers-b"]
    head, worker = found["c-head"], found["c-workers-a"]
    assert (head["apiVersion"], head["kind"]) == ("networking.k8s.io/v1", "NetworkPolicy")
    assert head["metadata"]["labels"] == {
        "ray.io/cluster": "c",
        "ray.io/group": "headgroup",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    assert head["metadata"]["ownerReferences"][0]["controller"] is True
    assert head["spec"]["podSelector"] == {
        "matchLabels": {"ray.io/cluster": "c", "ray.io/node-type": "head"}
    }
    assert worker["metadata"]["labels"]["ray.io/group"] == "a"
    assert worker["spec"]["podSelector"] == {
        "matchLabels": {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "a"}
    }


@pytest.mark.parametrize(
    ("mode", "types", "fields"),
    [
        (
            None,
            ["Ingress", "Egress"],
            {"ingress": [{"from": [AMONG]}], "egress": [{"to": [AMONG]}]},
        ),
        (
            "DenyAll",
            ["Ingress", "Egress"],
            {"ingress": [{"from": [AMONG]}], "egress": [{"to": [AMONG]}]},
        ),
        ("DenyAllIngress", ["Ingress"], {"ingress": [{"from": [AMONG]}]}),
        ("DenyAllEgress", ["Egress"], {"egress": [{"to": [AMONG]}]}),
    ],
)
@pytest.mark.parametrize("name", ["c-head", "c-workers-g"])
def test_a_mode_names_the_directions_that_are_denied(
    mode: str | None, types: list[str], fields: Body, name: str
) -> None:
    spec = spec_of({} if mode is None else {"mode": mode}, name)
    assert spec == {"podSelector": spec["podSelector"], "policyTypes": types, **fields}


def test_rules_of_the_user_follow_ours() -> None:
    policy: Json = {"head": {"ingressRules": [WEB]}, "worker": {"egressRules": [DNS]}}
    assert spec_of(policy)["ingress"] == [
        {"from": [AMONG]},
        {"ports": [{"port": 80, "protocol": "TCP"}]},
    ]
    assert spec_of(policy)["egress"] == [{"to": [AMONG]}]
    assert spec_of(policy, "c-workers-g")["egress"] == [{"to": [AMONG]}, DNS]


def test_the_rules_of_a_group_replace_those_of_all_workers() -> None:
    policy: Json = {
        "worker": {"egressRules": [DNS]},
        "workerGroups": [{"groupName": "a", "ingressRules": [WEB]}],
    }
    groups = [a_group("a"), a_group("b")]
    assert spec_of(policy, "c-workers-a", groups=groups)["egress"] == [{"to": [AMONG]}]
    assert len(spec_of(policy, "c-workers-a", groups=groups)["ingress"]) == 2
    assert spec_of(policy, "c-workers-b", groups=groups)["egress"][1] == DNS


@pytest.mark.parametrize(
    ("params", "port"),
    [
        ({}, 8265),
        ({"dashboard-port": "9000"}, 9000),
        ({"dashboard-port": "x"}, 8265),
        ({"dashboard-port": "9_000"}, 8265),
        ({"dashboard-port": " 9000"}, 8265),
        ({"dashboard-port": "9" * 20}, 8265),
    ],
)
def test_the_submitter_of_a_rayjob_reaches_the_dashboard(params: dict[str, str], port: int) -> None:
    cluster = a_ray_cluster(
        network_policy={},
        labels=BY_JOB,
        metadata={"ownerReferences": [JOB]},
        head=a_head(ray_start_params=params),
    )
    pods = {"ray.io/originated-from-cr-name": "j", "ray.io/originated-from-crd": "RayJob"}
    assert network_policy.build(cluster)["c-head"]["spec"]["ingress"][1] == {
        "from": [{"podSelector": {"matchLabels": pods}}],
        "ports": [{"protocol": "TCP", "port": port}],
    }


@pytest.mark.parametrize("lacking", ["label", "owner", "controller"])
def test_nobody_else_reaches_it(lacking: str) -> None:
    job = {**JOB, "controller": lacking != "controller"}
    owners = [] if lacking == "owner" else [job]
    marks = {} if lacking == "label" else BY_JOB
    cluster = a_ray_cluster(network_policy={}, labels=marks, metadata={"ownerReferences": owners})
    assert network_policy.build(cluster)["c-head"]["spec"]["ingress"] == [{"from": [AMONG]}]


NO_PODS: Json = {"podSelector": {"matchLabels": {}}}
ALL_PODS: Json = {"podSelector": {}}
STORED: list[tuple[Json, Json]] = [
    ({"from": [], "ports": None}, {}),
    ({"from": [NO_PODS]}, {"from": [ALL_PODS]}),
    ({"from": [{"namespaceSelector": {}}]}, {"from": [{"namespaceSelector": {}}]}),
]


@pytest.mark.parametrize(("written", "stored"), STORED)
def test_rules_are_compared_as_the_api_server_stores_them(written: Json, stored: Json) -> None:
    """Otherwise each reconcile would replace a policy that is already correct."""
    want = built({"head": {"ingressRules": [written]}})["c-head"]
    have: Body = {**want, "metadata": {**want["metadata"], "resourceVersion": "7"}}
    assert have["spec"]["ingress"][1] == stored
    assert owner.update_child(want, have, "labels") is None


def test_what_differs_is_replaced_and_the_rest_of_the_object_stays() -> None:
    want = built({})["c-head"]
    metadata: Body = {**want["metadata"], "resourceVersion": "7", "annotations": {"a": "b"}}
    have: Body = {**want, "metadata": metadata, "spec": {**want["spec"], "ingress": []}}
    assert owner.update_child(want, have, "labels") == {**have, "spec": want["spec"]}
