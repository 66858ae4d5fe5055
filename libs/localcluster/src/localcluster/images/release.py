"""A release: the images of an installation with their SBOM and provenance in one folder, and the manifests that pin their digests.

FOLDER/IMAGE/image.tar, sbom.cdx.json, provenance.intoto.json
FOLDER/kustomization.yaml       a component: `images:` with registry and digest
FOLDER/values.yaml              the same for the Helm chart
"""

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import yaml

from localcluster.errors import ClusterError, MisuseError
from localcluster.images import builder, provenance, sbom
from localcluster.progress import Progress

NAMES: Final = "registry.invalid/raybus"
"""The prefix of all image names in manifests without a named registry; `.invalid` never resolves (RFC 2606)."""

IMAGES: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager", "nats")
"""The images of an installation."""
OPTIONAL: Final = ("notifications", "dashboard")
"""The images of components, which the Helm chart does not have."""

_REGISTRY: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """One image of a release."""

    name: str
    ref: str
    """REGISTRY/IMAGE@sha256:…"""
    archive: Path


def make(registry: str, folder: Path, *, progress: Progress, checkout: Path) -> list[Pinned]:
    """Build the images of a checkout that stands at a commit, without Docker, and write the release into `folder`."""
    check_registry(registry)
    source = provenance.read_source(checkout)
    if source is None:
        raise ClusterError(f"{checkout} differs from its commit; commit or remove what `git status` lists")
    found = builder.ensure((*IMAGES, *OPTIONAL), progress=progress, checkout=checkout, reproducible=True)
    for image in found.values():
        target = folder / image.target
        target.mkdir(parents=True, exist_ok=True)
        bill = sbom.beside(image.path)
        statement = provenance.beside(image, source, checkout, {})
        for path in (image.path, bill, statement):
            shutil.copyfile(path, target / path.name)
    digests = {image.target: image.manifest for image in found.values()}
    (folder / "kustomization.yaml").write_text(kustomization(registry, digests))
    (folder / "values.yaml").write_text(helm_values(registry, {name: digests[name] for name in IMAGES}))
    return [
        Pinned(name=name, ref=f"{registry}/{name}@{digest}", archive=folder / name / found[name].path.name)
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
    component = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "images": images}
    return yaml.safe_dump(component, sort_keys=False)


def helm_values(registry: str, digests: Mapping[str, str]) -> str:
    """Return the values that do the same for the chart."""
    return yaml.safe_dump({"image": {"registry": registry, "digests": dict(digests)}}, sort_keys=False)
