"""A release: the images of an installation with their SBOM and provenance in one folder, and the manifests that pin their digests.

The provenance is an in-toto statement with the SLSA provenance predicate, both of version 1, as JSON.

The statement has no times and names no machine, so equal inputs give equal bytes. It is not signed; docs/how-to/verify.md describes how to sign it.

    FOLDER/IMAGE/image.tar, sbom.cdx.json, provenance.intoto.json
    FOLDER/kustomization.yaml       a component: `images:` with registry and digest
    FOLDER/values.yaml              the same for the Helm chart
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import yaml

from localcluster.errors import ClusterError, MisuseError
from localcluster.images import builder, dockerfile, plan, sbom
from localcluster.images.archive import TIMESTAMP
from localcluster.images.builder import DOCKERFILE, ImageArchive
from localcluster.images.dockerfile import BINARIES, Copy
from localcluster.progress import Progress

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
    temporary.write_bytes(
        state(image, source, inputs, bill=_sha256(image.path.with_name(sbom.FILE)))
    )
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
        "subject": [
            _resource(
                image.ref.rpartition(":")[0],
                (image.manifest or image.digest).removeprefix("sha256:"),
            )
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": _BUILD_TYPE,
                "externalParameters": external,
                "internalParameters": {"sourceDateEpoch": TIMESTAMP},
                "resolvedDependencies": [
                    commit,
                    *(
                        _resource(name, digest.removeprefix("sha256:"))
                        for name, digest in origin.bases.items()
                    ),
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
    return (
        f"git+https://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme == "https"
        else ""
    )


def _git(checkout: Path, *arguments: str) -> str | None:
    """Return what git prints; None if it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


NAMES: Final = "registry.invalid/raybus"
"""The prefix of all image names in manifests without a named registry; `.invalid` never resolves (RFC 2606)."""

IMAGES: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager", "nats")
"""The images of an installation."""
OPTIONAL: Final = ("notifications", "dashboard")
"""The images of components, which the Helm chart does not have."""

_REGISTRY: Final = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
)


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One image of a release."""

    name: str
    ref: str
    """REGISTRY/IMAGE@sha256:…"""
    archive: Path


def make(registry: str, folder: Path, *, progress: Progress, checkout: Path) -> list[Pinned]:
    """Build the images of a checkout that stands at a commit, without Docker, and write the release into `folder`."""
    check_registry(registry)
    source = read_source(checkout)
    if source is None:
        raise ClusterError(
            f"{checkout} differs from its commit; commit or remove what `git status` lists"
        )
    found = builder.ensure(
        (*IMAGES, *OPTIONAL), progress=progress, checkout=checkout, reproducible=True
    )
    for image in found.values():
        target = folder / image.target
        target.mkdir(parents=True, exist_ok=True)
        bill = sbom.beside(image.path)
        statement = beside(image, source, checkout, {})
        for path in (image.path, bill, statement):
            shutil.copyfile(path, target / path.name)
    digests = {image.target: image.manifest for image in found.values()}
    (folder / "kustomization.yaml").write_text(kustomization(registry, digests))
    (folder / "values.yaml").write_text(
        helm_values(registry, {name: digests[name] for name in IMAGES})
    )
    return [
        Pinned(
            name=name,
            ref=f"{registry}/{name}@{digest}",
            archive=folder / name / found[name].path.name,
        )
        for name, digest in digests.items()
    ]


def check_registry(registry: str) -> None:
    """Raise unless the text is a valid prefix of an image's name."""
    if not _REGISTRY.fullmatch(registry):
        raise MisuseError(
            f"--registry {registry}: write HOST[:PORT]/PATH without a scheme, a tag or a slash at the end"
        )


def kustomization(registry: str, digests: Mapping[str, str]) -> str:
    """Return a component that gives an overlay's images a registry and their digests."""
    images = [
        {"name": f"{NAMES}/{name}", "newName": f"{registry}/{name}", "digest": digest}
        for name, digest in digests.items()
    ]
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "images": images,
    }
    return yaml.safe_dump(component, sort_keys=False)


def helm_values(registry: str, digests: Mapping[str, str]) -> str:
    """Return the values that do the same for the chart."""
    return yaml.safe_dump(
        {"image": {"registry": registry, "digests": dict(digests)}}, sort_keys=False
    )
