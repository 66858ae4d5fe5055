"""The wheel of the command line in a new virtual environment, as `pip install` makes it: without a
checkout, a compiler or another package of raybus.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from common.version import VERSION
from raybus_dev.wheel import SOURCE_ONLY, UV, build_wheel, export_constraints
from support.manifests import DEPLOY, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

Run = Callable[..., subprocess.CompletedProcess[str]]
LOCAL = {"cluster", "demo", "images"}
"""Subcommands that need a checkout."""
# Traces are off by default, and `open_telemetry` is imported only where they are on.
IMPORT_ALL = """
import importlib, pkgutil, sys
names = {name: importlib.import_module(name).__path__ for name in sys.argv[1:]}
for name, path in names.items():
    for found in pkgutil.walk_packages(path, f"{name}."):
        if not found.name.endswith(("__main__", "open_telemetry")):
            importlib.import_module(found.name)
            print(found.name)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel from PyPI and uv's cache; return the folder of its programs."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(ROOT, folder / "dist")
    assert wheel.name == f"raybus-{VERSION}-py3-none-any.whl"
    constraints = export_constraints(ROOT, folder / "constraints.txt")
    venv = folder / "venv"
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, venv], check=True)
    # Nothing is compiled; PyPI has nkeys, a single Python file, only as source.
    binary = ("--only-binary", ":all:", "--no-binary", SOURCE_ONLY)
    install = [UV, "pip", "install", "--quiet", "--python", venv, *binary]
    subprocess.run([*install, "--constraint", constraints, wheel], check=True, timeout=600)
    return folder / "venv" / "bin"


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Run:
    """Run an installed program in an empty folder, with nothing else of Python's environment."""
    environment = {"PATH": f"{installed}:{os.defpath}", "HOME": str(tmp_path), "COLUMNS": "100"}

    def call(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed / program, *arguments],
            cwd=tmp_path,
            env=environment | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call


def test_one_package_of_raybus_is_installed(installed: Path) -> None:
    def pip(verb: str) -> str:
        command = [UV, "pip", verb, "--quiet", "--python", installed.parent]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    ours = [line.split() for line in pip("list").splitlines() if line.startswith("raybus")]
    assert ours == [["raybus", VERSION]]
    pip("check")


def test_every_module_can_be_imported(run: Run) -> None:
    packages = sorted(
        path.name
        for path in (DEPLOY.parent / "libs").glob("*/src/*")
        if path.name != "notifications"
    )
    services = sorted(path.name for path in (ROOT / "services").glob("*/src/*"))
    done = run("python", "-I", "-c", IMPORT_ALL, *packages, *services)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) > 300


def test_every_subcommand_without_a_checkout_shows_its_help(run: Run) -> None:
    help_text = run("raybus", "--help").stdout
    commands = {
        line.split()[1]
        for line in help_text.splitlines()
        if line.startswith("│ ") and "--" not in line
    }
    assert {"get", "dashboard", "doctor", "crds", "up"} <= commands
    assert not commands & LOCAL
    for command in commands:
        done = run("raybus", command, "--help")
        assert (done.returncode, done.stderr) == (0, ""), command


def test_a_manifest_is_checked(run: Run, tmp_path: Path) -> None:
    good = run("raybus", "lint", "-f", str(DEPLOY / "demo" / "v1" / "rayservice.yaml"))
    assert good.returncode == 0, good.stdout
    bad = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "a"},
        "spec": {"b": 1},
    }
    (tmp_path / "bad.yaml").write_text(yaml.safe_dump(bad))
    found = run("raybus", "lint", "-f", "bad.yaml")
    assert found.returncode == 1
    assert "spec.b" in found.stdout


def test_it_prints_the_crds_of_this_repository(run: Run) -> None:
    printed = list(yaml.load_all(run("raybus", "crds", "print").stdout, yaml.CSafeLoader))
    files = [path for path in (DEPLOY / "crds").glob("*.yaml") if path.stem != "kustomization"]
    written = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in files]
    assert sorted(printed, key=name) == sorted(written, key=name)


def name(definition: dict[str, dict[str, str]]) -> str:
    return definition["metadata"]["name"]


def test_without_a_cluster_it_says_what_it_needs(run: Run) -> None:
    done = run("kubectl-raybus", "doctor")
    assert done.returncode != 0
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_bash_loads_its_completion_and_kubectl_finds_its_own(installed: Path, run: Run) -> None:
    script = installed.parent / "share/bash-completion/completions/raybus"
    program = f'. "{script}"; COMP_WORDS=(raybus hist); COMP_CWORD=1; _raybus_completion raybus; echo "${{COMPREPLY[@]}}"'
    environment = {"PATH": f"{installed}:{os.defpath}"}
    done = subprocess.run(
        ["bash", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["history"]
    assert run("kubectl_complete-raybus", "hist").stdout.splitlines() == ["history", ":4"]
