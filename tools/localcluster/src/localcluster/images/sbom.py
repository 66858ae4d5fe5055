"""Writes the software bill of materials (SBOM) of an image beside its archive.

The format is CycloneDX 1.6 in JSON. The SBOM is read from the finished image, so it lists the
actual content whichever builder made the image, and is equal for equal images. It lists Python
distributions by their metadata, Debian packages by dpkg's status, and modules of Go programs. Since
Go 1.18, a program contains its modules as two length-prefixed strings, 32 bytes after a magic
number.
"""

import hashlib
import re
import uuid
from collections.abc import Iterator, Sequence
from email import message_from_string
from email.message import Message
from pathlib import Path
from typing import Any, Final

import msgspec

from localcluster.images import archive

_MAGIC: Final = b"\xff Go buildinf:"
_HEADER: Final = 32
_GUARD: Final = 16
"""Length in bytes of the markers before and after the list of modules in a Go program."""
_ALIGNMENT: Final = 16
_VARINT_BITS: Final = 7
_FIELDS: Final = 3
"""Minimum number of fields in a line of the list of modules: key, path, version."""


class Module(msgspec.Struct, frozen=True):
    """A Go module. `checksum` is its hash in go.sum; empty for the program's own module."""

    path: str
    version: str
    checksum: str


def read_modules(program: bytes) -> list[Module]:
    """Return the modules of a Go program; empty for a file that is no Go program."""
    start = _record(program)
    if start is None:
        return []
    _, after = _read_text(program, start)
    listed, _ = _read_text(program, after)
    return list(_parse(listed[_GUARD:-_GUARD].decode(errors="replace")))


def _record(program: bytes) -> int | None:
    at = -1
    while (at := program.find(_MAGIC, at + 1)) >= 0:
        if at % _ALIGNMENT == 0 and program[at + len(_MAGIC) + 1] & 2:
            return at + _HEADER
    return None


def _read_text(program: bytes, at: int) -> tuple[bytes, int]:
    """Read the string at position `at`; return it and the position after it.

    The string follows its length, which is encoded as a varint (7 bits per byte).
    """
    length = shift = 0
    while True:
        byte = program[at]
        length |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + _VARINT_BITS
        if byte < 1 << _VARINT_BITS:
            return program[at : at + length], at + length


def _parse(listed: str) -> Iterator[Module]:
    modules: list[Module] = []
    for line in listed.splitlines():
        key, *fields = line.split("\t")
        if len(fields) + 1 < _FIELDS:
            continue
        if key == "=>":  # replaces the module in the line before
            modules.pop()
        if key in {"mod", "dep", "=>"}:
            modules.append(
                Module(fields[0], fields[1], fields[2] if len(fields) > _FIELDS - 1 else "")
            )
    yield from modules


FILE: Final = "sbom.cdx.json"
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/raybus")
_STATUS: Final = "var/lib/dpkg/status"
_COPYRIGHT: Final = re.compile(r"usr/share/doc/([^/]+)/copyright")
_METADATA: Final = re.compile(r".*\.dist-info/METADATA")
_PROGRAM: Final = re.compile(r"usr/local/bin/[^/]+|[^/]+")
_LICENCE: Final = re.compile(r"^License: *(\S.*)$", re.MULTILINE)
_WANTED: Final = re.compile(
    rf"{_STATUS}|{_COPYRIGHT.pattern}|{_METADATA.pattern}|.*\.dist-info/RECORD|{_PROGRAM.pattern}"
)
_NO_LICENCE: Final = {"UNKNOWN", ""}
_MAX_NAME_LENGTH: Final = 100
"""Maximum length of a licence name. Some distributions have the whole licence text in its place."""

Json = dict[str, Any]
Files = dict[str, bytes]


