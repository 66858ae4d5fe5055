"""An image's archive is an OCI image layout and one of Docker's, and its digest is known before a registry has it."""

import io
import json
import tarfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from localcluster.images import archive
from localcluster.images.archive import Layer, Written
from localcluster.images.dockerfile import ImageConfig

NAME = "registry.invalid/raybus/app:7"


def written(folder: Path) -> tuple[Written, dict[str, bytes]]:
    """Return the digests of an image with two equal layers and a different one, and the files of
    its archive.
    """
    layers: list[Layer] = []
    for number, content in enumerate((b"one", b"one", b"two")):
        path = folder / str(number)
        path.write_bytes(content)
        layers.append(Layer(path=path, digest=f"sha256:{sha256(content).hexdigest()}"))
    digests = archive.write(
        folder / "image.tar", NAME, ImageConfig(user="7"), layers, architecture="amd64"
    )
    with tarfile.open(folder / "image.tar") as tar:
        assert {entry.mtime for entry in tar} == {1_735_689_600}
        return digests, {
            entry.name: stream.read() for entry in tar if (stream := tar.extractfile(entry))
        }


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """Return the content that a descriptor names, after checking its digest and size."""
    content = files[f"blobs/{descriptor['digest'].replace(':', '/')}"]
    assert descriptor["digest"] == f"sha256:{sha256(content).hexdigest()}"
    assert descriptor["size"] == len(content)
    return content


def test_every_blob_is_reached_from_the_index_by_its_digest(tmp_path: Path) -> None:
    digests, files = written(tmp_path)

    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(files, named))
    config = json.loads(blob(files, manifest["config"]))
    assert (named["digest"], manifest["config"]["digest"]) == (digests.manifest, digests.config)
    assert [blob(files, layer) for layer in manifest["layers"]] == [b"one", b"one", b"two"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in manifest["layers"]]
    assert named["annotations"] == {
        "io.containerd.image.name": NAME,
        "org.opencontainers.image.ref.name": "7",
    }


def test_docker_finds_the_same_image(tmp_path: Path) -> None:
    digests, files = written(tmp_path)

    (entry,) = json.loads(files["manifest.json"])
    assert entry["RepoTags"] == [NAME]
    assert files[entry["Config"]] == files[f"blobs/{digests.config.replace(':', '/')}"]
    assert [files[name] for name in entry["Layers"]] == [b"one", b"one", b"two"]


def test_the_digests_are_read_back(tmp_path: Path) -> None:
    digests, _ = written(tmp_path)
    path = tmp_path / "image.tar"

    assert (
        Written(config=archive.read_id(path), manifest=archive.read_manifest_digest(path))
        == digests
    )


@pytest.mark.parametrize("names", [("manifest.json",), ()], ids=["an older Docker's", "empty"])
def test_an_archive_without_an_index_has_no_digest_of_its_own(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    with tarfile.open(tmp_path / "image.tar", "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))

    assert archive.read_manifest_digest(tmp_path / "image.tar") == ""


def a_layer(folder: Path, name: str, *entries: str | tuple[str, str]) -> Layer:
    """Return a layer with files (path and content), folders (ending in /) and whiteouts."""
    path = folder / name
    with tarfile.open(path, "w") as tar:
        for entry in entries:
            place, content = (entry, "") if isinstance(entry, str) else entry
            member = tarfile.TarInfo(place.rstrip("/"))
            member.type = tarfile.DIRTYPE if place.endswith("/") else tarfile.REGTYPE
            member.mode = 0o755
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content.encode()))
    return Layer(path=path, digest=f"sha256:{sha256(path.read_bytes()).hexdigest()}")


def test_images_are_unpacked_over_each_other(tmp_path: Path) -> None:
    base = a_layer(
        tmp_path, "base", "old/", ("old/a", "1"), "kept/", ("kept/b", "1"), ("kept/c", "1")
    )
    first = a_layer(
        tmp_path, "first", "old/", f"old/{archive.OPAQUE}", ("old/d", "2"), "kept/.wh.b",
        "new/", f"new/{archive.OPAQUE}", ("new/e", "2"), ("kept/c", "2"),
    )  # fmt: skip
    second = a_layer(tmp_path, "second", ("f", "3"))
    paths: list[Path] = []
    for number, layer in enumerate((first, second)):
        path = tmp_path / f"image-{number}.tar"
        config = ImageConfig(env={"NUMBER": str(number), "TEXT": "a=b"})
        archive.write(path, NAME, config, [base, layer], architecture="amd64")
        paths.append(path)
    tree = tmp_path / "tree"
    tree.mkdir()

    environment = archive.unpack(paths, tree)

    files = {str(p.relative_to(tree)): p.read_text() for p in tree.rglob("*") if p.is_file()}
    assert files == {"old/d": "2", "kept/c": "2", "new/e": "2", "f": "3"}
    assert environment == {"NUMBER": "1", "TEXT": "a=b"}
