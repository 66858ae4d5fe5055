"""Every pod of raybus under OpenShift's `restricted-v2`, as kubectl renders its manifests."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support import manifests, openshift
from support.manifests import DEPLOY, Document

pytestmark = [pytest.mark.integration]

Render = Callable[..., list[Document]]
WORKLOADS = {"Deployment", "StatefulSet", "Job", "CronJob", "DaemonSet", "Pod"}


@pytest.fixture
def render(kubectl_binary: Path, tmp_path: Path) -> Render:
    """Return what a user's overlay yields that adds components to a folder of the repository."""

    def run(folder: str, *components: str) -> list[Document]:
        paths = {
            "resources": [DEPLOY.parent / folder],
            "components": [DEPLOY / "components" / name for name in components],
        }
        relative = {
            key: [os.path.relpath(path, tmp_path.resolve()) for path in value]
            for key, value in paths.items()
        }
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(relative))
        command = [str(kubectl_binary), "kustomize", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr
        return manifests.parse(done.stdout)

    return run


def refused(documents: list[Document]) -> dict[str, list[str]]:
    """Return the violations of each workload that OpenShift refuses."""
    pods = manifests.pod_specs(documents)
    assert {each["metadata"]["name"] for each in manifests.of_kind(documents, *WORKLOADS)} == set(
        pods
    )
    found = {name: openshift.violations(pod) for name, pod in pods.items()}
    return {name: each for name, each in found.items() if each}


ADDITIONS = ("dashboard", "dashboard-actions", "mtls", "notifications")


def test_openshift_admits_every_pod_of_its_overlay(
    overlays: Callable[[str], list[Document]],
) -> None:
    assert refused(overlays("overlays/openshift")) == {}


@pytest.mark.parametrize("overlay", ["local", "production", "namespaced", "migration"])
def test_the_component_makes_every_pod_of_every_overlay_admissible(
    overlay: str, render: Render
) -> None:
    folder = f"deploy/overlays/{overlay}"
    assert {"watcher", "nats", "nats-streams", "dashboard", "notifications"} <= refused(
        render(folder, *ADDITIONS)
    ).keys()
    assert refused(render(folder, *ADDITIONS, "openshift")) == {}


def test_every_component_with_a_pod_is_among_those_tried() -> None:
    with_pods = {
        path.parent.name
        for path in (DEPLOY / "components").glob("*/*.yaml")
        if manifests.of_kind(manifests.parse(path.read_text()), *WORKLOADS)
    }
    assert with_pods <= set(ADDITIONS)


def test_the_component_makes_the_webhook_example_admissible(render: Render) -> None:
    assert refused(render("examples/webhook", "openshift")) == {}


def test_pods_reach_the_dns_of_openshift_and_of_other_clusters(
    overlays: Callable[[str], list[Document]],
) -> None:
    policy = manifests.named(overlays("overlays/openshift"), "NetworkPolicy", "dns")
    ports = [(each["protocol"], each["port"]) for each in policy["spec"]["egress"][0]["ports"]]
    assert ports == [("UDP", 53), ("TCP", 53), ("UDP", 5353), ("TCP", 5353)]


@pytest.mark.parametrize(
    ("change", "violation"),
    [
        ({"hostNetwork": True}, "hostNetwork=True"),
        ({"securityContext": {"fsGroup": 10001}}, "fsGroup=10001"),
        ({"securityContext": {"runAsUser": 10001}}, "runAsUser=10001"),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            "seccompProfile=Unconfined",
        ),
        ({"volumes": [{"name": "run", "hostPath": {"path": "/run"}}]}, "volume hostPath"),
    ],
)
def test_the_rule_refuses_a_pod(change: Document, violation: str) -> None:
    assert openshift.violations({"containers": [], **change}) == [violation]


@pytest.mark.parametrize(
    ("context", "violation"),
    [
        ({"runAsUser": 0}, "runAsUser=0"),
        ({"privileged": True}, "privileged=True"),
        ({"allowPrivilegeEscalation": True}, "allowPrivilegeEscalation=True"),
        (
            {"capabilities": {"add": ["NET_BIND_SERVICE", "SYS_ADMIN"]}},
            "capabilities.add=SYS_ADMIN",
        ),
    ],
)
def test_the_rule_refuses_a_container(context: Document, violation: str) -> None:
    pod = {"containers": [{"name": "main", "securityContext": context}]}
    assert openshift.violations(pod) == [f"main: {violation}"]
