"""Whole pods: names, the parts of the template that are kept, and inputs that must not be modified
(acceptance cases 19, 49, 104).
"""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_reconciler.config import Config
from cluster_reconciler.resources import head_pod, owner, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.resources.worker_pod import WorkerPods
from common import labels
from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from support.builders.ray_cluster import (
    a_container,
    a_group,
    a_head,
    a_ray_cluster,
    a_template,
    first_group,
)
from support.builders.ray_pod import head_of, ray_container_of, worker_of
from support.tables import cases

FIXED = Config(head_pod_name_is_fixed=True)
MULTI_HOST = Config(gates=BETA | {FeatureGate.MULTI_HOST_INDEXING})


@pytest.mark.parametrize(
    ("template_name", "config", "names"),
    [
        pytest.param(None, Config(), ("c-head-abcde", "c-head-"), id="the name that was drawn"),
        pytest.param("mine", Config(), ("mine", "c-head-"), id="the template's name wins"),
        pytest.param("mine", FIXED, ("c-head", None), id="case 49: the fixed name wins over both"),
    ],
)
def test_head_names(
    template_name: str | None, config: Config, names: tuple[str, str | None]
) -> None:
    cluster = a_ray_cluster(head=a_head(template=a_template(name=template_name)))
    metadata = head_of(cluster, config)["metadata"]
    assert (metadata["name"], metadata.get("generateName")) == names


def test_case_104_long_prefixes_are_cut() -> None:
    cluster = a_ray_cluster(
        "a" * 29, groups=[a_group("G" * 30, template=a_template(name="theirs"))]
    )
    metadata = worker_of(cluster)["metadata"]
    assert metadata["generateName"] == "a" * 29 + "-" + "g" * 20 + "-worker-"
    assert metadata["name"] == "c-g-worker-abcde"


@given(
    cluster=st.from_regex(r"[a-z][-a-z0-9]{0,52}", fullmatch=True),
    group=st.text("abC-9", min_size=1, max_size=70),
)
def test_drawn_names_leave_room_for_a_suffix(cluster: str, group: str) -> None:
    found = a_ray_cluster(cluster, groups=[a_group(group)])
    for prefix in (
        head_pod.format_name_prefix(found),
        worker_pod.format_name_prefix(found, first_group(found)),
    ):
        assert prefix == prefix.lower()
        assert prefix.endswith("-")
        assert len(prefix) + 5 <= 63


def test_case_19_owner_and_namespace() -> None:
    template = a_template()
    template["metadata"]["namespace"] = "elsewhere"
    cluster = a_ray_cluster(head=a_head(template=template))
    for pod in (head_of(cluster), worker_of(cluster)):
        assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
        assert pod["metadata"]["namespace"] == "ns"
        assert pod["metadata"]["ownerReferences"] == owner.build_references(cluster)


def test_the_owner_reference() -> None:
    owned_by = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": "uid-of-c"}
    assert owner.build_references(a_ray_cluster()) == [
        {**owned_by, "controller": True, "blockOwnerDeletion": True}
    ]


def test_everything_in_the_template_is_kept_even_unknown_fields() -> None:
    unknown: Json = {
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "gpu"}],
        "priorityClassName": "high",
        "futureField": {"a": [1]},
    }
    template = a_template(
        a_container(futureField="x"), annotations={"note": "mine"}, finalizers=None
    )
    template["spec"] |= unknown
    template["metadata"]["finalizers"] = ["example.com/wait"]
    pod = worker_of(a_ray_cluster(groups=[a_group(template=template)]))
    assert {field: pod["spec"][field] for field in unknown} == unknown
    assert ray_container_of(pod)["futureField"] == "x"
    assert pod["metadata"]["annotations"] == {"note": "mine"}
    assert pod["metadata"]["finalizers"] == ["example.com/wait"]


