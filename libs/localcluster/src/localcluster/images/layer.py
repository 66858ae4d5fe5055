"""Turns a layer's folder into a tar that is the same for the same content: sorted, fixed times, numeric owners, hard links kept.

The folder has overlayfs form: a 0/0 character device means "deleted", an opaque attribute means "nothing from below shows". In
the tar these become `.wh.` entries (OCI image specification, "Layer Filesystem Changeset").
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from typing_extensions import Buffer, override

from localcluster.errors import ClusterError

TIMESTAMP = 1_735_689_600
"""The time of every file in every image (2025-01-01), in seconds since 1970: late enough for zip files.

It is the same in each commit, so a commit that changes no file of an image does not change its digest. Programs that write a time into a
file get it as SOURCE_DATE_EPOCH.
"""

WHITEOUT = ".wh."
"""The prefix of the name of an entry that means "deleted"."""
OPAQUE = ".wh..wh..opq"
"""An entry that hides everything below its folder."""

_OPAQUE = "trusted.overlay.opaque"
_CHUNK = 1 << 20
_PYC_MAGIC = 4
_PYC_HEADER = 8
_PYC_BY_HASH = 1


class _Hashing(io.BufferedWriter):
    """A file that digests what is written into it."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"), _CHUNK)
        self.digest = hashlib.sha256()

    @override
    def write(self, buffer: Buffer, /) -> int:
        self.digest.update(buffer)
        return super().write(buffer)


def write_tar(tree: Path, target: Path) -> str:
    """Write the layer and return its digest (the image configuration's diff id); a file that depends on the time is refused."""
    # Not in tarfile's mode for streams ("w|"): that copies as much as its buffer holds for each header.
    with _Hashing(target) as hashing, tarfile.open(fileobj=hashing, mode="w", format=tarfile.PAX_FORMAT) as tar:
        seen: dict[tuple[int, int], str] = {}
        for name, path in _walk(tree, ""):
            _add(tar, name, path, seen)
    return f"sha256:{hashing.digest.hexdigest()}"


def is_whiteout(info: os.stat_result) -> bool:
    """Return whether this entry means "deleted"."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(path: Path) -> bool:
    """Return whether this folder hides what lies below it."""
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
        tar.addfile(_entry(f"{folder}/{WHITEOUT}{last}".lstrip("/"), tarfile.REGTYPE))
        return
    entry = _entry(name, tarfile.REGTYPE)
    entry.mode = stat.S_IMODE(info.st_mode)
    entry.uid, entry.gid = info.st_uid, info.st_gid
    first = seen.setdefault((info.st_dev, info.st_ino), name) if info.st_nlink > 1 else name
    if stat.S_ISDIR(info.st_mode):
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
        if is_opaque(path):
            tar.addfile(_entry(f"{name}/{OPAQUE}", tarfile.REGTYPE))
    elif stat.S_ISLNK(info.st_mode):
        entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
        tar.addfile(entry)
    elif not stat.S_ISREG(info.st_mode):
        entry.type = tarfile.FIFOTYPE if stat.S_ISFIFO(info.st_mode) else _device(entry, info)
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
    """Raise ClusterError for a compiled Python file that names its source's time, which differs in each build (PEP 552)."""
    if not name.endswith(".pyc"):
        return
    with path.open("rb") as stream:
        header = stream.read(_PYC_HEADER)
    if not int.from_bytes(header[_PYC_MAGIC:], "little") & _PYC_BY_HASH:
        raise ClusterError(
            f"/{name} holds the time of its source, so no two builds would be the same; "
            "compile it with `python -m compileall -f --invalidation-mode unchecked-hash`"
        )


def _device(entry: tarfile.TarInfo, info: os.stat_result) -> bytes:
    entry.devmajor, entry.devminor = os.major(info.st_rdev), os.minor(info.st_rdev)
    return tarfile.CHRTYPE if stat.S_ISCHR(info.st_mode) else tarfile.BLKTYPE


def _entry(name: str, kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type = kind
    entry.mtime = TIMESTAMP
    return entry
