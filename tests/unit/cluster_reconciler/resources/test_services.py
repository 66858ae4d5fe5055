"""Services in front of a cluster (spec raycluster §12.1-12.3; acceptance cases 67, 102, 106-109)."""

from typing import Any

import pytest

from cluster_reconciler import plan
from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner, services
from common import labels
from common.api.opaque import Json
from common.ray import ports
from support.builders.pods import actions_of, an_observation
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

LABELS = {
    "ray.io/cluster": "c",
    "ray.io/node-type": "head",
    "ray.io/identifier": "c-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}
DEFAULTS = [
    ("client", 10001),
    ("dashboard", 8265),
    ("gcs-server", 6379),
    ("metrics", 8080),
    ("serve", 8000),
]
HEADLESS = {"clusterIP": "None", "publishNotReadyAddresses": True}


def entries(numbers: list[tuple[str, int]]) -> list[Json]:
    return [{"name": name, "port": number, "appProtocol": "tcp"} for name, number in numbers]


def a_head_declaring(*declared: Json, **fields: Any) -> Json:
    return a_head(template=a_template(a_container(ports=list(declared))), **fields)


def test_case_106_default() -> None:
    cluster = a_ray_cluster()
    assert services.build_head(cluster, Config()) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "c-head-svc",
            "namespace": "ns",
            "labels": LABELS,
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {"selector": LABELS, "ports": entries(DEFAULTS), **HEADLESS},
    }


@cases(
    ("service_type", "config", "differences"),
    {
        "case 106: an address by the operator's wish": (
            "",
            Config(head_service_has_cluster_ip=True),
            {},
        ),
        "ClusterIP is headless too": ("ClusterIP", Config(), {"type": "ClusterIP", **HEADLESS}),
        "case 106: node ports need an address": ("NodePort", Config(), {"type": "NodePort"}),
    },
)
def test_case_106_types(service_type: str, config: Config, differences: Json) -> None:
    spec = services.build_head(a_ray_cluster(head=a_head(service_type=service_type)), config)[
        "spec"
    ]
    assert spec == {"selector": LABELS, "ports": entries(DEFAULTS), **differences}


@cases(
    ("declared", "expected"),
    {
        "case 107: only metrics": (
            [{"name": "gcs", "containerPort": 6379}],
            [("gcs", 6379), ("metrics", 8080)],
        ),
        "a port without a name": ([{"containerPort": 1}], [("1-port", 1), ("metrics", 8080)]),
        "the user's own metrics": ([{"name": "metrics", "containerPort": 9}], [("metrics", 9)]),
        "one port of a name": (
            [{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}],
            [("a", 2), ("metrics", 8080)],
        ),
    },
)
def test_case_107_declared_ports(declared: list[Json], expected: list[tuple[str, int]]) -> None:
    service = services.build_head(a_ray_cluster(head=a_head_declaring(*declared)), Config())
    assert service["spec"]["ports"] == entries(expected)


def test_case_102_the_service_follows_the_applications_name() -> None:
    template = a_template(
        labels={"app.kubernetes.io/name": "x", "ray.io/cluster": "evil", "ray.io/identifier": "y"}
    )
    service = services.build_head(a_ray_cluster(head=a_head(template=template)), Config())
    selected = {"app.kubernetes.io/name": "x", "ray.io/identifier": "y"}
    assert service["spec"]["selector"] == {**LABELS, **selected}
    assert service["metadata"]["labels"] == {**LABELS, "app.kubernetes.io/name": "x"}


def test_annotations_of_the_default_service() -> None:
    service = services.build_head(a_ray_cluster(head_service_annotations={"a": "b"}), Config())
    assert service["metadata"]["annotations"] == {"a": "b"}


def test_case_108_the_users_own_service() -> None:
    own: Json = {
        "metadata": {
            "name": "mine",
            "namespace": "elsewhere",
            "annotations": {"a": "theirs", "b": "theirs"},
            "labels": {"team": "x", "ray.io/cluster": "evil"},
        },
        "spec": {
            "selector": {"app": "theirs"},
            "ports": [{"name": "z", "port": 1}],
            "sessionAffinity": "ClientIP",
        },
    }
    head = a_head_declaring(
        {"name": "gcs", "containerPort": 6379}, head_service=own, service_type="NodePort"
    )
    cluster = a_ray_cluster(head=head, head_service_annotations={"a": "ours"})
    assert services.build_head(cluster, Config()) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "mine",
            "namespace": "ns",
            "annotations": {"a": "ours", "b": "theirs"},
            "labels": {"team": "x", **LABELS},
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {
            "selector": LABELS,
            "ports": [{"name": "z", "port": 1}, *entries([("gcs", 6379), ("metrics", 8080)])],
            "sessionAffinity": "ClientIP",
            "type": "NodePort",
        },
    }


@cases(
    ("own", "name", "spec_type"),
    {
        "an empty Service takes our name": ({}, "c-head-svc", None),
        "its own type stays": ({"spec": {"type": "LoadBalancer"}}, "c-head-svc", "LoadBalancer"),
    },
)
def test_case_108_defaults(own: Json, name: str, spec_type: str | None) -> None:
    cluster = a_ray_cluster(head=a_head(head_service=own))
    service = services.build_head(cluster, Config())
    assert (service["metadata"]["name"], service["spec"].get("type")) == (name, spec_type)
    assert "clusterIP" not in service["spec"]
    assert cluster.spec.head_group_spec.head_service == own


@cases(
    ("head", "expected"),
    {
        "the default port": (a_head(), [{"name": "serve", "port": 8000}]),
        "case 109: a port named serve-": (
            a_head_declaring(
                {"name": "serve-grpc", "containerPort": 9}, {"name": "server", "containerPort": 8}
            ),
            [{"name": "serve-grpc", "port": 9}],
        ),
    },
)
def test_serve_service(head: Json, expected: list[Json]) -> None:
    cluster = a_ray_cluster(head={**head, "serviceType": "NodePort"})
    assert services.build_serve(cluster) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "c-serve-svc",
            "namespace": "ns",
            "labels": {
                "ray.io/originated-from-cr-name": "c",
                "ray.io/originated-from-crd": "RayCluster",
                "ray.io/serve": "c-serve",
            },
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {"selector": {"ray.io/cluster": "c"}, "ports": expected, "type": "NodePort"},
    }


def test_case_109_no_serve_port() -> None:
    cluster = a_ray_cluster(head=a_head_declaring({"name": "gcs", "containerPort": 6379}))
    assert services.build_serve(cluster) is None
    assert ports.NO_PORT == (
        "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head "
        "container; otherwise, the Kubernetes service for Ray Serve will not be created."
    )


@pytest.mark.parametrize(("value", "is_needed"), [("true", True), ("True", False), ("", False)])
def test_the_serve_service_is_requested_by_the_exact_value(value: str, *, is_needed: bool) -> None:
    observed = an_observation(
        cluster=a_ray_cluster(annotations={labels.ENABLE_SERVE_SERVICE: value})
    )
    planned = map(str, actions_of(plan.make_plan(observed, now=observed.now)))
    assert ("create Service c-serve-svc" in planned) == is_needed


def test_case_67_headless_service() -> None:
    cluster = a_ray_cluster(groups=[a_group("a"), a_group("b", num_of_hosts=4)])
    assert services.build_headless(cluster) == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "c-headless",
            "namespace": "ns",
            "labels": {"ray.io/headless-worker-svc": "c"},
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": {"ray.io/cluster": "c", "ray.io/node-type": "worker"},
            "publishNotReadyAddresses": True,
        },
    }
