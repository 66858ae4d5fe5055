"""Decides what must be built: a key for each stage, then the stages that are missing, in order.  Pure.

Rule: a stage's key covers everything that its content depends on (base, instructions, copied files), so equal keys mean
equal content and nothing is ever built twice.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence, Set

import msgspec

from localcluster.errors import MisuseError
from localcluster.images.dockerfile import BINARIES, Copy, Stage, is_root

RECIPE = "2"
"""Raised when the builder makes other layers or archives of the same Dockerfile."""

FilesDigest = Callable[[Copy], str]


def choose(stages: Sequence[Stage], targets: Sequence[str]) -> tuple[Stage, ...]:
    """Return the requested image stages (all if none is named)."""
    images = {stage.name: stage for stage in stages if stage.image}
    unknown = [name for name in targets if name not in images]
    if unknown:
        raise MisuseError(f"no image target {', '.join(unknown)}; there are: {', '.join(images)}")
    return tuple(images[name] for name in dict.fromkeys(targets)) if targets else tuple(images.values())


def needed(stages: Sequence[Stage], targets: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return the targets and all stages that they need, in file order."""
    wanted = {stage.name for stage in targets}
    for stage in reversed(stages):
        if stage.name in wanted:
            wanted |= {stage.base, *copied_stages(stage)}
    return tuple(stage for stage in stages if stage.name in wanted)


def copied_stages(stage: Stage) -> tuple[str, ...]:
    """Return the stages that this one copies from."""
    origins = (step.origin for step in stage.steps if isinstance(step, Copy))
    return tuple(origin for origin in origins if origin and origin != BINARIES)


def roots(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Return the bases that no stage makes, with their digests, each once."""
    return tuple(dict.fromkeys(stage.base for stage in stages if is_root(stage.base)))


def keys(stages: Sequence[Stage], files_digest: FilesDigest, snapshot: str = "") -> dict[str, str]:
    """Return each stage's key, and each root's; `stages` contain all that they need, `snapshot` names where Debian comes from."""
    known = {root: _digest("root", RECIPE, root, snapshot) for root in roots(stages)}
    for stage in stages:
        parts = [RECIPE, known[stage.base]]
        for step in stage.steps:
            # The line number is no part of the content: a comment further up changes nothing.
            parts.append(msgspec.json.encode(msgspec.structs.replace(step, line=0), order="deterministic").decode())
            if isinstance(step, Copy):
                parts.append(known[step.origin] if step.origin in known else files_digest(step))
        known[stage.name] = _digest(*parts)
    return known


def image_key(stage: Stage, stage_key: str) -> str:
    """Return the key of the finished image: its layers and its start configuration."""
    return _digest(stage_key, msgspec.json.encode(stage.config, order="deterministic").decode())


def chain(stage: Stage, by_name: Mapping[str, Stage]) -> tuple[str, ...]:
    """Return the names of a stage's layers, the root first and itself last."""
    names = [stage.name]
    while not is_root(base := by_name[names[0]].base):
        names.insert(0, base)
    return (base, *names)


def to_build(targets: Sequence[Stage], by_name: Mapping[str, Stage], present: Set[str]) -> tuple[str, ...]:
    """Return the roots and stages with missing layers, each after what it needs."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if is_root(name):
            if name not in present:
                order.append(name)
            return
        visit(by_name[name].base)
        if name in present:
            return
        for origin in copied_stages(by_name[name]):
            visit(origin)
        order.append(name)

    for target in targets:
        visit(target.name)
    return tuple(order)


def is_shared(name: str, stages: Sequence[Stage]) -> bool:
    """Return whether another stage builds on this one or copies from it."""
    return any(stage.base == name or name in copied_stages(stage) for stage in stages)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
