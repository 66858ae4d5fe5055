"""Keeps layers and archives by key in the cache; each is complete, because it is renamed into place.

layers/<key>/tree, layer.tar, digest     archives/<target>-<key>/image.tar, record.json     work/ (one builder at a time)
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
"""Versions of one image that are kept: checkouts side by side and a step back cost no rebuild."""


OWN_BUILDER: Final = "raybus"
DOCKER: Final = "docker-buildx"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a build that are known only while it runs."""

    builder: str
    """`OWN_BUILDER` or `DOCKER`."""
    bases: dict[str, str]
    """Digest of each base, by its name: of the layer that our builder made, or of the image that Docker pulled."""
    snapshot: str = ""
    """The Debian mirror that the user named."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a finished archive."""

    image: str
    digest: str
    """The image's id."""
    manifest: str
    """Its digest in a registry; empty if only the registry can know it."""
    origin: Origin


class Store:
    """The images folder of the cache."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._layers = folder / "layers"
        self._archives = folder / "archives"
        self.work = folder / "work"
        self.logs = folder / "logs"

    @contextmanager
    def locked(self, progress: Progress) -> Generator[None]:
        """Lock the store; leftovers of a crashed builder in `work` are removed first."""
        try:
            for path in (self._layers, self._archives, self.logs):
                path.mkdir(parents=True, exist_ok=True)
            lock = self.folder / "lock"
            lock.touch()
        except OSError as error:
            raise ClusterError(
                f"image cache {self.folder}: {error.strerror}; set XDG_CACHE_HOME to a writable folder"
            ) from None
        with progress.locked(lock, "waiting for another build of images"):
            shutil.rmtree(self.work, ignore_errors=True)
            self.work.mkdir()
            try:
                yield
            finally:
                shutil.rmtree(self.work, ignore_errors=True)

    def layer_name(self, key: str) -> str:
        """Return the layer's folder name below `folder`, for mount options."""
        return f"layers/{key[:_KEY_LENGTH]}/tree"

    def tree(self, key: str) -> Path:
        """Return the layer's files."""
        return self.folder / self.layer_name(key)

    def has_layer(self, key: str) -> bool:
        """Return whether the layer exists."""
        return self.tree(key).is_dir()

    def publish_layer(self, key: str, tree: Path) -> None:
        """Move a finished folder into the store as the layer of this key."""
        holder = self.work / f"layer-{key[:_KEY_LENGTH]}"
        holder.mkdir()
        tree.rename(holder / "tree")
        holder.rename(self.tree(key).parent)

    def layer_tar(self, key: str) -> Layer:
        """Return the layer's tar, written on first use."""
        holder = self.tree(key).parent
        target, digest = holder / "layer.tar", holder / "digest"
        if not digest.exists():
            found = archive.write_tar(holder / "tree", target)
            temporary = holder / "digest.new"
            temporary.write_text(found)
            temporary.rename(digest)
        return Layer(path=target, digest=digest.read_text())

    def drop_layer(self, key: str) -> None:
        """Remove a layer that no other needs."""
        shutil.rmtree(self.tree(key).parent, ignore_errors=True)

    def archive_path(self, target: str, key: str) -> Path:
        """Return the path of this image's archive."""
        return self._archives / f"{target}-{key[:_KEY_LENGTH]}" / "image.tar"

    def find_archive(self, target: str, key: str) -> Record | None:
        """Return the record of a finished archive."""
        path = self.archive_path(target, key)
        record = path.with_name("record.json")
        if not (record.is_file() and path.is_file()):
            return None
        return msgspec.json.decode(record.read_bytes(), type=Record)

    def publish_archive(self, target: str, key: str, written: Path, record: Record) -> None:
        """Move a finished archive into the store; remove the oldest versions of the same image."""
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
