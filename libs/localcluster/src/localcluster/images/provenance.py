"""The provenance of an image: an in-toto statement with the SLSA provenance predicate, both of version 1, as JSON beside its archive.

The statement has no times and names no machine, so equal inputs give equal bytes. It is not signed; docs/how-to/verify.md describes how to sign it.
"""

import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from localcluster.images import dockerfile, plan, sbom
from localcluster.images.builder import DOCKERFILE, ImageArchive
from localcluster.images.dockerfile import BINARIES, Copy
from localcluster.images.layer import TIMESTAMP

FILE: Final = "provenance.intoto.json"
_BUILD_TYPE: Final = "https://raybus.io/images/dockerfile/v1"
_BUILDERS: Final = "https://raybus.io/images/builders"

Json = dict[str, Any]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that a checkout stands at, without a change."""

    commit: str
    uri: str = ""
    """Where it can be fetched, if the checkout knows a public place."""


def read_source(checkout: Path) -> Source | None:
    """Return the commit of a checkout; None if there is none or if files differ from it."""
    commit = _git(checkout, "rev-parse", "HEAD")
    if not commit or _git(checkout, "status", "--porcelain"):
        return None
    return Source(commit=commit, uri=_public(_git(checkout, "remote", "get-url", "origin") or ""))


def beside(image: ImageArchive, source: Source, checkout: Path, files: Mapping[str, Path]) -> Path:
    """Write the statement beside an image's archive, after its SBOM, and return its path; `files` are the binaries by name."""
    inputs = read_inputs(image.target, checkout, files)
    target = image.path.with_name(FILE)
    temporary = target.with_suffix(".new")
    temporary.write_bytes(state(image, source, inputs, bill=_sha256(image.path.with_name(sbom.FILE))))
    temporary.rename(target)
    return target


def read_inputs(target: str, checkout: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each single file that decides what an image holds: the Dockerfile, lock files, binaries.

    Folders that are copied are left out: the commit has their files.
    """
    stages = dockerfile.parse((checkout / DOCKERFILE).read_text())
    needed = plan.needed(stages, plan.choose(stages, [target]))
    copies = [step for stage in needed for step in stage.steps if isinstance(step, Copy)]
    found = {str(DOCKERFILE): checkout / DOCKERFILE}
    for step in copies:
        for source in (each.strip("/") for each in step.sources):
            if not step.origin:
                found[source] = checkout / source
            elif step.origin == BINARIES:
                found[source] = files[source]
    return {name: _sha256(path) for name, path in sorted(found.items()) if path.is_file()}


def state(image: ImageArchive, source: Source, inputs: Mapping[str, str], *, bill: str) -> bytes:
    """Return the statement; `inputs` are SHA-256 by file name, `bill` is that of the SBOM."""
    origin = image.origin
    external: Json = {"dockerfile": str(DOCKERFILE), "target": image.target}
    if origin.snapshot:
        external["debianMirror"] = origin.snapshot
    commit: Json = {"name": "source", "digest": {"gitCommit": source.commit}}
    if source.uri:
        commit["uri"] = source.uri
    document: Json = {
        "_type": "https://in-toto.io/Statement/v1",
        # Docker leaves the image's digest to the registry; its id is known in any case.
        "subject": [_resource(image.ref.rpartition(":")[0], (image.manifest or image.digest).removeprefix("sha256:"))],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": external,
                "internalParameters": {"sourceDateEpoch": TIMESTAMP},
                "resolvedDependencies": [
                    commit,
                    *(_resource(name, digest.removeprefix("sha256:")) for name, digest in origin.bases.items()),
                    *(_resource(name, digest) for name, digest in inputs.items()),
                ],
            },
            "runDetails": {
                "builder": {"id": f"{_BUILDERS}/{origin.builder}"},
                "byproducts": [_resource(sbom.FILE, bill)],
            },
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _resource(name: str, sha256: str) -> Json:
    return {"name": name, "digest": {"sha256": sha256}}


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _public(remote: str) -> str:
    """Return the URI of a remote that is read by https, without the credentials that it may contain."""
    parts = urlsplit(remote)
    return f"git+https://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme == "https" else ""


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
