"""An image with bash and a few programs of this machine, made without network, engine or root file
system.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

from localcluster import settings

NAME = "registry.invalid/raybus/test-shell:1"

_PROGRAMS = ("bash", "cat", "sleep")


def write(path: Path) -> Path:
    """Write the image as a docker-archive file."""
    programs = [Path(found) for program in _PROGRAMS if (found := shutil.which(program))]
    return write_programs(path, NAME, programs)


def write_programs(path: Path, name: str, programs: list[Path]) -> Path:
    """Write an image with some programs in `/bin`, and the libraries that they need."""
    layer = _layer(programs)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": settings.find_go_architecture(),
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "layer.tar", layer)
        _add(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def _layer(programs: list[Path]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for library in sorted({library for program in programs for library in _libraries(program)}):
            _add(archive, library.removeprefix("/"), Path(library).read_bytes())
        for program in programs:
            _add(archive, f"bin/{program.name}", program.read_bytes())
    return content.getvalue()


def _libraries(program: Path) -> list[str]:
    """Return the shared libraries of a program; a static one has none, and `ldd` fails for it."""
    listing = subprocess.run(
        ["ldd", str(program)], capture_output=True, text=True, check=False
    ).stdout
    return re.findall(r"(/\S+)", listing)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o755
    archive.addfile(entry, io.BytesIO(content))