def test_default_annotations_only_fill_gaps() -> None:
    config = Config(default_pod_annotations={"note": "ours", "site": "z"})
    template = a_template(annotations={"note": "mine"})
    pod = worker_of(a_ray_cluster(groups=[a_group(template=template)]), config)
    assert pod["metadata"]["annotations"] == {"note": "mine", "site": "z"}


@cases(
    ("ports", "expected"),
    {
        "added when absent": ([], [("metrics", 8080)]),
        "another number of that name is kept": ([("metrics", 9)], [("metrics", 9)]),
        "another name does not count": ([("m", 8080)], [("m", 8080), ("metrics", 8080)]),
    },
)
def test_metrics_port(ports: list[tuple[str, int]], expected: list[tuple[str, int]]) -> None:
    declared = [{"name": name, "containerPort": number} for name, number in ports]
    pod = worker_of(
        a_ray_cluster(groups=[a_group(template=a_template(a_container(ports=declared)))])
    )
    assert [
        (port["name"], port["containerPort"]) for port in ray_container_of(pod)["ports"]
    ] == expected


def test_inputs_are_left_alone_and_pods_share_nothing() -> None:
    env: Json = {"name": "OURS", "value": "1"}
    config = Config(
        head_sidecars=({"name": "side", "env": []},),
        worker_sidecars=({"name": "side"},),
        default_container_envs=(env,),
    )
    cluster = a_ray_cluster(
        enable_in_tree_autoscaling=True,
        autoscaler_options={"env": [{"name": "X", "value": "y"}], "resources": {"limits": {}}},
        gcs_fault_tolerance_options={
            "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
        },
        auth_options={"mode": "token", "enableK8sTokenAuth": True},
    )
    group, spec_before, config_before = (
        first_group(cluster),
        copy.deepcopy(cluster.spec),
        copy.deepcopy(config),
    )
    pods = [
        head_pod.build(cluster, config, name="h"),
        worker_pod.build(cluster, group, config, name="w", replica=ReplicaIndex(0)),
    ]
    again = copy.deepcopy(pods)
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for entry in container.get("env", []):
                entry["name"] = "broken"
            container.pop("resources", {}).clear()
    assert (cluster.spec, config) == (spec_before, config_before)
    assert head_pod.build(cluster, config, name="h") == again[0]
    assert worker_pod.build(cluster, group, config, name="w", replica=ReplicaIndex(0)) == again[1]


def test_a_spec_without_optional_objects_is_enough() -> None:
    bare: Json = {"spec": {"containers": [{"name": "r"}]}}
    cluster = a_ray_cluster(head=a_head(template=bare), groups=[a_group(template=bare)])
    assert head_of(cluster)["spec"]["containers"][0]["name"] == "r"
    assert worker_of(cluster)["spec"]["initContainers"][0]["name"] == "wait-gcs-ready"


def test_pods_of_a_group_differ_in_name_and_place_only() -> None:
    cluster = a_ray_cluster(groups=[a_group(num_of_hosts=2)])
    pods = WorkerPods(cluster=cluster, group=first_group(cluster), config=MULTI_HOST)
    first, second = (
        pods.build(name=name, replica=ReplicaIndex(1, host, "g-x"))
        for host, name in enumerate(("a", "b"))
    )
    assert (first["metadata"].pop("name"), second["metadata"].pop("name")) == ("a", "b")
    places = [pod["metadata"]["labels"].pop(labels.HOST_INDEX) for pod in (first, second)]
    assert places == ["0", "1"]
    assert first == second


def test_marks_of_one_worker_do_not_reach_another() -> None:
    cluster = a_ray_cluster()
    pods = WorkerPods(cluster=cluster, group=first_group(cluster), config=Config())
    first, before = (pods.build(name="w", replica=ReplicaIndex(0)) for _ in range(2))
    first["metadata"]["labels"]["queue"] = first["metadata"]["annotations"]["mark"] = "x"
    first["spec"]["schedulerName"] = first["metadata"]["annotations"]["gang"] = "y"
    assert pods.build(name="w", replica=ReplicaIndex(0)) == before
