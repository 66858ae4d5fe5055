"""Writes and reads image archives in the form that `docker load` and `ctr images import` take."""

import hashlib
import io
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import Config
from localcluster.images.layer import OPAQUE, TIMESTAMP, WHITEOUT


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's tar and its digest."""

    path: Path
    digest: str


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    config: str
    repo_tags: tuple[str, ...]
    layers: tuple[str, ...]


def write(target: Path, image: str, config: Config, layers: Sequence[Layer], *, architecture: str) -> str:
    """Write the archive and return the image's id, the digest of its configuration."""
    document = _configuration(config, layers, architecture)
    digest = hashlib.sha256(document).hexdigest()
    names = tuple(f"{layer.digest.removeprefix('sha256:')}.tar" for layer in layers)
    manifest = _Manifest(config=f"{digest}.json", repo_tags=(image,), layers=names)
    with tarfile.open(target, mode="w") as tar:
        _add_bytes(tar, f"{digest}.json", document)
        for name, layer in zip(names, layers, strict=True):
            entry = _entry(name, layer.path.stat().st_size)
            with layer.path.open("rb") as stream:
                tar.addfile(entry, stream)
        _add_bytes(tar, "manifest.json", msgspec.json.encode([manifest]))
    return f"sha256:{digest}"


def read_id(path: Path) -> str:
    """Return the id of the archive's image."""
    name = _manifest(path).config.rsplit("/", 1)[-1].removesuffix(".json")
    return f"sha256:{name}"


def read_name(path: Path) -> str:
    """Return the name and tag of the archive's image."""
    return _manifest(path).repo_tags[0]


def read_files(path: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Return the files of the archive's image whose whole path matches; what a higher layer takes away is not there."""
    found: dict[str, bytes] = {}
    with tarfile.open(path) as tar:
        for name in _manifest(path).layers:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                _lay(layer, found, wanted)
    return found


def _lay(layer: tarfile.TarFile, found: dict[str, bytes], wanted: re.Pattern[str]) -> None:
    """Put one layer upon those below."""
    brought: dict[str, bytes] = {}
    for member in layer:
        place = member.name.removeprefix("./")
        folder, slash, name = place.rpartition("/")
        if name.startswith(WHITEOUT):
            gone = folder if name == OPAQUE else f"{folder}{slash}{name.removeprefix(WHITEOUT)}"
            for each in [each for each in found if each == gone or each.startswith(f"{gone}/")]:
                del found[each]
        elif wanted.fullmatch(place) and (stream := layer.extractfile(member)) is not None:
            brought[place] = stream.read()
    found.update(brought)


def _manifest(path: Path) -> _Manifest:
    try:
        with tarfile.open(path) as tar:
            member = tar.extractfile("manifest.json")
            content = member.read() if member else b""
        return msgspec.json.decode(content, type=list[_Manifest])[0]
    except (tarfile.TarError, KeyError, IndexError, msgspec.MsgspecError) as error:
        raise ClusterError(f"{path} is no image archive ({error}); remove it and build again") from None


def _configuration(config: Config, layers: Sequence[Layer], architecture: str) -> bytes:
    """Return the OCI image configuration."""
    container = {
        "Env": [f"{key}={value}" for key, value in config.env.items()],
        "User": config.user,
        "WorkingDir": config.workdir,
        "Entrypoint": list(config.entrypoint) or None,
        "Cmd": list(config.command) or None,
        "Labels": config.labels,
    }
    return msgspec.json.encode(
        {
            "architecture": architecture,
            "os": "linux",
            "created": "2025-01-01T00:00:00Z",
            "config": container,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": "2025-01-01T00:00:00Z", "created_by": "raybus images build"} for _ in layers],
        },
        order="deterministic",
    )


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = TIMESTAMP
    return entry
