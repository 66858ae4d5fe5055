"""The files that a COPY takes from the checkout or from the given binaries: their names, their digest, a clean copy.

Rule: a file's content, name and executable bit count; owner, other permissions and times of the checkout do not reach an image.
"""

import fnmatch
import hashlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import BINARIES, Copy

_EXECUTABLE = 0o100


class SourceChangedError(ClusterError):
    """A file changed between the moment its digest was taken and the moment it was copied."""


class BuildContext:
    """The checkout's files, minus Dockerfile.dockerignore, and the binaries by name."""

    def __init__(self, checkout: Path, binaries: Mapping[str, Path], ignore: str) -> None:
        self._checkout = checkout
        self._binaries = dict(binaries)
        self._ignored = _patterns(ignore)
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def digest(self, step: Copy) -> str:
        """Return the digest of all that this COPY takes, and remember it."""
        return self._known.setdefault((step.origin, step.sources), self._compute(step))

    def _compute(self, step: Copy) -> str:
        total = hashlib.sha256()
        for name, path in self._entries(step):
            total.update(f"{name}\0{_kind(path)}\0".encode())
            if path.is_symlink():
                total.update(str(path.readlink()).encode())
            elif path.is_file():
                with path.open("rb") as stream:
                    total.update(hashlib.file_digest(stream, "sha256").digest())
        return total.hexdigest()

    def stage(self, step: Copy, folder: Path) -> None:
        """Put a clean copy of all that this COPY takes under `folder`; raise for a file that changed since its digest was taken."""
        self._copy(step, folder)
        known = self._known.get((step.origin, step.sources))
        if known is not None and known != self._compute(step):
            raise SourceChangedError(f"{' '.join(step.sources)} changed while images were built; build again")

    def _copy(self, step: Copy, folder: Path) -> None:
        for name, path in self._entries(step):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_dir():
                target.mkdir(exist_ok=True, mode=0o755)
            else:
                shutil.copyfile(path, target)
                target.chmod(0o755 if path.stat().st_mode & _EXECUTABLE else 0o644)

    def _entries(self, step: Copy) -> Iterator[tuple[str, Path]]:
        """Yield (path inside the context, path on this machine), sorted."""
        for source in step.sources:
            if step.origin == BINARIES:
                yield self._binary(step, source.strip("/"))
                continue
            name = source.strip("/").removeprefix("./")
            path = self._checkout / name
            if not path.exists():
                raise ClusterError(f"Dockerfile line {step.line}: COPY {source}: {path} does not exist; create it")
            yield from self._walk(name, path)

    def _walk(self, name: str, path: Path) -> Iterator[tuple[str, Path]]:
        if self._is_ignored(name):
            return
        yield name, path
        if path.is_dir() and not path.is_symlink():
            for child in sorted(path.iterdir()):
                yield from self._walk(f"{name}/{child.name}", child)

    def _binary(self, step: Copy, name: str) -> tuple[str, Path]:
        path = self._binaries.get(name)
        if path is None:
            raise ClusterError(
                f"Dockerfile line {step.line}: the binary {name!r} is missing; "
                f"build it first and pass it (--file {name}=PATH)"
            )
        if not path.is_file():
            raise ClusterError(f"the binary {name!r}: {path} is no file; build it first")
        return name, path

    def _is_ignored(self, name: str) -> bool:
        return any(
            fnmatch.fnmatch(name.rsplit("/", 1)[-1], pattern) if anywhere else name == pattern
            for pattern, anywhere in self._ignored
        )


def _patterns(text: str) -> tuple[tuple[str, bool], ...]:
    """Read the lines that we know: `name` at the top, `**/pattern` anywhere."""
    found: list[tuple[str, bool]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        bare = line.removeprefix("**/")
        if line.startswith("!") or "/" in bare or ("*" in line and bare == line):
            raise ClusterError(
                f"Dockerfile.dockerignore line {number}: {line!r} is not supported; use name or **/pattern"
            )
        found.append((bare, bare != line))
    return tuple(found)


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "link"
    if path.is_dir():
        return "folder"
    return "program" if path.stat().st_mode & _EXECUTABLE else "file"
