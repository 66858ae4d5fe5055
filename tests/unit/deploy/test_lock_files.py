"""Nothing is installed with unknown content: every requirement of a lock file has a version and hashes."""

import re
from pathlib import Path

import pytest

from support.manifests import ROOT

LOCKS = sorted(ROOT.glob("requirements*.lock"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_every_requirement_has_one_version_and_a_hash(path: Path) -> None:
    text = path.read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert [
        line
        for line in lines
        if not re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", line)
    ] == []


@pytest.mark.parametrize("name", ["Makefile", "deploy/images/Dockerfile"])
def test_every_lock_file_is_installed_with_its_hashes(name: str) -> None:
    text = (ROOT / name).read_text()
    installs = [line for line in text.splitlines() if "pip install" in line and ".lock" in line]
    assert installs
    assert [line for line in installs if "--require-hashes" not in line] == []


def test_no_image_installs_a_package_of_an_index_without_its_hash() -> None:
    """The packages of this repository come from `/src`, and pip then takes nothing from an index."""
    text = (ROOT / "deploy/images/Dockerfile").read_text().replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", text)
    assert installs
    assert [
        each
        for each in installs
        if "--require-hashes" not in each
        and not ("--no-deps --no-build-isolation" in each and " /src" in each)
    ] == []


def test_the_version_of_ray_is_the_same_everywhere() -> None:
    text = (ROOT / "deploy/images/Dockerfile").read_text()
    version = re.search(r"ARG RAY_VERSION=(\S+)", text)
    assert version is not None
    assert f"\nray=={version[1]} " in (ROOT / "requirements-ray.lock").read_text()
