"""The wheel of the command line has every package that it needs, and names every requirement of
these packages.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from raybus_cli.completion import Shell, build_script
from support.golden import Golden
from support.manifests import DEPLOY, ROOT

FOLDER = DEPLOY / "wheel"
COMMANDS = ("raybus", "raybus-dashboard", "raybus-watcher")
"""Packages with subcommands, and the one service that only `raybus up` starts."""


def read_project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


PROJECTS = {
    read_project(path.parent)["project"]["name"]: path.parent
    for pattern in ("libs/*/pyproject.toml", "services/*/pyproject.toml")
    for path in ROOT.glob(pattern)
}
"""Folders of this repository's packages by the name of their distribution."""
WHEEL = read_project(FOLDER)


def list_requirements(names: tuple[str, ...]) -> tuple[set[str], set[str]]:
    """Return the packages of this repository that the named ones need, and the requirements of all."""
    ours: set[str] = set()
    others: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in ours:
            continue
        ours.add(name)
        needed = read_project(PROJECTS[name])["project"]["dependencies"]
        waiting += [each for each in needed if each in PROJECTS]
        others |= {each for each in needed if each not in PROJECTS}
    return ours, others


def test_it_has_every_package_of_the_command_line() -> None:
    ours, _ = list_requirements(COMMANDS)
    sources = {
        path.resolve()
        for name in ours
        for path in PROJECTS[name].glob("src/*")
        if (path / "__init__.py").exists()
    }
    included = WHEEL["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {(FOLDER / source).resolve(): name for source, name in included.items()} == {
        path: path.name for path in sources
    }


def test_it_asks_an_index_only_for_the_requirements_of_these_packages() -> None:
    _, others = list_requirements(COMMANDS)
    assert WHEEL["project"]["dependencies"] == sorted(others)


def test_it_has_the_programs_of_the_command_line() -> None:
    assert WHEEL["project"]["scripts"] == read_project(PROJECTS["raybus"])["project"]["scripts"]


@pytest.mark.parametrize("shell", list(Shell))
def test_it_has_the_completion_script_of_each_shell(shell: Shell, golden: Golden) -> None:
    scripts = Golden(root=FOLDER / "completions", update=golden.update)
    scripts.check(f"raybus.{shell}", build_script(shell))
    shared = WHEEL["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert f"completions/raybus.{shell}" in shared


def test_every_package_has_the_version_of_the_wheel() -> None:
    assert WHEEL["project"]["dynamic"] == ["version"]
    where: dict[str, str] = WHEEL["tool"]["hatch"]["version"]
    found = re.search(where["pattern"], (FOLDER / where["path"]).read_text(), flags=re.MULTILINE)
    assert found is not None
    versions = {name: read_project(path)["project"]["version"] for name, path in PROJECTS.items()}
    assert versions == dict.fromkeys(PROJECTS, found["version"])
