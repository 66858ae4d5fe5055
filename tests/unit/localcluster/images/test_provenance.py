"""The statement beside an image has the shape that in-toto and SLSA prescribe, and lists what the image was made of."""

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest

from localcluster.images import release, sbom
from localcluster.images.builder import ImageArchive
from localcluster.images.release import Source
from localcluster.images.store import OWN_BUILDER, BuildOrigin

DIGEST: Final = {"type": "string", "pattern": "^[0-9a-f]{40}([0-9a-f]{24})?$"}
RESOURCE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "anyOf": [{"required": ["uri"]}, {"required": ["digest"]}, {"required": ["content"]}],
    "properties": {
        "name": {"type": "string"},
        "uri": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:"},
        "digest": {"type": "object", "minProperties": 1, "additionalProperties": DIGEST},
        "annotations": {"type": "object"},
    },
}
STATEMENT: Final[dict[str, Any]] = {
    # github.com/in-toto/attestation: spec/v1/statement.md, resource_descriptor.md; slsa.dev/spec/v1.0/provenance.
    "type": "object",
    "additionalProperties": False,
    "required": ["_type", "subject", "predicateType", "predicate"],
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {"type": "array", "minItems": 1, "items": {**RESOURCE, "required": ["digest"]}},
        "predicateType": {"const": "https://slsa.dev/provenance/v1"},
        "predicate": {
            "type": "object",
            "additionalProperties": False,
            "required": ["buildDefinition", "runDetails"],
            "properties": {
                "buildDefinition": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["buildType", "externalParameters"],
                    "properties": {
                        "buildType": {"type": "string", "pattern": "^https://"},
                        "externalParameters": {"type": "object", "minProperties": 1},
                        "internalParameters": {"type": "object"},
                        "resolvedDependencies": {"type": "array", "items": RESOURCE},
                    },
                },
                "runDetails": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["builder"],
                    "properties": {
                        "builder": {
                            "type": "object",
                            "required": ["id"],
                            "properties": {"id": {"type": "string", "pattern": "^https://"}},
                        },
                        "metadata": {"type": "object"},
                        "byproducts": {"type": "array", "items": RESOURCE},
                    },
                },
            },
        },
    },
}

DOCKERFILE: Final = """\
FROM debian:bookworm-slim@sha256:1 AS tools
COPY tools.lock /src/
FROM tools AS other
COPY other.lock /src/
FROM scratch AS app
LABEL raybus.image="registry.invalid/raybus/app:dev"
COPY --from=tools /src /src
COPY folder /folder
COPY --from=binaries /server /server
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout at its only commit."""
    root = tmp_path / "checkout"
    (root / "deploy/images").mkdir(parents=True)
    (root / "folder").mkdir()
    files = {
        "deploy/images/Dockerfile": DOCKERFILE,
        "tools.lock": "a==1",
        "other.lock": "b==2",
        "folder/file": "x",
    }
    for name, text in files.items():
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.test", "commit", "-q", "-m", "all")
    return root


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


def stated(checkout: Path, tmp_path: Path, origin: BuildOrigin) -> dict[str, Any]:
    """Return the statement of an image, after checking that it has the prescribed shape."""
    (tmp_path / "server").write_text("a server")
    (tmp_path / sbom.FILE).write_text("a bill")
    image = ImageArchive(
        target="app",
        ref="registry.invalid/raybus/app:dev",
        path=tmp_path / "image.tar",
        digest=f"sha256:{'1' * 64}",
        manifest=f"sha256:{'2' * 64}",
        origin=origin,
        built=True,
    )
    source = release.read_source(checkout)
    assert source
    path = release.write_provenance(image, source, checkout, {"server": tmp_path / "server"})
    found = msgspec.json.decode(path.read_bytes())
    jsonschema.validate(found, STATEMENT)
    return found


def hashed(text: str) -> dict[str, str]:
    return {"sha256": sha256(text.encode()).hexdigest()}


def test_it_names_commit_bases_and_lock_files(checkout: Path, tmp_path: Path) -> None:
    origin = BuildOrigin(builder=OWN_BUILDER, bases={"debian:bookworm-slim": f"sha256:{'3' * 64}"})
    found = stated(checkout, tmp_path, origin)

    assert found["subject"] == [
        {"name": "registry.invalid/raybus/app", "digest": {"sha256": "2" * 64}}
    ]
    assert found["predicate"]["buildDefinition"]["externalParameters"] == {
        "dockerfile": "deploy/images/Dockerfile",
        "target": "app",
    }
    assert found["predicate"]["buildDefinition"]["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": git(checkout, "rev-parse", "HEAD")}},
        {"name": "debian:bookworm-slim", "digest": {"sha256": "3" * 64}},
        {"name": "deploy/images/Dockerfile", "digest": hashed(DOCKERFILE)},
        {"name": "server", "digest": hashed("a server")},
        {"name": "tools.lock", "digest": hashed("a==1")},
    ]
    assert found["predicate"]["runDetails"] == {
        "builder": {"id": "https://raybus.io/images/builders/raybus"},
        "byproducts": [{"name": "sbom.cdx.json", "digest": hashed("a bill")}],
    }


def test_it_names_the_mirror_that_the_user_chose(checkout: Path, tmp_path: Path) -> None:
    mirror = "http://s.test/archive/debian/20261101T000000Z"
    found = stated(checkout, tmp_path, BuildOrigin(builder=OWN_BUILDER, bases={}, snapshot=mirror))

    assert found["predicate"]["buildDefinition"]["externalParameters"]["debianMirror"] == mirror


def test_the_same_image_gives_the_same_bytes(checkout: Path, tmp_path: Path) -> None:
    origin = BuildOrigin(builder=OWN_BUILDER, bases={})
    stated(checkout, tmp_path, origin)
    first = (tmp_path / release.FILE).read_bytes()
    stated(checkout, tmp_path, origin)
    assert (tmp_path / release.FILE).read_bytes() == first


@pytest.mark.parametrize(
    ("remote", "uri"),
    [
        ("https://user:secret@git.test/team/raybus.git", "git+https://git.test/team/raybus.git"),
        ("git@git.test:team/raybus.git", ""),
        ("/srv/git/raybus", ""),
    ],
)
def test_only_a_public_place_of_the_source_is_named(checkout: Path, remote: str, uri: str) -> None:
    git(checkout, "remote", "add", "origin", remote)

    assert release.read_source(checkout) == Source(
        commit=git(checkout, "rev-parse", "HEAD"), uri=uri
    )


def test_a_checkout_that_differs_from_its_commit_has_no_source(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "folder/new").write_text("not committed")

    assert release.read_source(checkout) is None
    assert release.read_source(tmp_path) is None
