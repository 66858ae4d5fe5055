"""KubeRay's operator as its Deployment describes it: Helm's, the manifests', and odd ones."""

from typing import Any

import msgspec
import pytest

from raybus_cli.doctor import operator
from raybus_cli.doctor.facts import Workload
from raybus_cli.doctor.operator import MountedKey
from support.tables import cases

CHART = {"app.kubernetes.io/name": "kuberay-operator"}


def a_deployment(
    *,
    name: str = "kuberay-operator",
    image: str = "quay.io/kuberay/operator:v1.5.1",
    **container: Any,
) -> Workload:
    pod: dict[str, Any] = {"containers": [{"name": name, "image": image, **container}]}
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ray-system",
            "labels": container.pop("labels", CHART),
        },
        "spec": {"replicas": 1, "template": {"spec": pod}},
        "status": {"readyReplicas": 1},
    }
    pod["volumes"] = container.pop("volumes", [])
    return msgspec.convert(body, Workload)


@cases(
    ("image", "labels", "expected"),
    {
        "its image": ("quay.io/kuberay/operator:v1.5.1", {}, True),
        "a mirror, by digest": ("registry.example/mirror/kuberay/operator@sha256:abc", {}, True),
        "an image of another name": ("registry.example:5000/kuberay-operator:v1", {}, True),
        "an image of one's own, with the chart's label": ("registry.example/own:v1", CHART, True),
        "one of ours": ("registry.invalid/raybus/watcher:0.1.0", {}, False),
    },
)
def test_which_deployment_is_kuberays(image: str, labels: dict[str, str], expected: bool) -> None:
    assert bool(operator.select_kuberay([a_deployment(image=image, labels=labels)])) is expected


def test_version_flags_and_variables() -> None:
    found = operator.read_operator(
        a_deployment(
            command=["/manager"],
            args=[
                "--feature-gates=A=true,B=false",
                "-watch-namespace",
                "one,two",
                "--enable-leader-election",
                "--qps",
                "50",
            ],
            env=[
                {"name": "ENABLE_LOGIN_SHELL", "value": "true"},
                {"name": "POD", "valueFrom": {"fieldRef": {}}},
            ],
        )
    )
    assert found.version == "v1.5.1"
    assert found.flags == {
        "feature-gates": "A=true,B=false",
        "watch-namespace": "one,two",
        "enable-leader-election": "true",
        "qps": "50",
    }
    assert found.environment == {"ENABLE_LOGIN_SHELL": "true"}
    assert (found.place, found.is_running, found.file) == (
        "ray-system/kuberay-operator",
        True,
        None,
    )


@pytest.mark.parametrize(
    ("image", "version"),
    [
        pytest.param("kuberay/operator", "unknown", id="no tag"),
        pytest.param("host:5000/kuberay/operator", "unknown", id="a port is no tag"),
        pytest.param("kuberay/operator:v1.4.0@sha256:abc", "v1.4.0", id="tag and digest"),
        pytest.param("kuberay/operator@sha256:abc", "sha256:abc", id="a digest"),
    ],
)
def test_the_version_is_the_images_tag(image: str, version: str) -> None:
    assert operator.read_operator(a_deployment(image=image)).version == version


@cases(
    ("mount", "items", "expected"),
    {
        "a folder": ({"mountPath": "/etc/config"}, [], "operator.yaml"),
        "one file": (
            {"mountPath": "/etc/config/operator.yaml", "subPath": "operator.yaml"},
            [],
            "operator.yaml",
        ),
        "a key by another name": (
            {"mountPath": "/etc/config/"},
            [{"key": "k", "path": "operator.yaml"}],
            "k",
        ),
    },
)
def test_where_the_configuration_file_comes_from(
    mount: dict[str, str], items: list[dict[str, str]], expected: str
) -> None:
    source: dict[str, Any] = {"name": "settings", **({"items": items} if items else {})}
    found = operator.read_operator(
        a_deployment(
            args=["--config=/etc/config/operator.yaml"],
            volumeMounts=[{"name": "v", **mount}],
            volumes=[{"name": "v", "configMap": source}],
        )
    )
    assert found.file == MountedKey("settings", expected)


def test_a_file_that_no_config_map_holds() -> None:
    assert operator.read_operator(a_deployment(args=["--config=/baked/in.yaml"])).file is None


def test_what_a_config_map_gives_counts_less_than_what_stands_there() -> None:
    found = a_deployment(
        envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
        env=[{"name": "A", "value": "1"}],
    )
    assert operator.list_config_maps(found) == ["c"]
    assert operator.read_operator(found, {"A": "2", "B": "3"}).environment == {"A": "1", "B": "3"}
