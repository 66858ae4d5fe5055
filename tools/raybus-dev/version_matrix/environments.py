"""The Python environments of rows: Ray from PyPI, and the packages of raybus on another Python."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from localcluster import processes
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from version_matrix.rows import PINNED_PYTHON, VersionRow

RAY_PYTHON: Final = "3.11"
"""The newest Python version for which PyPI has packages of all tested versions of Ray."""
EXTRAS: Final = "serve,default"
OLD_PACKAGES: Final = {
    "2.9.3": ("setuptools<81", "click<8.2"),
    "2.46.0": ("click<8.2", "protobuf<7"),
}
"""Version limits for packages, by version of Ray: newer releases break that version of Ray."""


async def ensure_ray(row: VersionRow, progress: Progress) -> None:
    """Install the Ray of a row into a virtual environment in the cache, unless it is there."""
    target = LocalSettings.from_environment().cache_root / "ray" / row.ray
    if not row.ray or target.exists():
        return
    passing = target.with_name(f".{row.ray}")
    shutil.rmtree(passing, ignore_errors=True)
    passing.parent.mkdir(parents=True, exist_ok=True)
    with progress.step(f"installing Ray {row.ray}", estimate=60):
        await _run_uv("venv", "--quiet", "--relocatable", "--python", RAY_PYTHON, str(passing))
        packages = [f"ray[{EXTRAS}]=={row.ray}", *OLD_PACKAGES.get(row.ray, ())]
        python = str(passing / "bin" / "python")
        await _run_uv("pip", "install", "--quiet", "--python", python, *packages)
    passing.replace(target)


def find_python(version: str) -> Path:
    """Return the interpreter of a Python version: pyenv's newest patch, else the one on PATH.

    pyenv comes first, because its shim on PATH finds only versions that are selected. `version` is
    a minor version. Raises `ClusterError` if there is no such interpreter.
    """
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    installed = sorted(root.glob(f"versions/{version}.*/bin/python{version}"), key=_read_patch)
    on_path = shutil.which(f"python{version}")
    candidates = [*reversed(installed), *([Path(on_path)] if on_path else [])]
    if not candidates:
        raise ClusterError(
            f"there is no Python {version}: put python{version} on PATH, or install it with pyenv"
        )
    return candidates[0]


def _read_patch(interpreter: Path) -> int:
    patch = interpreter.parents[1].name.rpartition(".")[2]
    return int(patch) if patch.isdecimal() else -1


async def ensure_python(row: VersionRow, checkout: Path, progress: Progress) -> Path:
    """Return the path of a row's Python, after installing raybus's packages from uv.lock."""
    if row.python == PINNED_PYTHON:
        return Path(sys.executable)
    target = checkout / "build" / f"python-{row.python}"
    interpreter = find_python(row.python)
    with progress.step(f"installing raybus for Python {row.python}", estimate=30):
        # These packages are built from the checkout, with the build tools of the environment.
        environment = os.environ | {"UV_PROJECT_ENVIRONMENT": str(target)}
        if not target.exists():
            await _run_uv("venv", "--quiet", "--python", str(interpreter), str(target))
            python = str(target / "bin" / "python")
            requirements = str(checkout / "requirements-build.lock")
            install = ("pip", "install", "--quiet", "--python", python, "--require-hashes")
            await _run_uv(*install, "-r", requirements)
        synced = ("sync", "--quiet", "--frozen", "--python", str(interpreter))
        await _run_uv(*synced, environment=environment)
    return target / "bin" / "python"


async def _run_uv(*arguments: str, environment: dict[str, str] | None = None) -> None:
    uv = str(Path(sys.executable).with_name("uv"))
    done = await processes.run([uv, *arguments], environment=environment)
    if done.code != 0:
        raise ClusterError(f"uv {arguments[0]}: {processes.find_last_line(done.errors)}")
