"""Builds a target with Docker's buildx where it is available."""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import BINARIES
from localcluster.progress import Step

_SHOWN = 60
_TAIL = 6


def answers() -> bool:
    """Return whether a Docker engine with buildx is running here."""
    if not shutil.which("docker"):
        return False
    questions = (["docker", "buildx", "version"], ["docker", "info", "--format", "{{.ServerVersion}}"])
    try:
        return all(
            subprocess.run(ask, capture_output=True, check=False, timeout=10).returncode == 0 for ask in questions
        )
    except subprocess.TimeoutExpired:
        return False


def build(checkout: Path, target: str, image: str, written: Path, *, files: Mapping[str, Path], shown: Step) -> None:
    """Build one target and write its archive."""
    with tempfile.TemporaryDirectory(prefix="raybus-binaries-") as folder:
        for name, path in files.items():
            shutil.copy2(path, Path(folder) / name)
        command = ["docker", "buildx", "build", "--progress=plain", "--target", target, "--tag", image]
        command += ["--file", str(checkout / "deploy/images/Dockerfile"), "--build-context", f"{BINARIES}={folder}"]
        command += ["--output", f"type=docker,dest={written}", str(checkout)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            lines: list[str] = []
            for line in process.stdout or ():
                lines = [*lines[1 - _TAIL :], line.rstrip()]
                shown.note(line.strip()[:_SHOWN])
        if process.returncode:
            raise ClusterError(f"docker buildx build --target {target} failed: {' | '.join(lines)}")
