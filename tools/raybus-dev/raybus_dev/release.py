"""`raybus-dev release`: everything for an installation without a network, in one file.

    raybus-VERSION.tar, raybus-VERSION.tar.sha256
        raybus-VERSION/
            SHA256SUMS                      of all other files: sha256sum --check SHA256SUMS
            raybus-VERSION.tgz              the Helm chart
            raybus-VERSION-py3-none-any.whl the command line
            deploy/                         CRDs, overlays, components and admission policies
            images/IMAGE/                   archive, SBOM and provenance of each image
            images/kustomization.yaml, values.yaml    registry and digests

The archive and the chart have no times of the build and no owners, and their files are in a fixed
order, so equal inputs give equal bytes.
"""

import argparse
import asyncio
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from common.version import VERSION
from generators.helm import description
from localcluster import binaries
from localcluster.errors import ClusterError, MisuseError
from localcluster.images import release
from localcluster.images.archive import TIMESTAMP
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from raybus_dev.wheel import build_wheel

NAME: Final = f"raybus-{VERSION}"
SUMS: Final = "SHA256SUMS"
CHART: Final = Path("deploy/helm/raybus")
APART: Final = ("deploy/helm/", "deploy/images/", "deploy/wheel/")
"""Folders of `deploy` that are in the release in another form, or not needed to install."""
IMAGES_ANNOTATION: Final = "artifacthub.io/images"


def package_chart(
    helm: Path, checkout: Path, folder: Path, images: Mapping[str, str] | None = None
) -> Path:
    """Package the chart with Helm and return the path of the package.

    `images` maps the names of images to their references, which Artifact Hub shows.
    """
    with tempfile.TemporaryDirectory() as temporary:
        chart = Path(temporary) / "raybus"
        shutil.copytree(checkout / CHART, chart)  # Replaces links by the files they point to.
        if images:
            file = chart / "Chart.yaml"
            file.write_text(add_images(file.read_text(), images))
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [helm, "package", chart, "--destination", folder],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(TIMESTAMP)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ClusterError(f"helm package: {done.stderr.strip()}")
    return folder / f"{NAME}.tgz"


def add_images(chart: str, images: Mapping[str, str]) -> str:
    """Return the text of a `Chart.yaml` with the images of a release as an annotation."""
    data = yaml.safe_load(chart)
    listed = [{"name": name, "image": ref} for name, ref in images.items()]
    data["annotations"][IMAGES_ANNOTATION] = yaml.safe_dump(listed, sort_keys=False)
    return description.dump(data)


def list_manifests(checkout: Path) -> dict[str, Path]:
    """Return the committed files of `deploy` that an installation applies, by their paths."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "deploy"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    )
    names = [name for name in done.stdout.split("\0") if name and not name.startswith(APART)]
    return {name: checkout / name for name in sorted(names)}


def list_release(folder: Path) -> dict[str, Path]:
    """Return the files in a folder, by their paths relative to the folder."""
    return {
        path.relative_to(folder).as_posix(): path
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_archive(target: Path, files: Mapping[str, Path]) -> str:
    """Write an archive of `files` (by path in the archive) and checksums; return its SHA-256.

    A file with the checksum of the archive is written beside it.
    """
    sums = "".join(f"{_compute_sha256(path)}  {name}\n" for name, path in sorted(files.items()))
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        _add(archive, SUMS, sums.encode())
        for name, path in sorted(files.items()):
            with path.open("rb") as stream:
                archive.addfile(_describe(name, path.stat().st_size), stream)
    digest = _compute_sha256(target)
    target.with_name(f"{target.name}.sha256").write_text(f"{digest}  {target.name}\n")
    return digest


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    archive.addfile(_describe(name, len(content)), io.BytesIO(content))


def _describe(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(f"{NAME}/{name}")
    info.size, info.mtime, info.mode = size, TIMESTAMP, 0o644
    return info


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def make(registry: str, folder: Path, *, progress: Progress, checkout: Path, helm: Path) -> Path:
    """Build images, chart and wheel, and write the archive into `folder`; return its path.

    Raises `MisuseError` for an invalid registry, `ClusterError` if the checkout has changes or a
    build fails.
    """
    content = folder / "release"
    shutil.rmtree(content, ignore_errors=True)
    pinned = release.make(registry, content / "images", progress=progress, checkout=checkout)
    images = {image.name: image.ref for image in pinned if image.name in release.IMAGES}
    package_chart(helm, checkout, content, images)
    build_wheel(checkout, content)
    target = folder / f"{NAME}.tar"
    write_archive(target, {**list_release(content), **list_manifests(checkout)})
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="raybus-dev release",
        description="Build images, chart and wheel into one archive, for a closed network.",
    )
    parser.add_argument(
        "--registry", required=True, help="registry of the images: HOST[:PORT]/PATH"
    )
    parser.add_argument("--to", type=Path, default=Path("build"), help="folder of the archive")
    options = parser.parse_args(arguments)
    settings, progress = LocalSettings.from_environment(), Progress.to_stderr()
    try:
        release.check_registry(options.registry)
        programs = asyncio.run(binaries.obtain([binaries.HELM], settings, progress))
        target = make(
            options.registry,
            options.to,
            progress=progress,
            checkout=settings.checkout,
            helm=programs.path(binaries.HELM),
        )
    except ClusterError as error:
        sys.stderr.write(f"raybus-dev release: {error}\n")
        return 2 if isinstance(error, MisuseError) else 1
    print(f"{target}  {target.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
