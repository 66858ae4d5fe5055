"""The components of the dashboard in a Pod."""

import importlib
import inspect
from typing import Any

import pytest
import yaml
from typer.main import get_command

from raybus_cli import main
from raybus_dashboard.incluster import cli
from support import manifests
from support.manifests import DEPLOY, NAMESPACE

FOLDER, ACTIONS = (DEPLOY / "components" / name for name in ("dashboard", "dashboard-actions"))
ALL = manifests.read(FOLDER)
(CONTAINER,) = manifests.containers(ALL).values()
PATCH = yaml.safe_load(
    yaml.safe_load((ACTIONS / "kustomization.yaml").read_text())["patches"][0]["patch"]
)


def test_all_that_has_a_namespace_is_in_that_of_raybus() -> None:
    assert {each["metadata"].get("namespace", NAMESPACE) for each in ALL} == {NAMESPACE}


def test_the_ports_and_probes_are_those_of_the_program() -> None:
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert ports == {"https": cli.PORT, "http": cli.HEALTH_PORT}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert CONTAINER[probe]["httpGet"]["port"] == "http"
    service = manifests.named(ALL, "Service", "dashboard")["spec"]
    assert [(each["port"], each["targetPort"]) for each in service["ports"]] == [(443, "https")]
    policy = manifests.named(ALL, "NetworkPolicy", "dashboard")["spec"]
    assert [each["port"] for rule in policy["ingress"] for each in rule["ports"]] == [
        cli.PORT,
        cli.HEALTH_PORT,
    ]
    assert [each["port"] for rule in policy["egress"] for each in rule["ports"]] == [443, 6443]


def test_the_files_of_the_certificate_are_mounted() -> None:
    (folder,) = (each["mountPath"] for each in CONTAINER["volumeMounts"] if each["name"] == "tls")
    assert {f"--tls-cert-file={folder}/tls.crt", f"--tls-private-key-file={folder}/tls.key"} < set(
        CONTAINER["args"]
    )


@pytest.mark.parametrize(
    "added", [[], [each["value"] for each in PATCH]], ids=["read-only", "with actions"]
)
def test_the_arguments_are_those_of_the_program(added: list[str]) -> None:
    program: Any = get_command(main.build("dashboard"))
    context = (
        program.commands["dashboard"]
        .commands["serve"]
        .make_context("serve", [*CONTAINER["args"], *added])
    )
    assert list(context.params["audience"]) == ["raybus-dashboard"]
    assert context.params["allow_actions"] is bool(added)


def test_without_the_second_component_it_has_no_right_to_write() -> None:
    rules = manifests.named(ALL, "ClusterRole", "raybus-dashboard")["rules"]
    reviews = {"tokenreviews", "subjectaccessreviews"}
    assert [
        each
        for each in rules
        if set(each["verbs"]) - {"get", "list"} and not set(each["resources"]) <= reviews
    ] == []
    (more,) = manifests.named(manifests.read(ACTIONS), "ClusterRole", "raybus-dashboard-actions")[
        "rules"
    ]
    assert more == {"apiGroups": ["ray.io"], "resources": ["rayservices"], "verbs": ["patch"]}
    assert [each["value"] for each in PATCH] == ["--allow-actions"]


def test_no_right_exceeds_what_the_readers_of_the_page_use() -> None:
    """The name of each resource appears in the code that reads it."""
    read = "".join(
        inspect.getsource(importlib.import_module(name))
        for name in (
            "common.kube.resources",
            "raybus_cli.reading.reader",
            "raybus_dashboard.incluster.reviews",
        )
    )
    rules = manifests.named(ALL, "ClusterRole", "raybus-dashboard")["rules"]
    named = {each.partition("/")[0] for rule in rules for each in rule["resources"]}
    assert [each for each in named if each not in read] == []
