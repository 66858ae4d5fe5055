"""The two Services of a RayService, field by field; spec rayservice §10, acceptance 32-34."""

from typing import Any

import msgspec
import pytest

from common.api import ray_service
from common.api.core import Service
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.errors import InvalidSpec
from service_reconciler.resources import services
from support.builders.ray_service import a_cluster_config, a_ray_service
from support.tables import cases


def service(**fields: Any) -> RayService:
    return ray_service.decode(a_ray_service(**fields))


def head_with(*ports: Json, **fields: Any) -> Json:
    container = {"name": "ray-head", "image": "i", "ports": list(ports)}
    return a_cluster_config(
        headGroupSpec={"template": {"spec": {"containers": [container]}}, **fields}
    )


def build_head(config: Json, *, has_cluster_ip: bool = False) -> Json:
    return services.head(
        service(config=config), "demo-abcde", config=config, has_cluster_ip=has_cluster_ip
    )


def test_the_head_service_has_rays_five_ports_and_no_address() -> None:
    built = build_head(a_cluster_config())
    assert built["metadata"]["labels"] == {
        "ray.io/originated-from-cr-name": "demo",
        "ray.io/originated-from-crd": "RayService",
        "ray.io/node-type": "head",
        "ray.io/identifier": "demo-head",
    }
    assert [
        (each["name"], each["port"], each["appProtocol"]) for each in built["spec"]["ports"]
    ] == [
        ("client", 10001, "tcp"),
        ("dashboard", 8265, "tcp"),
        ("gcs-server", 6379, "tcp"),
        ("metrics", 8080, "tcp"),
        ("serve", 8000, "tcp"),
    ]
    assert built["spec"]["clusterIP"] == "None"
    assert built["spec"]["publishNotReadyAddresses"] is True
    assert built["spec"]["selector"]["ray.io/identifier"] == "demo-abcde-head"


@cases(
    ("config", "has_cluster_ip"),
    {
        "the switch": (a_cluster_config(), True),
        "a type of its own": (head_with(serviceType="NodePort"), False),
        "the user's own Service": (head_with(headService={"spec": {"externalName": "x"}}), False),
        "the user's own Service, empty": (head_with(headService={}), False),
    },
)
def test_the_head_service_has_an_address_when(config: Json, has_cluster_ip: bool) -> None:
    assert "clusterIP" not in build_head(config, has_cluster_ip=has_cluster_ip)["spec"]


def test_an_unnamed_port_is_named_by_its_number() -> None:
    built = build_head(head_with({"containerPort": 1234}))
    assert [each["name"] for each in built["spec"]["ports"]] == ["1234-port", "metrics"]


@cases(
    ("ports", "given", "expected"),
    {
        "default": ([], None, [{"name": "serve", "port": 8000}]),
        "two": (
            [
                {"name": "serve-grpc", "containerPort": 9000},
                {"name": "serve", "containerPort": 8000},
            ],
            None,
            [{"name": "serve", "port": 8000}, {"name": "serve-grpc", "port": 9000}],
        ),
        "user": (
            [],
            [{"name": "serve", "port": 80}, {"name": "x", "port": 1}],
            [{"name": "serve", "port": 80}],
        ),
        "kept": (
            [{"name": "x", "containerPort": 1}],
            [{"name": "y", "port": 2}],
            [{"name": "y", "port": 2}],
        ),
    },
)
def test_32_the_serve_services_ports(
    ports: list[Json], given: list[Json] | None, expected: list[Json]
) -> None:
    config = head_with(*ports) if ports else a_cluster_config()
    more = {} if given is None else {"serveService": {"spec": {"ports": given}}}
    built = services.serve(service(config=config, **more), "demo-abcde", config=config)
    assert built["spec"]["ports"] == expected
    assert built["metadata"]["labels"]["ray.io/serve"] == "demo-serve"


def test_33_no_serve_port_is_reported() -> None:
    config = head_with({"name": "gcs-server", "containerPort": 6379})
    with pytest.raises(InvalidSpec, match="port named 'serve'"):
        services.serve(service(config=config), "demo-abcde", config=config)


@pytest.mark.parametrize(
    "label", ["app.kubernetes.io/name", "app.kubernetes.io/created-by", "ray.io/identifier"]
)
@pytest.mark.parametrize("is_group", [True, False])
def test_the_head_service_selects_a_head_by_the_labels_that_its_user_gave_it(
    label: str, is_group: bool
) -> None:
    metadata = {} if is_group else {"labels": {label: "mine"}}
    group = {"labels": {label: "mine"}} if is_group else {}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "ray-head", "image": "i"}]}}
    config = a_cluster_config(headGroupSpec={"template": template, **group})
    assert build_head(config)["spec"]["selector"][label] == "mine"


def test_a_service_with_a_stale_label_in_its_selector_is_rewritten() -> None:
    want = build_head(a_cluster_config())
    stored = msgspec.json.decode(msgspec.json.encode(want), type=Service)
    assert services.selects_same(stored, want)
    selector = stored.spec.selector
    for held, is_same in (
        ({**selector, "app.kubernetes.io/name": "other"}, False),
        ({**selector, "ray.io/identifier": "other"}, False),
        ({**selector, "mine": "kept"}, True),
        ({"ray.io/cluster": "demo-abcde", "ray.io/node-type": "head"}, True),
    ):
        spec = msgspec.structs.replace(stored.spec, selector=held)
        have = msgspec.structs.replace(stored, spec=spec)
        assert services.selects_same(have, want) is is_same
