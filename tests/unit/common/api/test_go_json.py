"""A value that does not have the shape of its type is reported with its field; values that
KubeRay's CRDs accept are decoded.
"""

from typing import Any

import pytest

from common.api import go_json, ray_cluster, ray_service
from common.api.opaque import Json
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service


def a_container(**fields: Any) -> Json:
    template = {
        "metadata": {"creationTimestamp": None},
        "spec": {"containers": [{"name": "ray", **fields}]},
    }
    return a_cluster_config(a_group(template=template))


def misfit(config: Any) -> str | None:
    body = a_ray_service()
    body["spec"]["rayClusterConfig"] = config
    return go_json.misfit(ray_service.decode(body))


@pytest.mark.parametrize(
    "config",
    [
        a_cluster_config(),
        a_container(resources={"limits": {"cpu": 1, "memory": "1Gi", "gpu": 0.5}}),
        a_container(
            ports=[{"containerPort": 8000}], livenessProbe={"httpGet": {"port": "http"}}, env=None
        ),
        a_container(someday={"unknown": [1, None]}),
        a_cluster_config(enableInTreeAutoscaling=None, autoscalerOptions={"idleTimeoutSeconds": 1}),
    ],
    ids=str,
)
def test_what_the_crd_admits_fits(config: Json) -> None:
    assert misfit(config) is None


GROUP = "$.rayClusterConfig.workerGroupSpecs[0]"
CONTAINERS = f"{GROUP}.template.spec.containers"


@pytest.mark.parametrize(
    ("config", "where"),
    [
        ([], "Expected `object | null`, got `array` - at `$.rayClusterConfig`"),
        (a_container(env=[None]), f"Expected `object`, got `null` - at `{CONTAINERS}[0].env[0]`"),
        (
            a_container(env=[{}]),
            f"Object missing required field `name` - at `{CONTAINERS}[0].env[0]`",
        ),
        (a_container(env={}), f"Expected `array | null`, got `object` - at `{CONTAINERS}[0].env`"),
        (a_container(name=1e300), f"Expected `str`, got `float` - at `{CONTAINERS}[0].name`"),
        (
            a_container(resources={"limits": {"cpu": True}}),
            f"got `bool` - at `{CONTAINERS}[0].resources.limits[...]`",
        ),
        (
            a_container(resources={"limits": {"cpu": None}}),
            f"got `null` - at `{CONTAINERS}[0].resources.limits[...]`",
        ),
        (
            a_cluster_config(a_group(replicas="3")),
            f"Expected `int | null`, got `str` - at `{GROUP}.replicas`",
        ),
        (
            a_cluster_config(a_group(template=7)),
            f"Expected `object | null`, got `int` - at `{GROUP}.template`",
        ),
        (
            a_cluster_config(suspend="yes"),
            "Expected `bool | null`, got `str` - at `$.rayClusterConfig.suspend`",
        ),
    ],
)
def test_what_does_not_fit_is_named(config: Any, where: str) -> None:
    assert where in str(misfit(config))


def test_a_ray_cluster_is_held_to_its_own_type() -> None:
    cluster = ray_cluster.decode(
        {"metadata": {"name": "c"}, "spec": {"headGroupSpec": {"rayStartParams": {"a": 1}}}}
    )
    assert "at `$.headGroupSpec.rayStartParams[...]`" in str(go_json.misfit(cluster))
