"""The logs of Ray's pods in an archive of `raybus bundle`, and their index.

`raybus logs --bundle` finds logs by the index. An archive may come from anyone. Therefore its size
is limited, nothing is unpacked to the disk, and links in it are ignored.
"""

import gzip
import tarfile
import zlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from common import errors

FOLDER: Final = "logs"
INDEX: Final = f"{FOLDER}/index.json"
MAX_PODS: Final = 40
"""Maximum number of pods whose logs are kept; each pod takes several requests."""
MAX_LOG_SIZE: Final = 2 * 2**20
"""Maximum bytes of one log."""
MAX_SIZE: Final = 512 * 2**20
"""Maximum total size in bytes of the unpacked files of an archive."""
MAX_FILES: Final = 10_000
CHUNK_SIZE: Final = 2**16
"""Bytes to read after the last file. They include the end of the archive, where gzip verifies the
checksum: tar pads an archive only to blocks of 10 KiB.
"""
REMEDY: Final = "name an archive that 'raybus bundle' made"


class KeptLog(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The kept log of one container."""

    cluster: str
    pod: str
    node_type: str
    """`head` or `worker`."""
    group: str
    container: str
    file: str
    """Path of the log file, relative to the top folder of the archive."""


class Index(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The index of the kept logs, with the facts about pods by which `raybus logs` selects them."""

    made: datetime
    namespace: str
    service: str
    active: str
    pending: str
    lines: int
    """Number of lines to which each log was limited when it was collected."""
    logs: list[KeptLog]


class Archive(msgspec.Struct, frozen=True):
    """The logs of Ray's pods in an archive, by path, and their index."""

    index: Index
    texts: dict[str, bytes]


def read(path: Path) -> Archive:
    """Read the logs of an archive.

    Raise `InvalidSpec` for a file that is not an archive of `raybus bundle`.
    """
    try:
        with path.open("rb") as file:
            texts = _read_files(file, path)
    except (gzip.BadGzipFile, tarfile.TarError, EOFError, zlib.error, ValueError) as problem:
        raise errors.InvalidSpec(f"--bundle {path} is no tar.gz: {problem}; {REMEDY}") from problem
    except OSError as problem:
        raise errors.InvalidSpec(
            f"cannot read --bundle {path}: {problem.strerror or problem}; {REMEDY}"
        ) from problem
    if INDEX not in texts:
        raise errors.InvalidSpec(f"--bundle {path} has no logs of Ray's pods ({INDEX}); {REMEDY}")
    try:
        index = msgspec.json.decode(texts.pop(INDEX), type=Index)
    except msgspec.MsgspecError as problem:
        raise errors.InvalidSpec(
            f"--bundle {path}: {INDEX} cannot be read: {problem}; {REMEDY}"
        ) from problem
    return Archive(index, texts)


def _read_files(file: IO[bytes], path: Path) -> dict[str, bytes]:
    """Return the files below `FOLDER`, by their path relative to the top folder of the archive."""
    contents: dict[str, bytes] = {}
    with gzip.open(file) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as tar:
        for member in _list_members(tar, path):
            name = member.name.partition("/")[2]
            content = (
                tar.extractfile(member)
                if member.isreg() and name.startswith(f"{FOLDER}/")
                else None
            )
            if content is not None:
                contents[name] = content.read()
        unpacked.read(CHUNK_SIZE)  # raises for a truncated archive, whose checksum is missing
    return contents


def _list_members(tar: tarfile.TarFile, path: Path) -> Iterable[tarfile.TarInfo]:
    size = 0
    for number, member in enumerate(tar, start=1):
        size += member.size
        if number > MAX_FILES or size > MAX_SIZE:
            raise errors.InvalidSpec(
                f"--bundle {path} has more than {MAX_FILES} files or {MAX_SIZE // 2**20} MiB: it "
                "is not made by 'raybus bundle'"
            )
        yield member
