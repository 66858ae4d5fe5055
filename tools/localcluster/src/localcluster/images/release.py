"""A release: a folder with the images of an installation, and manifests that pin their digests.

Each image comes with its SBOM and its provenance. The provenance is an in-toto statement (version
1) with the SLSA provenance predicate (version 1) as JSON. It contains no times and no machine
names, so equal inputs give equal bytes. It is not signed; docs/how-to/verify.md describes how to
sign it.

    FOLDER/IMAGE/image.tar, sbom.cdx.json, provenance.intoto.json
    FOLDER/kustomization.yaml       a component: `images:` with registry and digests
    FOLDER/values.yaml              registry and digests for the Helm chart
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
    """The commit of a checkout that has no changes."""

    commit: str
    uri: str = ""
    """Public URI of the repository; empty if the checkout's remote has no https address."""


def read_source(checkout: Path) -> Source | None:
    """Return the commit of a checkout; None without a commit, or if files have changed since it."""
    commit = _run_git(checkout, "rev-parse", "HEAD")
    if not commit or _run_git(checkout, "status", "--porcelain"):
        return None
    return Source(
        commit=commit,
        uri=_remove_credentials(_run_git(checkout, "remote", "get-url", "origin") or ""),
    )


def write_provenance(
    image: ImageArchive, source: Source, checkout: Path, files: Mapping[str, Path]
) -> Path:
    """Write the provenance statement beside an image's archive, and return its path.

    The SBOM must exist already. `files` are the binaries that went into the image, by name.
    """
    inputs = read_inputs(image.target, checkout, files)
    target = image.path.with_name(FILE)
    temporary = target.with_suffix(".new")
    temporary.write_bytes(
        build_statement(
            image, source, inputs, bill=_compute_sha256(image.path.with_name(sbom.FILE))
        )
    )
    temporary.rename(target)
    return target


def read_inputs(target: str, checkout: Path, files: Mapping[str, Path]) -> dict[str, str]:
    """Return the SHA-256 of each single file that an image is built from, by name.

    These are the Dockerfile, lock files and binaries. Copied folders are left out, because the
    commit determines their files.
    """
    stages = dockerfile.parse((checkout / DOCKERFILE).read_text())
    needed = plan.list_needed(stages, plan.choose(stages, [target]))
    copies = [step for stage in needed for step in stage.steps if isinstance(step, Copy)]
    inputs = {str(DOCKERFILE): checkout / DOCKERFILE}
    for step in copies:
        for source in (source.strip("/") for source in step.sources):
            if not step.origin:
                inputs[source] = checkout / source
            elif step.origin == BINARIES:
                inputs[source] = files[source]
    return {name: _compute_sha256(path) for name, path in sorted(inputs.items()) if path.is_file()}


def build_statement(
    image: ImageArchive, source: Source, inputs: Mapping[str, str], *, bill: str
) -> bytes:
    """Return the provenance statement of an image as JSON.

    `inputs` are SHA-256 digests by file name; `bill` is the SHA-256 of the SBOM.
    """
    origin = image.origin
    external: Json = {"dockerfile": str(DOCKERFILE), "target": image.target}
    if origin.snapshot:
        external["debianMirror"] = origin.snapshot
    commit: Json = {"name": "source", "digest": {"gitCommit": source.commit}}
    if source.uri:
        commit["uri"] = source.uri
    document: Json = {
        "_type": "https://in-toto.io/Statement/v1",
        # Without a manifest digest (Docker leaves it to the registry), the image's id is used.
        "subject": [
            _describe_resource(
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
                        _describe_resource(name, digest.removeprefix("sha256:"))
                        for name, digest in origin.bases.items()
                    ),
                    *(_describe_resource(name, digest) for name, digest in inputs.items()),
                ],
            },
            "runDetails": {
                "builder": {"id": f"{_BUILDERS}/{origin.builder}"},
                "byproducts": [_describe_resource(sbom.FILE, bill)],
            },
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def _describe_resource(name: str, sha256: str) -> Json:
    return {"name": name, "digest": {"sha256": sha256}}


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remove_credentials(remote: str) -> str:
    """Return the URI of an https remote without credentials; empty for other remotes."""
    parts = urlsplit(remote)
    return (
        f"git+https://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme == "https"
        else ""
    )


def _run_git(checkout: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if it fails or git is not installed."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


NAMES: Final = "registry.invalid/raybus"
"""Prefix of image names in manifests without a registry; `.invalid` never resolves (RFC 2606)."""

IMAGES: Final = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
    "nats",
)
"""Images of every installation."""
OPTIONAL: Final = ("notifications", "dashboard")
"""Images of optional components, which the Helm chart does not include."""

_REGISTRY: Final = re.compile(
    r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
)


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """An image of a release, pinned to its digest."""

    name: str
    ref: str
    """Reference of the image: `REGISTRY/IMAGE@sha256:…`."""
    archive: Path


def make(registry: str, folder: Path, *, progress: Progress, checkout: Path) -> list[Pinned]:
    """Build the images without Docker, and write the release into `folder`.

    Return its images. Raises `MisuseError` for an invalid registry, `ClusterError` if the checkout
    has changes or a build fails.
    """
    check_registry(registry)
    source = read_source(checkout)
    if source is None:
        raise ClusterError(
            f"{checkout} differs from its commit; commit or remove what `git status` lists"
        )
    images = builder.ensure(
        (*IMAGES, *OPTIONAL), progress=progress, checkout=checkout, reproducible=True
    )
    for image in images.values():
        target = folder / image.target
        target.mkdir(parents=True, exist_ok=True)
        bill = sbom.write_sbom(image.path)
        statement = write_provenance(image, source, checkout, {})
        for path in (image.path, bill, statement):
            shutil.copyfile(path, target / path.name)
    digests = {image.target: image.manifest for image in images.values()}
    (folder / "kustomization.yaml").write_text(format_kustomization(registry, digests))
    (folder / "values.yaml").write_text(
        format_helm_values(registry, {name: digests[name] for name in IMAGES})
    )
    return [
        Pinned(
            name=name,
            ref=f"{registry}/{name}@{digest}",
            archive=folder / name / images[name].path.name,
        )
        for name, digest in digests.items()
    ]


def check_registry(registry: str) -> None:
    """Raise `MisuseError` unless the text can be the beginning of image names."""
    if not _REGISTRY.fullmatch(registry):
        raise MisuseError(
            f"--registry {registry}: write HOST[:PORT]/PATH without a scheme, a tag or a slash at "
            "the end"
        )


def format_kustomization(registry: str, digests: Mapping[str, str]) -> str:
    """Return a kustomize component, as YAML, that sets the registry and the digests of images.

    `digests` has the digest of each image by its name.
    """
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


def format_helm_values(registry: str, digests: Mapping[str, str]) -> str:
    """Return Helm values, as YAML, that set the registry and the digests of the chart's images."""
    return yaml.safe_dump(
        {"image": {"registry": registry, "digests": dict(digests)}}, sort_keys=False
    )
