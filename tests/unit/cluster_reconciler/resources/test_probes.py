"""Probes (spec raycluster §11.10; acceptance cases 95, 96)."""

import pytest

from cluster_reconciler.config import Config
from common import labels
from common.api.opaque import Json
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_pod import head_of, ray_container_of, worker_of
from support.tables import cases

RAYLET = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success"
GCS = "wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success"
SERVE = "wget --tries 1 -T 10 -q -O- http://localhost:8000/-/healthz | grep success"
HTTP: Json = {"httpGet": {"path": "/api/healthz", "port": 52365}}
SERVICE = {labels.ORIGIN_KIND: "RayService"}


def shell(*commands: str) -> Json:
    return {"exec": {"command": ["bash", "-c", " && ".join(commands)]}}


def liveness(handler: Json, *, timeout: int) -> Json:
    return {
        "initialDelaySeconds": 30,
        "timeoutSeconds": timeout,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 120,
        **handler,
    }


def readiness(handler: Json, *, timeout: int, failures: int = 10) -> Json:
    return {
        "initialDelaySeconds": 10,
        "timeoutSeconds": timeout,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": failures,
        **handler,
    }


@pytest.mark.parametrize(
    ("version", "handler"),
    [
        pytest.param("2.53.0", HTTP, id="case 95: one HTTP path from 2.53"),
        pytest.param("2.100.1", HTTP, id="later too"),
        pytest.param("2.52.0", shell(RAYLET, GCS), id="case 95: a shell before"),
        pytest.param("", shell(RAYLET, GCS), id="case 95: a shell when no version is named"),
        pytest.param("nightly", shell(RAYLET, GCS), id="a shell when the version cannot be read"),
    ],
)
def test_case_95_head(version: str, handler: Json) -> None:
    container = ray_container_of(head_of(a_ray_cluster(ray_version=version)))
    assert container["livenessProbe"] == liveness(handler, timeout=5)
    assert container["readinessProbe"] == readiness(handler, timeout=5)


@pytest.mark.parametrize(
    ("version", "handler"),
    [
        pytest.param("2.53.0", HTTP, id="HTTP"),
        pytest.param("2.52.0", shell(RAYLET), id="only the raylet is asked"),
    ],
)
def test_case_95_worker(version: str, handler: Json) -> None:
    container = ray_container_of(worker_of(a_ray_cluster(ray_version=version)))
    assert container["livenessProbe"] == liveness(handler, timeout=2)
    assert container["readinessProbe"] == readiness(handler, timeout=2)


@pytest.mark.parametrize(("version", "handler"), [("2.53.0", HTTP), ("2.52.0", shell(RAYLET))])
def test_case_96_worker_of_a_service_is_ready_with_its_proxy(version: str, handler: Json) -> None:
    container = ray_container_of(worker_of(a_ray_cluster(labels=SERVICE, ray_version=version)))
    assert container["livenessProbe"] == liveness(handler, timeout=2)
    assert container["readinessProbe"] == readiness(shell(RAYLET, SERVE), timeout=2, failures=1)


def test_case_96_head_of_a_service_is_as_any_head() -> None:
    container = ray_container_of(head_of(a_ray_cluster(labels=SERVICE, ray_version="2.53.0")))
    assert container["readinessProbe"] == readiness(HTTP, timeout=5)


def test_the_proxy_is_asked_at_the_port_named_serve() -> None:
    template = a_template(a_container(ports=[{"name": "serve", "containerPort": 9000}]))
    container = ray_container_of(
        worker_of(a_ray_cluster(labels=SERVICE, groups=[a_group(template=template)]))
    )
    expected = shell(RAYLET, SERVE.replace("8000", "9000"))
    assert container["readinessProbe"] == readiness(expected, timeout=2, failures=1)


@cases(
    ("params", "agent", "dashboard"),
    {
        "the user's ports": ({"dashboard-agent-listen-port": "1", "dashboard-port": "2"}, 1, 2),
        "no numbers": ({"dashboard-agent-listen-port": "x", "dashboard-port": ""}, 52365, 8265),
        "not a 32-bit number": ({"dashboard-port": "4294967296"}, 52365, 8265),
        "more digits than anybody reads": ({"dashboard-port": "9" * 5000}, 52365, 8265),
    },
)
def test_ports(params: dict[str, str], agent: int, dashboard: int) -> None:
    container = ray_container_of(head_of(a_ray_cluster(head=a_head(ray_start_params=params))))
    expected = shell(RAYLET.replace("52365", str(agent)), GCS.replace("8265", str(dashboard)))
    assert container["livenessProbe"] == liveness(expected, timeout=5)


def test_case_95_a_users_probe_is_kept() -> None:
    template = a_template(a_container(liveness_probe={"tcpSocket": {"port": 1}}))
    container = ray_container_of(worker_of(a_ray_cluster(groups=[a_group(template=template)])))
    assert container["livenessProbe"] == {"tcpSocket": {"port": 1}}
    assert container["readinessProbe"] == readiness(shell(RAYLET), timeout=2)


def test_case_95_no_probes_when_switched_off() -> None:
    container = ray_container_of(head_of(a_ray_cluster(), Config(injects_probes=False)))
    assert container.keys().isdisjoint({"livenessProbe", "readinessProbe"})
