"""KubeRay's operator as its Deployment describes it: Helm's, the manifests', and odd ones."""

from typing import Any

import msgspec
import pytest

from raybus_cli.doctor import operator
from raybus_cli.doctor.facts import Workload
from raybus_cli.doctor.operator import Mounted

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


@pytest.mark.parametrize(
    ("image", "labels", "expected"),
    [
        pytest.param("quay.io/kuberay/operator:v1.5.1", {}, True, id="its image"),
        pytest.param(
            "registry.example/mirror/kuberay/operator@sha256:abc",
            {},
            True,
            id="a mirror, by digest",
        ),
        pytest.param(
            "registry.example:5000/kuberay-operator:v1", {}, True, id="an image of another name"
        ),
        pytest.param(
            "registry.example/own:v1",
            CHART,
            True,
            id="an image of one's own, with the chart's label",
        ),
        pytest.param("registry.invalid/raybus/watcher:0.1.0", {}, False, id="one of ours"),
    ],
)
def test_which_deployment_is_kuberays(image: str, labels: dict[str, str], expected: bool) -> None:
    assert bool(operator.kuberay([a_deployment(image=image, labels=labels)])) is expected


def test_version_flags_and_variables() -> None:
    found = operator.of(
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
    assert operator.of(a_deployment(image=image)).version == version


@pytest.mark.parametrize(
    ("mount", "items", "expected"),
    [
        pytest.param({"mountPath": "/etc/config"}, [], "operator.yaml", id="a folder"),
        pytest.param(
            {"mountPath": "/etc/config/operator.yaml", "subPath": "operator.yaml"},
            [],
            "operator.yaml",
            id="one file",
        ),
        pytest.param(
            {"mountPath": "/etc/config/"},
            [{"key": "k", "path": "operator.yaml"}],
            "k",
            id="a key by another name",
        ),
    ],
)
def test_where_the_configuration_file_comes_from(
    mount: dict[str, str], items: list[dict[str, str]], expected: str
) -> None:
    source: dict[str, Any] = {"name": "settings", **({"items": items} if items else {})}
    found = operator.of(
        a_deployment(
            args=["--config=/etc/config/operator.yaml"],
            volumeMounts=[{"name": "v", **mount}],
            volumes=[{"name": "v", "configMap": source}],
        )
    )
    assert found.file == Mounted("settings", expected)


def test_a_file_that_no_config_map_holds() -> None:
    assert operator.of(a_deployment(args=["--config=/baked/in.yaml"])).file is None


def test_what_a_config_map_gives_counts_less_than_what_stands_there() -> None:
    found = a_deployment(
        envFrom=[{"configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
        env=[{"name": "A", "value": "1"}],
    )
    assert operator.sources(found) == ["c"]
    assert operator.of(found, {"A": "2", "B": "3"}).environment == {"A": "1", "B": "3"}
