"""Nothing is installed with unknown content: each requirement has one version, and hashes."""

import re
import subprocess
import tomllib
from typing import Any

import pytest

from support.manifests import ROOT

LOCK: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text())
UV = ROOT / ".venv" / "bin" / "uv"


def test_every_locked_file_has_a_hash() -> None:
    packages = [package for package in LOCK["package"] if "registry" in package["source"]]
    assert packages
    for package in packages:
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        assert files, package["name"]
        assert all(file["hash"].startswith("sha256:") for file in files), package["name"]


def test_the_lock_names_the_public_index_alone() -> None:
    sources = {package["source"].get("registry") for package in LOCK["package"]} - {None}
    assert sources == {"https://pypi.org/simple"}


def test_the_lock_is_that_of_the_workspace() -> None:
    """Otherwise `uv sync --frozen` installs less than the packages declare."""
    done = subprocess.run(
        [UV, "lock", "--check", "--offline"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_first_install_has_the_locked_versions() -> None:
    export = subprocess.run(
        [
            *(UV, "export", "--quiet", "--frozen", "--only-group", "build", "--no-header"),
            *("--no-annotate", "--offline"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert export.stdout == (ROOT / "requirements-build.lock").read_text()


@pytest.mark.parametrize("name", ["Makefile", "deploy/images/Dockerfile"])
def test_every_requirement_is_installed_with_its_hash(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", text)
    assert installs
    assert [
        install
        for install in installs
        if "--require-hashes" not in install
        # The packages of this repository come from `/src`, and pip takes nothing from an index.
        and not ("--no-deps --no-build-isolation" in install and " /src" in install)
    ] == []


def test_the_version_of_ray_is_the_same_everywhere() -> None:
    text = (ROOT / "deploy/images/Dockerfile").read_text()
    version = re.search(r"ARG RAY_VERSION=(\S+)", text)
    assert version is not None
    assert [each["version"] for each in LOCK["package"] if each["name"] == "ray"] == [version[1]]
