"""docker-compose.yml: the form that Docker Compose needs, and the same users and settings as in the cluster."""

from typing import Any

import pytest
import yaml

from common.observability.health import MAX_PORTS
from common.settings import Settings
from support.manifests import ROOT, SERVICES

TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
PARTS: dict[str, dict[str, Any]] = COMPOSE["services"]
TARGETS = {
    line.split()[-1]
    for line in (ROOT / "deploy" / "images" / "Dockerfile").read_text().splitlines()
    if line.startswith("FROM ") and " AS " in line
}


RUNNING = [name for name in PARTS if name != "credentials"]


def test_it_runs_nats_the_services_and_what_they_need_first() -> None:
    assert PARTS.keys() == {"credentials", "nats", "provisioner", *SERVICES}


def test_lines_have_at_most_100_columns() -> None:
    assert [line for line in TEXT.splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("name", RUNNING)
def test_a_container_that_stays_has_a_health_check_and_restarts(name: str) -> None:
    assert PARTS[name]["healthcheck"]["test"][0] == "CMD"
    assert PARTS[name]["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", RUNNING)
def test_containers_wait_for_the_health_of_what_they_need(name: str) -> None:
    for needed, dependency in PARTS[name]["depends_on"].items():
        is_once = needed == "credentials"
        assert dependency == {
            "condition": "service_completed_successfully" if is_once else "service_healthy"
        }


def test_each_service_has_ports_for_ten_replicas() -> None:
    ports = [int(PARTS[name]["environment"]["RAYBUS_HTTP_PORT"]) for name in RUNNING[1:]]
    assert ports == list(range(ports[0], ports[0] + MAX_PORTS * len(ports), MAX_PORTS))


@pytest.mark.parametrize("name", PARTS)
def test_images_are_built_from_targets_of_the_dockerfile(name: str) -> None:
    build = PARTS[name]["build"]
    assert build["target"] in TARGETS
    assert (ROOT / build["dockerfile"]).is_file()


@pytest.mark.parametrize("name", PARTS)
def test_containers_are_hardened_as_in_the_cluster(name: str) -> None:
    part = PARTS[name]
    assert part["read_only"] is True
    assert part["cap_drop"] == ["ALL"]
    assert part["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", PARTS)
def test_dependencies_and_volumes_are_declared(name: str) -> None:
    assert PARTS[name].get("depends_on", {}).keys() <= PARTS.keys()
    for mount in PARTS[name]["volumes"]:
        if mount["type"] == "volume":
            assert mount["source"] in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_wait_for_nats_and_use_their_own_user(name: str) -> None:
    environment: dict[str, str] = PARTS[name]["environment"]
    assert environment["RAYBUS_NATS_SEED_FILE"] == f"/credentials/users/{name}.seed"
    assert environment["RAYBUS_USE_KUBERNETES_PROXY"] == "true"
    assert "nats" in PARTS[name]["depends_on"]


@pytest.mark.parametrize("name", SERVICES)
def test_services_understand_their_environment(name: str) -> None:
    plain = {
        key: value
        for key, value in PARTS[name]["environment"].items()
        if key not in {"RAYBUS_NATS_SEED_FILE", "RAYBUS_NATS_CA_FILE", "RAYBUS_KUBECONFIG"}
    }
    plain |= {
        key: value.partition(":-")[2].rstrip("}")
        for key, value in plain.items()
        if value.startswith("${")
    }
    assert Settings.from_environment(name, plain).nats_url == "tls://nats:4222"
