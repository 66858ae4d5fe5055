"""The head's label `ray.io/serve`: set at once, removed after two failures in three checks; spec
rayservice §11.2.
"""

import pytest

from common import labels
from common.api.core import Container, ContainerPort, Pod, PodSpec
from common.api.meta import ObjectMeta
from common.ray import ports, serve_api
from service_reconciler import serving
from support.builders.ray_cluster import a_ray_cluster


@pytest.mark.parametrize(
    ("current", "answers", "excluded", "expected"),
    [
        pytest.param("false", (True,), False, "true", id="up at once"),
        pytest.param("true", (True, True, False), False, "true", id="one slow answer"),
        pytest.param("true", (False,), False, "true", id="one answer is too few"),
        pytest.param("true", (True, False, False), False, "false", id="two of three"),
        pytest.param("true", (False, False, True), False, "true", id="recovered"),
        pytest.param("false", (True, False), False, "false", id="stays down"),
        pytest.param("true", (True,), True, "false", id="excluded"),
        pytest.param("true", (), False, "true", id="nobody asked yet"),
        pytest.param("", (), False, "false", id="no label yet"),
    ],
)
def test_the_label(current: str, answers: tuple[bool, ...], excluded: bool, expected: str) -> None:
    pod = Pod(metadata=ObjectMeta(name="h", labels={labels.SERVE: current} if current else {}))
    assert serving.decide_head_label(pod, answers, excluded=excluded) == expected


def test_the_port_is_the_containers_or_rays() -> None:
    named = Container(name="ray", ports=[ContainerPort(name="serve", container_port=9000)])
    pod = Pod(metadata=ObjectMeta(), spec=PodSpec(containers=[named]))
    assert serve_api.address(None, pod, "serve", ports.SERVE).port == 9000
    assert serve_api.address(None, Pod(metadata=ObjectMeta()), "serve", ports.SERVE).port == 8000


@pytest.mark.parametrize(
    ("node_type", "group", "ray"),
    [("head", "headgroup", "ray-head"), ("worker", "g", "ray-worker")],
)
def test_the_port_is_ray_containers_also_behind_the_proxy_of_a_mesh(
    node_type: str, group: str, ray: str
) -> None:
    marks = {labels.NODE_TYPE: node_type, labels.GROUP: group}
    mesh = Container(name="proxy", ports=[ContainerPort(name="serve", container_port=1)])
    own = Container(name=ray, ports=[ContainerPort(name="serve", container_port=9000)])
    pod = Pod(metadata=ObjectMeta(labels=marks), spec=PodSpec(containers=[mesh, own]))
    assert serve_api.address(a_ray_cluster(), pod, "serve", ports.SERVE).port == 9000
