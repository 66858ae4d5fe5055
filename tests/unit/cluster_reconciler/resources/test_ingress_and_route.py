"""The Ingress or Route of the dashboard (spec raycluster §12.4, §12.5; acceptance case 110)."""

import re

import pytest

from cluster_reconciler.resources import ingress, owner
from common.api.opaque import Json
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template
from support.tables import cases

LABELS = {
    "ray.io/cluster": "c",
    "ray.io/identifier": "c-head",
    "app.kubernetes.io/name": "kuberay",
    "app.kubernetes.io/created-by": "kuberay-operator",
}


def test_case_110_ingress() -> None:
    cluster = a_ray_cluster(
        head=a_head(enable_ingress=True),
        annotations={"kubernetes.io/ingress.class": "nginx", "note": "x"},
    )
    backend = {"service": {"name": "c-head-svc", "port": {"number": 8265}}}
    assert ingress.build(cluster) == {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": "c-head-ingress",
            "namespace": "ns",
            "labels": LABELS,
            "annotations": {"note": "x"},
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": [
                {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
            ],
        },
    }


def test_case_110_options() -> None:
    options: Json = {
        "host": "ray.example.com",
        "path": "/ray",
        "pathType": "Exact",
        "tls": [{"secretName": "s"}],
    }
    template = a_template(a_container(ports=[{"name": "dashboard", "containerPort": 9}]))
    spec = ingress.build(a_ray_cluster(head=a_head(template=template, ingress_options=options)))[
        "spec"
    ]
    backend = {"service": {"name": "c-head-svc", "port": {"number": 9}}}
    path = {"path": "/ray", "pathType": "Exact", "backend": backend}
    assert spec == {
        "rules": [{"host": "ray.example.com", "http": {"paths": [path]}}],
        "tls": [{"secretName": "s"}],
    }


@pytest.mark.parametrize(
    ("annotations", "ingress_class"), [({}, None), ({"kubernetes.io/ingress.class": ""}, "")]
)
def test_an_empty_class_is_a_class(annotations: dict[str, str], ingress_class: str | None) -> None:
    spec = ingress.build(a_ray_cluster(annotations=annotations))["spec"]
    assert spec.get("ingressClassName") == ingress_class


def test_route() -> None:
    cluster = a_ray_cluster(annotations={"kubernetes.io/ingress.class": "nginx"})
    assert ingress.build_route(cluster) == {
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {
            "name": "c-head-route",
            "namespace": "ns",
            "labels": LABELS,
            "annotations": {"kubernetes.io/ingress.class": "nginx"},
            "ownerReferences": owner.build_references(cluster),
        },
        "spec": {
            "to": {"kind": "Service", "name": "c-head-svc", "weight": 100},
            "port": {"targetPort": 8265},
            "wildcardPolicy": "None",
        },
    }


@cases(
    ("name", "ingress_name", "route_name"),
    {
        "short names stay": ("c", "c-head-ingress", "c-head-route"),
        "an Ingress keeps the end of a long name, a Route its beginning": (
            "a" + "b" * 42,
            "b" * 37 + "-head-ingress",
            "a" + "b" * 42 + "-head-",
        ),
    },
)
def test_names(name: str, ingress_name: str, route_name: str) -> None:
    cluster = a_ray_cluster(name)
    made = [build(cluster)["metadata"]["name"] for build in (ingress.build, ingress.build_route)]
    assert made == [ingress_name, route_name]


@pytest.mark.parametrize("length", [50, 51, 63])
def test_routes_of_two_clusters_never_have_one_name_in_a_long_namespace(length: int) -> None:
    clusters = [a_ray_cluster(name, metadata={"namespace": "n" * length}) for name in ("a", "b")]
    names = {ingress.build_route(cluster)["metadata"]["name"] for cluster in clusters}
    assert len(names) == 2
    assert all(re.fullmatch("[a-z][a-z0-9]*", name) for name in names)
