"""Writes and reads image archives.

`docker load`, `ctr images import` and `skopeo copy oci-archive:` accept the archives. A layer's
folder becomes a tar that is equal for equal content: entries are sorted, times are fixed, owners
are numeric, hard links are kept.

The folder has the form of an overlayfs upper folder: a character device 0/0 marks a deleted file,
and an opaque attribute hides a folder's content in lower layers. In the tar, both marks become
`.wh.` entries (OCI image specification, "Layer Filesystem Changeset").
"""

import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import Buffer, override

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import ImageConfig

TIMESTAMP = 1_735_689_600
"""Modification time of every file in every image, in seconds since 1970: 2025-01-01.

Zip files cannot express times before 1980. The time is the same in all commits, so a commit that
changes no file of an image does not change the image's digest. Programs that write a time into a
file get this one as SOURCE_DATE_EPOCH.
"""

WHITEOUT = ".wh."
"""Name prefix of an entry that marks a deleted file."""
OPAQUE = ".wh..wh..opq"
"""Name of an entry that hides the content of its folder in lower layers."""

_OPAQUE = "trusted.overlay.opaque"
_CHUNK = 1 << 20
_PYC_MAGIC = 4
_PYC_HEADER = 8
_PYC_BY_HASH = 1


class _Hashing(io.BufferedWriter):
    """A file that computes the SHA-256 of the bytes written to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"), _CHUNK)
        self.digest = hashlib.sha256()

    @override
    def write(self, buffer: Buffer, /) -> int:
        self.digest.update(buffer)
        return super().write(buffer)


def write_tar(tree: Path, target: Path) -> str:
    """Write an image layer, whose files are in the folder `tree`, as a tar; return its digest.

    The digest is the diff id in the image's configuration. Raises `ClusterError` for a compiled
    Python file that contains the modification time of its source.
    """
    # tarfile's stream mode ("w|") is not used, because it copies its whole buffer for each header.
    with (
        _Hashing(target) as hashing,
        tarfile.open(fileobj=hashing, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        seen: dict[tuple[int, int], str] = {}
        for name, path in _walk(tree, ""):
            _add(tar, name, path, seen)
    return f"sha256:{hashing.digest.hexdigest()}"


def is_whiteout(info: os.stat_result) -> bool:
    """Return whether an entry of an overlayfs upper folder marks a deleted file."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(path: Path) -> bool:
    """Return whether a folder hides the content that it has in lower layers."""
    try:
        return os.getxattr(path, _OPAQUE, follow_symlinks=False) == b"y"
    except OSError:
        return False


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for child in sorted(folder.iterdir()):
        name = f"{prefix}{child.name}"
        yield name, child
        if child.is_dir() and not child.is_symlink():
            yield from _walk(child, f"{name}/")


