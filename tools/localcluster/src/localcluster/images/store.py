"""Stores layers and archives of images by key, in the cache.

Each is written in `work` and then renamed, so the store never has a partial layer or archive.

    layers/<key>/tree, layer.tar, digest
    archives/<target>-<key>/image.tar, record.json
    work/    (one builder at a time)
"""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from localcluster.errors import ClusterError
from localcluster.images import archive
from localcluster.images.archive import Layer
from localcluster.progress import Progress

_KEY_LENGTH = 20
_KEPT = 3
"""Number of versions that are kept of each image.

Several checkouts can then share the store, and an older commit needs no rebuild.
"""


OWN_BUILDER: Final = "raybus"
DOCKER: Final = "docker-buildx"


class BuildOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the build of an archive that its content does not show."""

    builder: str
    """The builder that made the archive: `OWN_BUILDER` or `DOCKER`."""
    bases: dict[str, str]
    """Digest of each base image by name.

    It is the digest of the layer that this builder made, or of the image that Docker pulled.
    """
    snapshot: str = ""
    """The Debian mirror that the user set; empty for the default mirror."""


class ArchiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The store's record of a finished archive."""

    image: str
    digest: str
    """Id of the image in the archive."""
    manifest: str
    """The image's digest in a registry; empty if it is not known."""
    origin: BuildOrigin


class ImageStore:
    """The folder of layers and archives in the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._layers = folder / "layers"
        self._archives = folder / "archives"
        self.work = folder / "work"
        self.logs = folder / "logs"

    @contextmanager
    def hold_lock(self, progress: Progress) -> Generator[None]:
        """Lock the store during the `with` block.

        First removes what a crashed builder left in `work`.
        """
        try:
            for path in (self._layers, self._archives, self.logs):
                path.mkdir(parents=True, exist_ok=True)
            lock = self.folder / "lock"
            lock.touch()
        except OSError as error:
            raise ClusterError(
                f"image cache {self.folder}: {error.strerror}; set XDG_CACHE_HOME to a writable "
                "folder"
            ) from None
        with progress.locked(lock, "waiting for another build of images"):
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir()
            try:
                yield
            finally:
                shutil.rmtree(self.work, ignore_errors=True)

    def layer_name(self, key: str) -> str:
        """Return the path of a layer relative to `folder`, for mount options."""
        return f"layers/{key[:_KEY_LENGTH]}/tree"

    def tree(self, key: str) -> Path:
        return self.folder / self.layer_name(key)

    def has_layer(self, key: str) -> bool:
        return self.tree(key).is_dir()

    def publish_layer(self, key: str, tree: Path) -> None:
        """Move a finished folder into the store as the layer of `key`."""
        holder = self.work / f"layer-{key[:_KEY_LENGTH]}"
        holder.mkdir()
        tree.rename(holder / "tree")
        holder.rename(self.tree(key).parent)

    def write_layer_tar(self, key: str) -> Layer:
        """Return the tar of a layer. It is written at the first call."""
        holder = self.tree(key).parent
        target, digest = holder / "layer.tar", holder / "digest"
        if not digest.exists():
            layer = archive.write_tar(holder / "tree", target)
            temporary = holder / "digest.new"
            temporary.write_text(layer)
            temporary.rename(digest)
        return Layer(path=target, digest=digest.read_text())

    def drop_layer(self, key: str) -> None:
        """Remove a layer that no other stage needs any more."""
        shutil.rmtree(self.tree(key).parent, ignore_errors=True)

    def archive_path(self, target: str, key: str) -> Path:
        return self._archives / f"{target}-{key[:_KEY_LENGTH]}" / "image.tar"

    def find_archive(self, target: str, key: str) -> ArchiveRecord | None:
        """Return the record of the archive for a target and key; None if there is none."""
        path = self.archive_path(target, key)
        record = path.with_name("record.json")
        if not (record.is_file() and path.is_file()):
            return None
        return msgspec.json.decode(record.read_bytes(), type=ArchiveRecord)

    def publish_archive(self, target: str, key: str, written: Path, record: ArchiveRecord) -> None:
        """Move a finished archive into the store, and remove the oldest versions of the image."""
        holder = self.work / f"archive-{target}"
        holder.mkdir()
        written.rename(holder / "image.tar")
        (holder / "record.json").write_bytes(msgspec.json.encode(record))
        final = self.archive_path(target, key).parent
        shutil.rmtree(final, ignore_errors=True)
        holder.rename(final)
        suffix = len(final.name) - len(target)
        mine = [
            path
            for path in self._archives.glob(f"{target}-*")
            if len(path.name) - suffix == len(target)
        ]
        mine.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for path in mine[_KEPT:]:
            shutil.rmtree(path, ignore_errors=True)
