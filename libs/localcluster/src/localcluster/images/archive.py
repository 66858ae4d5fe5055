"""Writes and reads image archives, which `docker load`, `ctr images import` and `skopeo copy oci-archive:` take."""

import hashlib
import io
import re
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import Config
from localcluster.images.layer import OPAQUE, TIMESTAMP, WHITEOUT

_OCI: Final = "application/vnd.oci.image"
_CONTAINERD_NAME: Final = "io.containerd.image.name"
_INDEX: Final = "index.json"
_CREATED: Final = datetime.fromtimestamp(TIMESTAMP, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's tar and its digest."""

    path: Path
    digest: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The two digests of an image."""

    config: str
    """The image's id in Docker and containerd."""
    manifest: str
    """The image's digest in a registry, for `NAME@sha256:…`."""


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An entry of Docker's manifest.json."""

    config: str
    repo_tags: tuple[str, ...]
    layers: tuple[str, ...]


class _Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reference to a blob, as the OCI image specification has it."""

    media_type: str
    digest: str
    size: int
    annotations: dict[str, str] = {}


class _OciManifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 2
    media_type: str = f"{_OCI}.manifest.v1+json"
    config: _Descriptor
    layers: tuple[_Descriptor, ...]


class _Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    schema_version: int = 2
    media_type: str = f"{_OCI}.index.v1+json"
    manifests: tuple[_Descriptor, ...]


def write(target: Path, image: str, config: Config, layers: Sequence[Layer], *, architecture: str) -> Written:
    """Write the archive, which is an OCI image layout and one of Docker's at once, and return the image's digests."""
    # Not compressed: the digest would change with the version of the compressor.
    stored = tuple(
        _Descriptor(media_type=f"{_OCI}.layer.v1.tar", digest=layer.digest, size=layer.path.stat().st_size)
        for layer in layers
    )
    document = _configuration(config, layers, architecture)
    described = _describe(f"{_OCI}.config.v1+json", document)
    manifest = msgspec.json.encode(_OciManifest(config=described, layers=stored))
    # containerd takes the name from its own annotation, other programs the tag from the standard one.
    names = {_CONTAINERD_NAME: image, "org.opencontainers.image.ref.name": image.rpartition(":")[2]}
    named = msgspec.structs.replace(_describe(f"{_OCI}.manifest.v1+json", manifest), annotations=names)
    docker = _Manifest(
        config=_blob(described.digest), repo_tags=(image,), layers=tuple(_blob(each.digest) for each in stored)
    )
    with tarfile.open(target, mode="w") as tar:
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_bytes(tar, _INDEX, msgspec.json.encode(_Index(manifests=(named,))))
        _add_bytes(tar, "manifest.json", msgspec.json.encode([docker]))
        _add_bytes(tar, _blob(described.digest), document)
        _add_bytes(tar, _blob(named.digest), manifest)
        for layer in {each.digest: each for each in layers}.values():
            with layer.path.open("rb") as stream:
                tar.addfile(_entry(_blob(layer.digest), layer.path.stat().st_size), stream)
    return Written(config=described.digest, manifest=named.digest)


def read_id(path: Path) -> str:
    """Return the id of the archive's image."""
    name = _manifest(path).config.rsplit("/", 1)[-1].removesuffix(".json")
    return f"sha256:{name}"


def read_manifest_digest(path: Path) -> str:
    """Return the digest that the archive's image has in a registry; empty if only the registry can know it."""
    with tarfile.open(path) as tar:
        index = tar.extractfile(_INDEX) if _INDEX in tar.getnames() else None
        return msgspec.json.decode(index.read(), type=_Index).manifests[0].digest if index else ""


def read_name(path: Path) -> str:
    """Return the name and tag of the archive's image."""
    return _manifest(path).repo_tags[0]


def read_files(path: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Return the files of the archive's image with a matching path; files that a higher layer deletes are left out."""
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
            "created": _CREATED,
            "config": container,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": _CREATED, "created_by": "raybus images build"} for _ in layers],
        },
        order="deterministic",
    )


def _describe(media_type: str, content: bytes) -> _Descriptor:
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return _Descriptor(media_type=media_type, digest=digest, size=len(content))


def _blob(digest: str) -> str:
    """Return the place of a blob in the archive."""
    return f"blobs/{digest.replace(':', '/')}"


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_entry(name, len(content)), io.BytesIO(content))


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = TIMESTAMP
    return entry