def _add(tar: tarfile.TarFile, name: str, path: Path, seen: dict[tuple[int, int], str]) -> None:
    info = path.lstat()
    if stat.S_ISSOCK(info.st_mode):
        return
    if is_whiteout(info):
        folder, _, last = name.rpartition("/")
        tar.addfile(_build_layer_entry(f"{folder}/{WHITEOUT}{last}".lstrip("/"), tarfile.REGTYPE))
        return
    entry = _build_layer_entry(name, tarfile.REGTYPE)
    entry.mode = stat.S_IMODE(info.st_mode)
    entry.uid, entry.gid = info.st_uid, info.st_gid
    first = seen.setdefault((info.st_dev, info.st_ino), name) if info.st_nlink > 1 else name
    if stat.S_ISDIR(info.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        if is_opaque(path):
            tar.addfile(_build_layer_entry(f"{name}/{OPAQUE}", tarfile.REGTYPE))
    elif stat.S_ISLNK(info.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(entry)
    elif not stat.S_ISREG(info.st_mode):
        entry.type = tarfile.FIFOTYPE if stat.S_ISFIFO(info.st_mode) else _build_device(entry, info)
        tar.addfile(entry)
    elif first != name:
        entry.type, entry.linkname = tarfile.LNKTYPE, first
        tar.addfile(entry)
    else:
        _refuse_source_time(name, path)
        entry.size = info.st_size
        with path.open("rb") as stream:
            tar.addfile(entry, stream)


def _refuse_source_time(name: str, path: Path) -> None:
    """Raise `ClusterError` for a compiled Python file that contains its source's time.

    The time differs in each build (PEP 552).
    """
    if not name.endswith(".pyc"):
        return
    with path.open("rb") as stream:
        header = stream.read(_PYC_HEADER)
    if not int.from_bytes(header[_PYC_MAGIC:], "little") & _PYC_BY_HASH:
        raise ClusterError(
            f"/{name} holds the time of its source, so no two builds would be the same; "
            "compile it with `python -m compileall -f --invalidation-mode unchecked-hash`"
        )


def _build_device(entry: tarfile.TarInfo, info: os.stat_result) -> bytes:
    entry.devmajor, entry.devminor = os.major(info.st_rdev), os.minor(info.st_rdev)
    return tarfile.CHRTYPE if stat.S_ISCHR(info.st_mode) else tarfile.BLKTYPE


def _build_layer_entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mtime = TIMESTAMP
    return entry


_OCI: Final = "application/vnd.oci.image"
_CONTAINERD_NAME: Final = "io.containerd.image.name"
_INDEX: Final = "index.json"
_CREATED: Final = datetime.fromtimestamp(TIMESTAMP, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The tar file of a layer, and its digest."""

    path: Path
    digest: str


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of an image whose archive was written."""

    config: str
    """Digest of the image's configuration. It is the image's id in Docker and containerd."""
    manifest: str
    """Digest of the image in a registry, for `NAME@sha256:…`."""


class _Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """An entry of the file manifest.json in a Docker archive."""

    config: str
    repo_tags: tuple[str, ...]
    layers: tuple[str, ...]


class _Descriptor(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The description of a stored blob (OCI image specification, "descriptor")."""

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


def write(
    target: Path, image: str, config: ImageConfig, layers: Sequence[Layer], *, architecture: str
) -> Written:
    """Write an archive that is both an OCI image layout and a Docker archive.

    `image` is the name with its tag. Return the image's digests.
    """
    # Not compressed, because the digest would depend on the version of the compressor.
    stored = tuple(
        _Descriptor(
            media_type=f"{_OCI}.layer.v1.tar", digest=layer.digest, size=layer.path.stat().st_size
        )
        for layer in layers
    )
    document = _build_configuration(config, layers, architecture)
    described = _describe(f"{_OCI}.config.v1+json", document)
    manifest = msgspec.json.encode(_OciManifest(config=described, layers=stored))
    # containerd reads the name from its own annotation, other programs read the tag from the
    # standard one.
    names = {_CONTAINERD_NAME: image, "org.opencontainers.image.ref.name": image.rpartition(":")[2]}
    named = msgspec.structs.replace(
        _describe(f"{_OCI}.manifest.v1+json", manifest), annotations=names
    )
    docker = _Manifest(
        config=_build_blob_path(described.digest),
        repo_tags=(image,),
        layers=tuple(_build_blob_path(layer.digest) for layer in stored),
    )
    with tarfile.open(target, mode="w") as tar:
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        _add_bytes(tar, _INDEX, msgspec.json.encode(_Index(manifests=(named,))))
        _add_bytes(tar, "manifest.json", msgspec.json.encode([docker]))
        _add_bytes(tar, _build_blob_path(described.digest), document)
        _add_bytes(tar, _build_blob_path(named.digest), manifest)
        for layer in {layer.digest: layer for layer in layers}.values():
            with layer.path.open("rb") as stream:
                tar.addfile(
                    _build_entry(_build_blob_path(layer.digest), layer.path.stat().st_size), stream
                )
    return Written(config=described.digest, manifest=named.digest)


def read_id(path: Path) -> str:
    """Return the id of the image in an archive, as `sha256:…`."""
    name = _read_manifest(path).config.rsplit("/", 1)[-1].removesuffix(".json")
    return f"sha256:{name}"


def read_manifest_digest(path: Path) -> str:
    """Return the digest that an archive's image has in a registry; empty if it is not known."""
    with tarfile.open(path) as tar:
        index = tar.extractfile(_INDEX) if _INDEX in tar.getnames() else None
        return msgspec.json.decode(index.read(), type=_Index).manifests[0].digest if index else ""


def read_name(path: Path) -> str:
    """Return the name and tag of the image in an archive."""
    return _read_manifest(path).repo_tags[0]


def read_files(path: Path, wanted: re.Pattern[str]) -> dict[str, bytes]:
    """Return the content of an image's files whose path matches `wanted` completely, by path.

    Files that a higher layer deletes are left out.
    """
    entries: dict[str, bytes] = {}
    with tarfile.open(path) as tar:
        for name in _read_manifest(path).layers:
            with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                _apply_layer(layer, entries, wanted)
    return entries


def unpack(paths: Sequence[Path], tree: Path) -> dict[str, str]:
    """Unpack images into the folder `tree`, and return the environment of the last one.

    Files of later images replace those of earlier ones. A layer that several images share is
    unpacked once.
    """
    unpacked = set[str]()
    environment: dict[str, str] = {}
    for path in paths:
        manifest = _read_manifest(path)
        with tarfile.open(path) as tar:
            for name in manifest.layers:
                if name not in unpacked:
                    with tarfile.open(fileobj=tar.extractfile(name)) as layer:
                        _unpack_layer(layer, tree)
                unpacked.add(name)
            config = tar.extractfile(manifest.config)
            assert config is not None
            settings = msgspec.json.decode(config.read())["config"]
            variables: list[str] = settings["Env"] or []
        environment = dict(variable.split("=", 1) for variable in variables)
    return environment


def _unpack_layer(layer: tarfile.TarFile, tree: Path) -> None:
    brought: list[tarfile.TarInfo] = []
    for member in layer:
        folder, _, name = member.name.rpartition("/")
        if name == OPAQUE:
            # The folder may be new in this layer.
            for path in (tree / folder).glob("*"):
                _remove(path)
        elif name.startswith(WHITEOUT):
            _remove(tree / folder / name.removeprefix(WHITEOUT))
        else:
            brought.append(member)
    # Pythons that check members by default would refuse links to absolute paths.
    layer.extraction_filter = lambda member, _folder: member
    layer.extractall(tree, brought)  # noqa: S202  (the archive is one of ours)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _apply_layer(
    layer: tarfile.TarFile, entries: dict[str, bytes], wanted: re.Pattern[str]
) -> None:
    """Apply one layer to `entries`, the matching files of the layers below."""
    brought: dict[str, bytes] = {}
    for member in layer:
        member_path = member.name.removeprefix("./")
        folder, slash, name = member_path.rpartition("/")
        if name.startswith(WHITEOUT):
            gone = folder if name == OPAQUE else f"{folder}{slash}{name.removeprefix(WHITEOUT)}"
            for path in [path for path in entries if path == gone or path.startswith(f"{gone}/")]:
                del entries[path]
        elif wanted.fullmatch(member_path) and (stream := layer.extractfile(member)) is not None:
            brought[member_path] = stream.read()
    entries.update(brought)


def _read_manifest(path: Path) -> _Manifest:
    try:
        with tarfile.open(path) as tar:
            member = tar.extractfile("manifest.json")
            content = member.read() if member else b""
        return msgspec.json.decode(content, type=list[_Manifest])[0]
    except (tarfile.TarError, KeyError, IndexError, msgspec.MsgspecError) as error:
        raise ClusterError(
            f"{path} is no image archive ({error}); remove it and build again"
        ) from None


def _build_configuration(config: ImageConfig, layers: Sequence[Layer], architecture: str) -> bytes:
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


def _build_blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add_bytes(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_build_entry(name, len(content)), io.BytesIO(content))


def _build_entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = TIMESTAMP
    return entry
