"""One of our images, built twice from the packages of Debian and PyPI, has the same digest.

The builds use two checkouts and two caches. They need root and the registries.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from localcluster.images import archive, builder
from localcluster.images.archive import TIMESTAMP
from localcluster.images.builder import ImageArchive
from localcluster.progress import Progress
from support.manifests import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long_running,
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mounts need root"),
]

TARGET = os.environ.get("IMAGE", "nats")
"""The smallest image of an installation."""
COPIED = ("deploy/images", "libs/common", "libs/nats-admin", "services")
LOCKED = ("pyproject.toml", "requirements-build.lock", "uv.lock")


def built(folder: Path, *, files_from: int, monkeypatch: pytest.MonkeyPatch) -> ImageArchive:
    """Build the image from a copy of this checkout with an empty cache.

    All files get the time `files_from`, in seconds.
    """
    checkout = folder / "checkout"
    for name in COPIED:
        shutil.copytree(
            ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in LOCKED:
        shutil.copyfile(ROOT / name, checkout / name)
    for path in checkout.rglob("*"):
        os.utime(path, (files_from, files_from))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    progress = Progress.to_stderr()
    return builder.ensure([TARGET], progress=progress, checkout=checkout, reproducible=True)[TARGET]


def test_two_builds_have_one_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = built(tmp_path / "1", files_from=1_000_000_000, monkeypatch=monkeypatch)
    shutil.rmtree(tmp_path / "1/cache/raybus/images/layers")
    second = built(tmp_path / "2", files_from=1_700_000_000, monkeypatch=monkeypatch)

    assert first.origin == second.origin
    assert first.manifest == second.manifest
    # Both builds may be of one day, which is all that this file knows.
    shadow = archive.read_files(second.path, re.compile("etc/shadow"))["etc/shadow"].decode()
    assert {line.split(":")[2] for line in shadow.splitlines()} == {str(TIMESTAMP // 86_400)}
