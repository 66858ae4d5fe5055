"""The archive of a release: its files, their checksums, and what stops it before it is built."""

import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from localcluster.images.archive import TIMESTAMP
from raybus_dev import release
from support.manifests import DEPLOY, ROOT


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Return two files of a release by their paths in it."""
    (tmp_path / "content" / "images").mkdir(parents=True)
    (tmp_path / "content" / "images" / "image.tar").write_bytes(b"an image")
    (tmp_path / "content" / "chart.tgz").write_bytes(b"a chart")
    return release.list_release(tmp_path / "content")


def run(folder: Path, *command: str) -> tuple[int, str]:
    """Run a command in a folder; return its exit code and what it prints."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_unpacked_files_are_checked_against_their_sums(
    tmp_path: Path, files: dict[str, Path]
) -> None:
    target = tmp_path / "raybus.tar"
    digest = release.write_archive(target, files)
    assert digest == hashlib.sha256(target.read_bytes()).hexdigest()
    assert run(tmp_path, "sha256sum", "--check", "raybus.tar.sha256") == (0, "raybus.tar: OK\n")
    assert run(tmp_path, "tar", "-xf", "raybus.tar") == (0, "")
    folder = tmp_path / release.NAME
    assert run(folder, "sha256sum", "--check", release.SUMS) == (
        0,
        "chart.tgz: OK\nimages/image.tar: OK\n",
    )
    (folder / "chart.tgz").write_bytes(b"another chart")
    code, output = run(folder, "sha256sum", "--check", release.SUMS)
    assert code == 1
    assert "chart.tgz: FAILED" in output


def test_equal_files_give_equal_bytes(tmp_path: Path, files: dict[str, Path]) -> None:
    first = release.write_archive(tmp_path / "first.tar", files)
    for path in files.values():
        path.touch()
    assert release.write_archive(tmp_path / "second.tar", dict(reversed(files.items()))) == first
    with tarfile.open(tmp_path / "first.tar") as archive:
        members = archive.getmembers()
    assert {member.mtime for member in members} == {TIMESTAMP}
    assert {(member.uid, member.uname) for member in members} == {(0, "")}


def test_it_has_the_manifests_that_an_installation_applies() -> None:
    manifests = release.list_manifests(ROOT)
    for name in ("crds/ray.io_rayjobs.yaml", "overlays/production/kustomization.yaml"):
        assert manifests[f"deploy/{name}"] == DEPLOY / name
    assert not [name for name in manifests if name.startswith(release.APART)]


def test_the_chart_of_a_release_lists_its_images() -> None:
    chart = (DEPLOY / "helm" / "raybus" / "Chart.yaml").read_text()
    ref = "reg.test/team/nats@sha256:" + "0" * 64
    made = yaml.safe_load(release.add_images(chart, {"nats": ref}))
    annotations = made.pop("annotations")
    assert yaml.safe_load(annotations.pop(release.IMAGES_ANNOTATION)) == [
        {"name": "nats", "image": ref}
    ]
    assert {**made, "annotations": annotations} == yaml.safe_load(chart)


def test_an_invalid_registry_is_refused_before_anything_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert release.main(["--registry", "https://reg.test", "--to", str(tmp_path / "out")]) == 2
    assert "write HOST[:PORT]/PATH" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
