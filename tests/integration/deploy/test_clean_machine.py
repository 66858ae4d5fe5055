"""A machine with Python, Helm and kubectl, but without a checkout, installs raybus and upgrades it.

The commands and their output are recorded in docs/installation.md (`--update-golden`). The API
server is real; no node runs here, so no pod starts.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
import yaml

from localcluster import binaries
from localcluster.control_plane import ControlPlane
from raybus_dev import release
from raybus_dev.wheel import build_wheel, export_constraints
from support import first_release
from support.builders.ray_service import a_cluster_config
from support.manifests import DEPLOY, ROOT
from support.servers.programs import prepared

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long_running,
    pytest.mark.asyncio(loop_scope="module"),
]

PAGE: Final = ROOT / "docs" / "installation.md"
BEGIN, END = "<!-- recorded by test_clean_machine.py -->\n", "<!-- end of the record -->\n"
REGISTRY: Final = "--set image.registry=registry.example.com/raybus"
APPLY: Final = "raybus crds print | kubectl apply --server-side --force-conflicts -f -"
UPGRADE: Final = "helm upgrade raybus raybus-0.1.0.tgz -n raybus --reset-then-reuse-values"
INSTALL: Final = f"helm install raybus raybus-0.1.0.tgz -n raybus --create-namespace {REGISTRY}"
FIRST_RELEASE: Final = (
    f"helm install raybus deploy/helm/raybus -n raybus --create-namespace {REGISTRY}"
)
HIDDEN: Final = re.compile(r"^LAST DEPLOYED: .*\n| \(Python [^)]*\)", re.MULTILINE)
"""What differs from run to run: times, and the version of Python."""
WIDTH: Final = 96


class Done(msgspec.Struct, frozen=True):
    """How a command ended: its exit code, and what it printed to both outputs."""

    code: int
    text: str


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with the files of a release, and a shell that knows only what was installed."""

    folder: Path
    environment: dict[str, str]
    record: list[str]

    def type(self, command: str, *, code: int = 0, show: bool = True) -> Done:
        """Run a command that must end with `code`, and record it with its output."""
        done = self.run(command)
        assert done.code == code, done.text
        if show:
            self.record.append(f"$ {format_command(command)}\n{format_output(done.text)}")
        return done

    def run(self, command: str) -> Done:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        return Done(done.returncode, done.stdout)

    def list_versions(self) -> dict[str, str]:
        """Return the resourceVersion of each CRD of raybus, and the revision of the release."""
        found: dict[str, Any] = json.loads(self.run("kubectl get crds -o json").text)
        history = json.loads(self.run("helm history raybus -n raybus -o json").text)
        return {
            **{
                each["metadata"]["name"]: each["metadata"]["resourceVersion"]
                for each in found["items"]
            },
            "release": f"{history[-1]['revision']} {history[-1]['status']}",
        }