def write_sbom(path: Path) -> Path:
    """Write the SBOM beside an image's archive unless it exists; return its path."""
    target = path.with_name(FILE)
    if not target.exists():
        temporary = target.with_suffix(".new")
        temporary.write_bytes(describe(path))
        temporary.rename(target)
    return target


def describe(path: Path) -> bytes:
    """Return the SBOM of the image in an archive as JSON."""
    image, digest = archive.read_name(path), archive.read_id(path)
    files = archive.read_files(path, _WANTED)
    components = [*_list_python(files), *_list_debian(files), *_list_go(files)]
    name, _, version = image.rpartition(":")
    subject: Json = {
        "type": "container",
        "bom-ref": image,
        "name": name,
        "version": version,
        "hashes": [_build_hash(digest.removeprefix("sha256:"))],
    }
    document: Json = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {"component": subject},
        "components": sorted(
            {component["bom-ref"]: component for component in components}.values(),
            key=lambda component: component["bom-ref"],
        ),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _list_python(files: Files) -> Iterator[Json]:
    for path in filter(_METADATA.fullmatch, files):
        meta = message_from_string(files[path].decode(errors="replace"))
        name, version = str(meta["Name"]), str(meta["Version"])
        component = _build_component(
            f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{version}",
            name,
            version,
            _list_licences(meta),
        )
        record = files.get(path.removesuffix("METADATA") + "RECORD")
        if record is not None:
            # RECORD has the hash of each file, so the hash of RECORD identifies the installed
            # files.
            component["properties"] = [
                {"name": "raybus:record:sha256", "value": hashlib.sha256(record).hexdigest()}
            ]
        yield component


def _list_licences(meta: Message) -> list[Json]:
    """Return the licence expression of a Python distribution, or else its licence names.

    CycloneDX does not allow both.
    """
    if expression := meta.get("License-Expression"):
        return [{"expression": expression}]
    classified = [
        classifier.rpartition(" :: ")[2]
        for classifier in meta.get_all("Classifier", [])
        if classifier.startswith("License ::")
    ]
    text = str(meta.get("License", "")).strip()
    named = (
        [text]
        if text not in _NO_LICENCE and "\n" not in text and len(text) <= _MAX_NAME_LENGTH
        else []
    )
    return _name_licences(classified or named)


def _list_debian(files: Files) -> Iterator[Json]:
    for paragraph in files.get(_STATUS, b"").decode(errors="replace").split("\n\n"):
        meta = message_from_string(paragraph)
        if "installed" not in str(meta.get("Status", "")).split():
            continue
        name, version = str(meta["Package"]), str(meta["Version"])
        text = files.get(f"usr/share/doc/{name}/copyright", b"").decode(errors="replace")
        licences = sorted(
            {
                licence.strip()
                for licence in _LICENCE.findall(text)
                if len(licence) <= _MAX_NAME_LENGTH
            }
        )
        reference = (
            f"pkg:deb/debian/{name}@{version.replace(':', '%3A')}?arch={meta['Architecture']}"
        )
        yield _build_component(reference, name, version, _name_licences(licences))


def _list_go(files: Files) -> Iterator[Json]:
    for path, content in files.items():
        if not _PROGRAM.fullmatch(path):
            continue
        for module in read_modules(content):
            component = _build_component(
                f"pkg:golang/{module.path}@{module.version}", module.path, module.version, []
            )
            component["properties"] = (
                [{"name": "raybus:go:sum", "value": module.checksum}] if module.checksum else []
            )
            yield component


def _build_component(reference: str, name: str, version: str, licences: list[Json]) -> Json:
    component: Json = {
        "type": "library",
        "bom-ref": reference,
        "name": name,
        "version": version,
        "purl": reference,
    }
    return component | ({"licenses": licences} if licences else {})


def _name_licences(licences: Sequence[str]) -> list[Json]:
    return [{"license": {"name": licence}} for licence in licences]


def _build_hash(content: str) -> Json:
    return {"alg": "SHA-256", "content": content}
