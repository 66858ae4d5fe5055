"""`.importlinter` covers every module: `make lint` fails for a module in no layer.

It also fails for an import of a higher layer.
"""

import importlib
import os
import re
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

from support.manifests import ROOT

FILE: Final = ROOT / ".importlinter"
LINT: Final = Path(sys.executable).with_name("lint-imports")


def _configuration() -> ConfigParser:
    parser = ConfigParser(interpolation=None)
    parser.read(FILE)
    return parser


LAYERED: Final = {
    section["containers"].strip(): name
    for name, section in _configuration().items()
    if section.get("type") == "layers" and "containers" in section
}
"""The contract of its layers, by package."""
SOURCES: Final = {
    path.name: path
    for pattern in ("*/*/src/*", "tools/raybus-dev/*")
    for path in ROOT.glob(pattern)
    if (path / "__init__.py").exists()
}
"""Every package of this repository."""

EFFECTS: Final = {
    "watcher": "__main__ adapters metrics outbox relay session term wiring",
    "cluster_reconciler": "__main__ execute in_pod metrics observe settings wiring",
    "service_reconciler": "__main__ execute metrics observe policies wiring",
    "job_reconciler": "__main__ execute metrics observe wiring",
    "traffic_manager": "__main__ execute metrics observe wiring",
}
"""Modules of each service that read, write, wait or log; all its other modules only decide."""
ROLES: Final = [
    *("actions", "events", "execute", "metrics", "observe", "observed", "plan", "resources"),
    *("status", "wiring"),
]
"""Modules and packages that every reconciler has, each with the same task."""


class Copy:
    """A copy of a package, with the contract of its layers alone."""

    def __init__(self, folder: Path, package: str) -> None:
        self.source = folder / package
        self._folder = folder
        shutil.copytree(SOURCES[package], self.source, ignore=shutil.ignore_patterns("__pycache__"))
        contract = _configuration()[LAYERED[package]]
        self._configuration = ConfigParser(interpolation=None)
        self._configuration["importlinter"] = {
            "root_package": package,
            "exclude_type_checking_imports": "True",
        }
        self._configuration["importlinter:contract:layers"] = dict(contract)

    def lint(self) -> subprocess.CompletedProcess[str]:
        """Run the linter on the copy."""
        file = self._folder / "importlinter.ini"
        with file.open("w") as opened:
            self._configuration.write(opened)
        return subprocess.run(
            [LINT, "--no-cache", "--config", file],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
        )


def test_the_page_of_the_architecture_has_the_layers_of_common() -> None:
    page = (
        (ROOT / "docs" / "architecture.md")
        .read_text()
        .partition("\n## Layers\n")[2]
        .partition("\n## ")[0]
    )
    shown = [
        re.findall(r"`(\w+)`", row.split("|")[2])
        for row in page.splitlines()
        if row.startswith("| ")
    ][1:]
    assert shown == [
        re.findall(r"\w+", layer)
        for layer in _configuration()[LAYERED["common"]]["layers"].split("\n")
        if layer
    ]


def test_every_package_is_linted_for_cycles_and_for_what_it_may_import() -> None:
    configuration = _configuration()
    roots = set(configuration["importlinter"]["root_packages"].split())
    packages = (
        configuration["importlinter:contract:packages"]["layers"]
        .replace("|", " ")
        .replace(" : ", " ")
        .split()
    )
    assert roots == set(SOURCES)
    assert set(packages) == roots
    assert set(configuration["importlinter:contract:acyclic"]["ancestors"].split()) == roots


def test_every_package_has_layers() -> None:
    assert set(SOURCES) == set(LAYERED)


def test_no_contract_makes_an_exception() -> None:
    for name, section in _configuration().items():
        assert not {"ignore_imports", "exhaustive_ignores", "skip_descendants"} & set(section), name
        assert section.get("exhaustive", "True") == "True", name
    assert all(_configuration()[name]["exhaustive"] == "True" for name in LAYERED.values())


@pytest.mark.parametrize("package", sorted(EFFECTS))
def test_every_module_of_a_service_that_does_not_read_or_write_is_held_to_purity(
    package: str,
) -> None:
    modules = {
        path.stem
        for path in SOURCES[package].iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    listed = _configuration()["importlinter:contract:pure"]["source_modules"].split()
    pure = {name.removeprefix(f"{package}.") for name in listed if name.startswith(f"{package}.")}
    assert modules - pure - {"__init__"} == set(EFFECTS[package].split())


@pytest.mark.parametrize(
    "package", ["cluster_reconciler", "service_reconciler", "traffic_manager", "job_reconciler"]
)
def test_the_reconcilers_have_the_same_modules(package: str) -> None:
    found = {path.stem for path in SOURCES[package].iterdir()}
    assert set(ROLES) <= found
    assert callable(importlib.import_module(f"{package}.plan").make_plan)


@pytest.mark.parametrize("package", sorted(LAYERED))
def test_a_module_that_no_layer_names_fails(package: str, tmp_path: Path) -> None:
    copy = Copy(tmp_path, package)
    (copy.source / "unlisted.py").write_text('"""A new module."""\n')
    found = copy.lint()
    assert found.returncode == 1, found.stderr
    assert f"- {package}.unlisted" in found.stdout


def test_a_package_as_it_is_passes(tmp_path: Path) -> None:
    found = Copy(tmp_path, "common").lint()
    assert found.returncode == 0, found.stdout + found.stderr


def test_an_import_of_a_layer_above_fails(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "common")
    with (copy.source / "kube" / "resources.py").open("a") as module:
        module.write("\nfrom common.bus import subjects\n")
    found = copy.lint()
    assert found.returncode == 1, found.stderr
    assert "common.kube is not allowed to import common.bus" in found.stdout
