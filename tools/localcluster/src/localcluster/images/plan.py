"""Decides what to build: computes a key for each stage, and orders the stages that are missing.

A key covers everything that a stage's content depends on (base, instructions, copied files), so
equal keys mean equal content, and nothing is built twice. The content, name and executable bit of a
copied file count. Its owner, other permissions and times do not, because images do not get them.
"""

import fnmatch
import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path

import msgspec

from localcluster.errors import ClusterError, MisuseError
from localcluster.images.dockerfile import BINARIES, Copy, Stage, is_base_image

_EXECUTABLE = 0o100


class SourceChangedError(ClusterError):
    """A file changed between the computation of its digest and its copying."""


class BuildContext:
    """The files of the checkout that may be copied, and the binaries by name.

    Files that match Dockerfile.dockerignore are left out.
    """

    def __init__(self, checkout: Path, binaries: Mapping[str, Path], ignore: str) -> None:
        self._checkout = checkout
        self._binaries = dict(binaries)
        self._ignored = _parse_patterns(ignore)
        self._known: dict[tuple[str, tuple[str, ...]], str] = {}

    def digest(self, step: Copy) -> str:
        """Return one digest over all files that a COPY takes. It is computed once."""
        return self._known.setdefault((step.origin, step.sources), self._compute(step))

    def _compute(self, step: Copy) -> str:
        total = hashlib.sha256()
        for name, path in self._list_entries(step):
            total.update(f"{name}\0{_describe_kind(path)}\0".encode())
            if path.is_symlink():
                total.update(str(path.readlink()).encode())
            elif path.is_file():
                with path.open("rb") as stream:
                    total.update(hashlib.file_digest(stream, "sha256").digest())
        return total.hexdigest()

    def copy_files(self, step: Copy, folder: Path) -> None:
        """Copy all files that a COPY takes into `folder`.

        Raises `SourceChangedError` if a file has changed since `digest` was called.
        """
        self._copy(step, folder)
        known = self._known.get((step.origin, step.sources))
        if known is not None and known != self._compute(step):
            raise SourceChangedError(
                f"{' '.join(step.sources)} changed while images were built; build again"
            )

    def _copy(self, step: Copy, folder: Path) -> None:
        for name, path in self._list_entries(step):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            if path.is_symlink():
                target.symlink_to(path.readlink())
            elif path.is_dir():
                target.mkdir(exist_ok=True, mode=0o755)
            else:
                shutil.copyfile(path, target)
                target.chmod(0o755 if path.stat().st_mode & _EXECUTABLE else 0o644)

    def _list_entries(self, step: Copy) -> Iterator[tuple[str, Path]]:
        """Yield each file that a COPY takes: its path in the build context and on this machine.

        The files are sorted.
        """
        for source in step.sources:
            if step.origin == BINARIES:
                yield self._find_binary(step, source.strip("/"))
                continue
            name = source.strip("/").removeprefix("./")
            path = self._checkout / name
            if not path.exists():
                raise ClusterError(
                    f"Dockerfile line {step.line}: COPY {source}: {path} does not exist; create it"
                )
            yield from self._walk(name, path)

    def _walk(self, name: str, path: Path) -> Iterator[tuple[str, Path]]:
        if self._is_ignored(name):
            return
        yield name, path
        if path.is_dir() and not path.is_symlink():
            for child in sorted(path.iterdir()):
                yield from self._walk(f"{name}/{child.name}", child)

    def _find_binary(self, step: Copy, name: str) -> tuple[str, Path]:
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


def _parse_patterns(text: str) -> tuple[tuple[str, bool], ...]:
    """Return the patterns of a dockerignore file, and whether each applies in any folder.

    `name` applies only in the top folder, `**/pattern` in any folder. Raises `ClusterError` for
    other lines.
    """
    patterns: list[tuple[str, bool]] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        bare = line.removeprefix("**/")
        if line.startswith("!") or "/" in bare or ("*" in line and bare == line):
            raise ClusterError(
                f"Dockerfile.dockerignore line {number}: {line!r} is not supported; use name or "
                "**/pattern"
            )
        patterns.append((bare, bare != line))
    return tuple(patterns)