def format_command(command: str) -> str:
    """Return a command in lines that fit the page, as a shell reads them."""
    lines = textwrap.wrap(command, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return " \\\n    ".join(lines)


def format_output(text: str) -> str:
    """Return output without what differs from run to run, in lines that fit the page."""
    lines = HIDDEN.sub("", text).strip().splitlines()
    return "".join(
        f"{part}\n"
        for line in lines
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        or [""]
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ControlPlane]:
    """Start a control plane without a node and without CRDs."""
    async with ControlPlane.started(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def machine(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """Return a machine with the files of a release, and the chart of 0.1.0."""
    folder = tmp_path_factory.mktemp("machine")
    programs = tmp_path_factory.mktemp("programs")
    for name, program in (("helm", binaries.HELM), ("kubectl", "kubectl")):
        (programs / name).symlink_to(prepared(program))
    build_wheel(ROOT, folder)
    release.package_chart(prepared(binaries.HELM), ROOT, folder)
    constraints = export_constraints(ROOT, tmp_path_factory.mktemp("constraints") / "file.txt")
    subprocess.run([sys.executable, "-m", "venv", programs / "venv"], check=True)
    known = {name: text for name, text in os.environ.items() if name.startswith("PIP_")}
    return Machine(
        folder=folder,
        record=[],
        environment={
            **known,
            "PATH": f"{programs / 'venv' / 'bin'}:{programs}:{os.defpath}",
            "HOME": str(tmp_path_factory.mktemp("home")),
            "KUBECONFIG": str(plane.kubeconfig),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_CONSTRAINT": str(constraints),
            "COLUMNS": "96",
            "NO_COLOR": "1",
        },
    )


async def test_a_clean_machine_installs_and_upgrades(
    machine: Machine, request: pytest.FixtureRequest
) -> None:
    machine.type("pip install --quiet raybus-0.1.0-py3-none-any.whl")
    machine.type("raybus version")
    machine.type(INSTALL)
    names = machine.type("kubectl get crds -o name", show=False).text.split()
    files = (DEPLOY / "crds").glob("*_*.yaml")
    expected = {f"{plural}.{group}" for group, plural in (file.stem.split("_") for file in files)}
    assert {name.partition("/")[2] for name in names} == expected
    machine.type("helm uninstall raybus -n raybus --wait")
    machine.type("kubectl delete crds --all", show=False)
    # 0.1.0, which had four services and no RayJobs.
    first_release.unpack(machine.folder, "deploy")
    machine.type(FIRST_RELEASE, show=False)
    before = machine.list_versions()
    # Helm does not change CRDs, so an upgrade without the new ones stops.
    refused = machine.type(UPGRADE, code=1)
    assert "the cluster has no raycronjobs.ray.io, rayjobs.ray.io" in refused.text
    assert machine.list_versions() == before
    machine.type("raybus crds check")
    machine.type(APPLY)
    machine.type(UPGRADE)
    assert machine.list_versions()["release"] == "2 deployed"
    machine.type("kubectl -n raybus get deployments,statefulsets -o name")
    machine.type("helm uninstall raybus -n raybus --wait")
    check_record("".join(machine.record), update=bool(request.config.getoption("--update-golden")))


def check_record(record: str, *, update: bool) -> None:
    """Compare the record with that of the page; with `update`, write it."""
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    assert rest
    assert tail
    made = f"{head}{BEGIN}```console\n{record}```\n{END}{tail}"
    if update:
        PAGE.write_text(made)
    assert made == PAGE.read_text(), "the record differs: run this test with --update-golden"


async def test_a_removed_field_stops_the_upgrade_before_anything_changes(
    machine: Machine, tmp_path: Path
) -> None:
    machine.run("pip install --quiet raybus-0.1.0-py3-none-any.whl")
    machine.type(INSTALL, show=False)
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(add_field("retired")))
    (tmp_path / "cluster.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "metadata": {"name": "demo", "namespace": "default"},
                "spec": {**a_cluster_config(), "retired": "value"},
            }
        )
    )
    replace = "kubectl apply --server-side --force-conflicts -f"
    machine.type(f"{replace} {tmp_path / 'crd.yaml'}", show=False)
    machine.type(f"kubectl apply -f {tmp_path / 'cluster.yaml'}", show=False)
    before = machine.list_versions()

    upgrade = f"raybus crds check && {APPLY} && {UPGRADE}"
    stopped = machine.type(upgrade, code=1, show=False)
    assert "× spec.retired: removed; concerns 1 object(s): default/demo" in stopped.text
    assert "Nothing was changed." in stopped.text
    assert "save the values of a removed field" in stopped.text
    # Without the check, Helm stops as well, and names the CRD.
    refused = machine.type(UPGRADE, code=1, show=False)
    assert "another schema has rayclusters.ray.io" in refused.text
    assert machine.list_versions() == before

    kept = machine.type(f"{UPGRADE} --set crds.check=false", show=False)
    assert "REVISION: 2" in kept.text
    assert machine.list_versions() == {**before, "release": "2 deployed"}

    removal = """kubectl patch raycluster demo --type=json -p '[{"op":"remove","path":"/spec/retired"}]'"""
    machine.type(removal, show=False)
    machine.type(f"{upgrade} --set crds.check=true", show=False)
    assert machine.list_versions()["release"] == "3 deployed"


def add_field(name: str) -> dict[str, Any]:
    """Return the CRD of RayClusters with one more field in `spec`."""
    definition: dict[str, Any] = yaml.load(
        (DEPLOY / "crds" / "ray.io_rayclusters.yaml").read_text(), yaml.CSafeLoader
    )
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"][name] = {"type": "string"}
    return definition
