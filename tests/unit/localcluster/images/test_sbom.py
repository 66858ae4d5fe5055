"""The content of the bill of materials of an image."""

import tarfile
from collections.abc import Mapping
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from localcluster.images import archive, sbom
from localcluster.images.archive import Layer
from localcluster.images.dockerfile import ImageConfig

SITE = "opt/raybus/lib/python3.11/site-packages"
DEBIAN = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1

Package: login
Status: install ok installed
Architecture: amd64
Version: 1:4.13
"""
MODULES = "path\tcmd\nmod\texample.org/server\tv2.1.0\t\ndep\texample.org/old\tv1.0.0\th1:old=\n=>\texample.org/new\tv1.1.0\th1:new=\n"
LOWER = {
    "var/lib/dpkg/status": DEBIAN,
    "usr/share/doc/libc6/copyright": "Files: *\nLicense: LGPL-2.1+\n\nFiles: x\nLicense: GPL-2+\n",
    f"{SITE}/gone-1.0.dist-info/METADATA": "Name: gone\nVersion: 1.0\n",
}
UPPER = {
    f"{SITE}/.wh.gone-1.0.dist-info": "",
    f"{SITE}/Some_Thing-2.0.dist-info/METADATA": "Name: Some_Thing\nVersion: 2.0\nLicense-Expression: MIT\n",
    f"{SITE}/Some_Thing-2.0.dist-info/RECORD": "a,sha256=x,1\n",
    f"{SITE}/old-1.0.dist-info/METADATA": "Name: old\nVersion: 1.0\nClassifier: License :: OSI Approved :: BSD License\n",
    f"{SITE}/old-1.0.dist-info/LICENSE": "not asked for",
}


def a_layer(path: Path, files: Mapping[str, bytes | str]) -> Layer:
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, BytesIO(data))
    return Layer(path=path, digest=f"sha256:{sha256(path.read_bytes()).hexdigest()}")


def a_go_program() -> bytes:
    """Return the data that Go writes into a program: a header of 32 bytes, its version, and the
    modules between guards.
    """
    listed = b"g" * 16 + MODULES.encode() + b"g" * 16
    length = bytes([len(listed) & 0x7F | 0x80, len(listed) >> 7])
    return (
        b"\0" * 64 + b"\xff Go buildinf:" + b"\x08\x02" + b"\0" * 16 + b"\x04go1x" + length + listed
    )


def described(folder: Path) -> tuple[str, dict[str, Any]]:
    layers = [
        a_layer(folder / "1", LOWER),
        a_layer(folder / "2", {**UPPER, "usr/local/bin/server": a_go_program()}),
    ]
    written = archive.write(
        folder / "image.tar", "example.test/app:7", ImageConfig(), layers, architecture="amd64"
    )
    text = sbom.write_sbom(folder / "image.tar").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    return written.config, msgspec.json.decode(text)


def test_everything_that_is_in_the_image_is_named_with_its_licence(tmp_path: Path) -> None:
    _, found = described(tmp_path)
    assert {each["purl"]: each.get("licenses") for each in found["components"]} == {
        "pkg:deb/debian/libc6@2.36-9?arch=amd64": [
            {"license": {"name": each}} for each in ("GPL-2+", "LGPL-2.1+")
        ],
        "pkg:deb/debian/login@1%3A4.13?arch=amd64": None,
        "pkg:golang/example.org/new@v1.1.0": None,
        "pkg:golang/example.org/server@v2.1.0": None,
        "pkg:pypi/old@1.0": [{"license": {"name": "BSD License"}}],
        "pkg:pypi/some-thing@2.0": [{"expression": "MIT"}],
    }


def test_what_can_be_checked_has_its_hash(tmp_path: Path) -> None:
    digest, found = described(tmp_path)
    image = found["metadata"]["component"]
    assert (image["name"], image["version"]) == ("example.test/app", "7")
    assert image["hashes"] == [{"alg": "SHA-256", "content": digest.removeprefix("sha256:")}]
    properties = {each["name"]: each.get("properties") for each in found["components"]}
    record = sha256(UPPER[f"{SITE}/Some_Thing-2.0.dist-info/RECORD"].encode()).hexdigest()
    assert properties["Some_Thing"] == [{"name": "raybus:record:sha256", "value": record}]
    assert properties["example.org/new"] == [{"name": "raybus:go:sum", "value": "h1:new="}]


def test_the_same_image_gives_the_same_bytes(tmp_path: Path) -> None:
    described(tmp_path)
    written = (tmp_path / sbom.FILE).read_bytes()
    assert sbom.describe(tmp_path / "image.tar") == written
