"""A release in one archive: its sums, its contents, and the images that chart and overlay run.

The images are built by raybus's own builder, which needs root and the registries of Debian and
PyPI. They are those of the last commit, because a release has no uncommitted files.
"""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from common.version import VERSION
from localcluster import binaries
from localcluster.images.release import IMAGES, OPTIONAL
from localcluster.progress import Progress
from raybus_dev import release
from support import manifests
from support.manifests import ROOT, Document
from support.servers.programs import prepared

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long_running,
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mounts need root"),
]

REGISTRY = "registry.internal/raybus"


def run(folder: Path, *command: str | Path) -> str:
    """Run a command that must succeed in a folder; return what it prints."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a release, check it and unpack it, with the commands of docs/installation.md."""
    folder = tmp_path_factory.mktemp("release")
    checkout = folder / "checkout"
    run(folder, "git", "clone", "--quiet", ROOT, checkout)
    target = release.make(
        REGISTRY,
        folder / "build",
        progress=Progress.to_stderr(),
        checkout=checkout,
        helm=prepared(binaries.HELM),
    )
    assert target.name == f"raybus-{VERSION}.tar"
    inside = folder / "inside"
    inside.mkdir()
    for path in (target, target.with_name(f"{target.name}.sha256")):
        path.rename(inside / path.name)
    shutil.rmtree(folder / "build")
    shutil.rmtree(checkout)
    run(inside, "sha256sum", "--check", f"{target.name}.sha256")
    run(inside, "tar", "-xf", target.name)
    (inside / target.name).unlink()
    content = inside / target.stem
    run(content, "sha256sum", "--check", "--quiet", "SHA256SUMS")
    yield content
    shutil.rmtree(folder)


def read_digests(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return the digest of each image's manifest, from the index of its archive."""
    digests: dict[str, str] = {}
    for name in names:
        with tarfile.open(folder / "images" / name / "image.tar") as archive:
            index = archive.extractfile("index.json")
            assert index is not None
            (manifest,) = json.load(index)["manifests"]
        digests[name] = manifest["digest"]
    return digests


def list_images(documents: list[Document]) -> set[str]:
    return {container["image"] for container in manifests.containers(documents).values()}


def test_it_has_the_sum_of_every_file(unpacked: Path) -> None:
    lines = (unpacked / "SHA256SUMS").read_text().splitlines()
    files = {
        path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()
    }
    assert {line.split("  ", 1)[1] for line in lines} == files - {"SHA256SUMS"}


def test_the_chart_runs_the_images_of_the_archive(unpacked: Path) -> None:
    values = unpacked / "images" / "values.yaml"
    chart = unpacked / f"raybus-{VERSION}.tgz"
    command = (prepared(binaries.HELM), "template", "raybus", chart, "--values", values)
    digests = read_digests(unpacked, IMAGES)
    assert list_images(manifests.parse(run(unpacked, *command))) == {
        f"{REGISTRY}/{name}@{digest}" for name, digest in digests.items()
    }


def test_the_overlay_runs_the_images_of_the_archive(unpacked: Path) -> None:
    (unpacked / "overlay").mkdir()
    overlay = {"resources": ["../deploy/overlays/production"], "components": ["../images"]}
    (unpacked / "overlay" / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    rendered = run(unpacked, prepared("kubectl"), "kustomize", "overlay")
    shutil.rmtree(unpacked / "overlay")
    assert list_images(manifests.parse(rendered)) == {
        f"{REGISTRY}/{name}@{digest}" for name, digest in read_digests(unpacked, IMAGES).items()
    }


@pytest.mark.parametrize("name", [*IMAGES, *OPTIONAL])
def test_each_image_has_its_sbom_and_provenance(name: str, unpacked: Path) -> None:
    statement = json.loads((unpacked / "images" / name / "provenance.intoto.json").read_text())
    (digest,) = read_digests(unpacked, (name,)).values()
    assert statement["subject"][0]["digest"]["sha256"] == digest.removeprefix("sha256:")
    bill = json.loads((unpacked / "images" / name / "sbom.cdx.json").read_text())
    assert bill["components"]


def test_it_has_the_crds_and_the_wheel(unpacked: Path) -> None:
    assert (unpacked / f"raybus-{VERSION}-py3-none-any.whl").exists()
    rendered = run(unpacked, prepared("kubectl"), "kustomize", "deploy/crds")
    kinds = {each["spec"]["names"]["kind"] for each in manifests.parse(rendered)}
    assert kinds == {"RayCluster", "RayService", "RayJob", "RayCronJob", "UpgradePolicy"}