def _describe_kind(path: Path) -> str:
    if path.is_symlink():
        return "link"
    if path.is_dir():
        return "folder"
    return "program" if path.stat().st_mode & _EXECUTABLE else "file"


RECIPE = "2"
"""Version of this builder.

It must be increased when the builder makes different layers or archives from the same Dockerfile.
"""

FilesDigest = Callable[[Copy], str]


def choose(stages: Sequence[Stage], targets: Sequence[str]) -> tuple[Stage, ...]:
    """Return the stages of the named images, or of all images if none is named.

    Raises `MisuseError` for an unknown name.
    """
    images = {stage.name: stage for stage in stages if stage.image}
    unknown = [name for name in targets if name not in images]
    if unknown:
        raise MisuseError(f"no image target {', '.join(unknown)}; there are: {', '.join(images)}")
    return (
        tuple(images[name] for name in dict.fromkeys(targets))
        if targets
        else tuple(images.values())
    )


def list_needed(stages: Sequence[Stage], targets: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the targets and all stages that they depend on, in the order of the Dockerfile."""
    wanted = {stage.name for stage in targets}
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted |= {stage.base, *list_copied_stages(stage)}
    return tuple(stage for stage in stages if stage.name in wanted)


def list_copied_stages(stage: Stage) -> tuple[str, ...]:
    """Return the names of the stages that a stage copies files from."""
    origins = (step.origin for step in stage.steps if isinstance(step, Copy))
    return tuple(origin for origin in origins if origin and origin != BINARIES)


def list_base_images(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return the `BASE_IMAGES` that the stages use, with digests, without duplicates."""
    return tuple(dict.fromkeys(stage.base for stage in stages if is_base_image(stage.base)))


def compute_keys(
    stages: Sequence[Stage], files_digest: FilesDigest, snapshot: str = ""
) -> dict[str, str]:
    """Return the cache keys of all stages and base images, by name.

    `stages` must contain all stages that they depend on. `files_digest` returns the digest of the
    files of a COPY; `snapshot` is the Debian mirror.
    """
    known = {base: _digest("root", RECIPE, base, snapshot) for base in list_base_images(stages)}
    for stage in stages:
        parts = [RECIPE, known[stage.base]]
        for step in stage.steps:
            # The line number does not affect the content; otherwise a comment further up would
            # change the key.
            parts.append(
                msgspec.json.encode(
                    msgspec.structs.replace(step, line=0), order="deterministic"
                ).decode()
            )
            if isinstance(step, Copy):
                parts.append(known[step.origin] if step.origin in known else files_digest(step))
        known[stage.name] = _digest(*parts)
    return known


def compute_image_key(stage: Stage, stage_key: str) -> str:
    """Return the key of a finished image, which covers its layers and how containers start."""
    return _digest(stage_key, msgspec.json.encode(stage.config, order="deterministic").decode())


def list_chain(stage: Stage, by_name: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the names of the layers of a stage: the base image first, the stage itself last."""
    names = [stage.name]
    while not is_base_image(base := by_name[names[0]].base):
        names.insert(0, base)
    return (base, *names)


def to_build(
    targets: Sequence[Stage], by_name: Mapping[str, Stage], present: Set[str]
) -> tuple[str, ...]:
    """Return the base images and stages to build for the targets, each after its dependencies.

    `present` are the names of base images and stages whose layers exist.
    """
    order: list[str] = []

    def add_stage(name: str) -> None:
        if name in order:
            return
        if is_base_image(name):
            if name not in present:
                order.append(name)
            return
        add_stage(by_name[name].base)
        if name in present:
            return
        for origin in list_copied_stages(by_name[name]):
            add_stage(origin)
        order.append(name)

    for target in targets:
        add_stage(target.name)
    return tuple(order)


def is_shared(name: str, stages: Sequence[Stage]) -> bool:
    """Return whether another stage builds on the stage `name`, or copies files from it."""
    return any(stage.base == name or name in list_copied_stages(stage) for stage in stages)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
