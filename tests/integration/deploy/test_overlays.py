"""The overlays as kubectl renders them and as a real API server with pod security takes them."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from localcluster import processes
from localcluster.control_plane import ControlPlane
from support import manifests
from support.manifests import DEPLOY, SERVICES

Kubectl = Callable[..., str]

pytestmark = [pytest.mark.integration]

MEBI = {"Mi": 1, "Gi": 1024}


def render(kubectl_binary: Path, overlay: str) -> list[manifests.Document]:
    command = [str(kubectl_binary), "kustomize", str(DEPLOY / "overlays" / overlay)]
    return manifests.parse(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def millis(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)


def mebis(memory: str) -> int:
    return int(memory[:-2]) * MEBI[memory[-2:]]


@pytest.mark.parametrize("overlay", ["local", "production"])
def test_patches_keep_the_hardening(overlay: str, kubectl_binary: Path) -> None:
    for name, container in manifests.containers(render(kubectl_binary, overlay)).items():
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"], name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert not context["allowPrivilegeEscalation"], name


def test_the_local_overlay_is_small(kubectl_binary: Path) -> None:
    requests = [
        each["resources"]["requests"] for each in manifests.containers(render(kubectl_binary, "local")).values()
    ]
    assert sum(millis(each["cpu"]) for each in requests) <= 300
    assert sum(mebis(each["memory"]) for each in requests) <= 600


def test_production_limits_every_lasting_container_and_keeps_its_volume(kubectl_binary: Path) -> None:
    documents = render(kubectl_binary, "production")
    for name, container in manifests.containers(documents).items():
        assert name == "nats-credentials/credentials" or container["resources"]["limits"].keys() == {"cpu", "memory"}
    for name, spec in manifests.pod_specs(documents).items():
        assert name == "nats-credentials" or spec["priorityClassName"] == "raybus"
    claim = manifests.named(documents, "StatefulSet", "nats")["spec"]["volumeClaimTemplates"][0]
    assert claim["spec"]["resources"] == {"requests": {"storage": "10Gi"}}


def test_one_command_installs_everything_without_a_warning(applied: str, kubectl: Kubectl) -> None:
    told = [line for line in applied.splitlines() if "Warning" in line and "last-applied-configuration" not in line]
    assert told == []
    for name in SERVICES:
        kubectl("-n", "raybus", "wait", "--for=condition=Available", f"deployment/{name}", "--timeout=60s")
    kubectl("-n", "raybus", "rollout", "status", "statefulset/nats", "--timeout=60s")


def test_a_second_time_changes_nothing(applied: str, kubectl: Kubectl) -> None:
    again = kubectl("apply", "-k", str(DEPLOY / "overlays" / "local"))
    # kubectl calls a budget configured each time, whatever it holds: its selector is patched as a whole.
    changed = [line for line in again.splitlines() if not line.endswith("unchanged")]
    assert [line for line in changed if not line.startswith("poddisruptionbudget")] == []


async def test_production_installs_with_one_command_on_a_clean_cluster(kubectl_binary: Path, tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path) as clean:
        command = [str(kubectl_binary), "--kubeconfig", str(clean.kubeconfig), "apply", "-k"]
        finished = await processes.run([*command, str(DEPLOY / "overlays" / "production")])
    assert (finished.code, finished.errors) == (0, "")
    assert "customresourcedefinition.apiextensions.k8s.io/rayclusters.ray.io created" in finished.output
