"""The spec edits of `restart` and `set image`, and the JSON patch that applies them.

Users name containers as `GROUP=IMAGE` or `GROUP/CONTAINER=IMAGE`. Image references follow the OCI
distribution specification: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.

The patch tests uid and generation instead of the old texts in the spec. The API server compares
texts in their encoded form, where `<`, `>` and `&` are escaped, so a test of a shell command would
never succeed. The generation changes only with the spec, so a status update causes no conflict.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
import re2

from common import errors, labels, pod_json, untrusted
from common.api.meta import ObjectMeta, rfc3339
from common.api.opaque import Body, Json
from raybus_cli.manifests import FieldPath

HEAD_GROUP: Final = "head"
ALL_GROUPS: Final = "*"
MAX_IMAGE_NAME_LENGTH: Final = 255
"""Maximum length, in characters, of an image name without tag and digest."""
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME: Final = re2.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
_TAG: Final = re2.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re2.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Assignment(msgspec.Struct, frozen=True):
    """A new image for one container of a group, as given by the user."""

    group: str
    """`head`, the name of a worker group, or `*` for all groups."""
    container: str
    """Container name; empty for the Ray container."""
    image: str

    @property
    def target(self) -> str:
        """The part of the argument before the equals sign."""
        return f"{self.group}/{self.container}" if self.container else self.group


def parse(given: str) -> Assignment:
    """Parse one `GROUP[/CONTAINER]=IMAGE` argument; raise `InvalidSpec` that says what is wrong."""
    target, equals, image = given.partition("=")
    group, slash, container = target.partition("/")
    if not equals or not group or (slash and not container):
        raise errors.InvalidSpec(
            f"{given!r} is not GROUP=IMAGE or GROUP/CONTAINER=IMAGE, such as "
            "head=rayproject/ray:2.53.0"
        )
    why = find_image_problem(image)
    if why is not None:
        raise errors.InvalidSpec(f"{given!r}: {image!r} is not an image reference: {why}")
    return Assignment(group, container, image)


def find_image_problem(image: str) -> str | None:
    """Return why a text is not an image reference; None if it is one."""
    rest, at, digest = image.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return "a digest is sha256: and 64 hexadecimal digits"
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag = rest, None
    if tag is not None and not _TAG.fullmatch(tag):
        return "a tag has letters, digits, '_', '.' and '-', and at most 128 of them"
    if not name or len(name) > MAX_IMAGE_NAME_LENGTH:
        return f"the name has 1 to {MAX_IMAGE_NAME_LENGTH} characters"
    return (
        None
        if _NAME.fullmatch(name)
        else "the name has lower-case letters, digits and single separators, as in host/path:tag"
    )


MAX_SHOWN_NAMES: Final = 8
"""Maximum number of names listed in a message."""


class FieldEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A new value for one field of a cluster spec; the plan shows the change as `old` and `new`."""

    path: FieldPath
    value: str | dict[str, str] | dict[str, dict[str, str]]
    old: str = ""
    new: str


class TemplateGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The pod template of the head or of a worker group."""

    name: str
    path: FieldPath
    template: Json

    @property
    def containers(self) -> dict[str, tuple[FieldPath, Json]]:
        """Containers by name, each with its path in the spec; the Ray container is the first.

        Init containers come last.
        """
        return {
            pod_json.text(container, "name"): ((*self.path, "spec", field, at), container)
            for field in ("containers", "initContainers")
            for at, container in enumerate(pod_json.bodies(pod_json.spec(self.template), field))
        }


def list_groups(config: Json) -> list[TemplateGroup]:
    """Return the groups of a cluster spec, the head first."""
    head = pod_json.body(pod_json.body(config, "headGroupSpec"), "template")
    workers = [
        TemplateGroup(
            name=pod_json.text(group, "groupName"),
            path=("workerGroupSpecs", at, "template"),
            template=pod_json.body(group, "template"),
        )
        for at, group in enumerate(pod_json.bodies(config, "workerGroupSpecs"))
    ]
    return [
        TemplateGroup(name=HEAD_GROUP, path=("headGroupSpec", "template"), template=head),
        *workers,
    ]


def restart(config: Json, *, now: datetime) -> list[FieldEdit]:
    """Return the edits that set the restart annotation on every pod template.

    Templates are part of the cluster spec hash, so the edits make a new cluster necessary.
    """
    at = rfc3339(now)
    return [_build_annotation_edit(group, at) for group in list_groups(config)]


def _build_annotation_edit(group: TemplateGroup, at: str) -> FieldEdit:
    meta: Json | None = group.template.get("metadata")
    annotations: dict[str, str] | None = None if meta is None else meta.get("annotations")
    value, path = {labels.RESTARTED_AT: at}, (*group.path, "metadata")
    if meta is None:
        return FieldEdit(
            path=path, value={"annotations": value}, new=f"{labels.RESTARTED_AT}: {at}"
        )
    if annotations is None:
        return FieldEdit(
            path=(*path, "annotations"), value=value, new=f"{labels.RESTARTED_AT}: {at}"
        )
    whole = (*path, "annotations", labels.RESTARTED_AT)
    return FieldEdit(path=whole, value=at, old=annotations.get(labels.RESTARTED_AT, ""), new=at)


def set_images(config: Json, assignments: Sequence[Assignment]) -> list[FieldEdit]:
    """Return the edits that set the images.

    Raises `Rejected` for an unknown group or container, for two images for one container, and if
    every container already has its image.
    """
    wanted: dict[FieldPath, FieldEdit] = {}
    given: dict[FieldPath, str] = {}
    for assignment in assignments:
        for path, old in _select_containers(list_groups(config), assignment):
            if given.setdefault(path, assignment.image) != assignment.image:
                raise errors.Rejected(
                    f"{assignment.target} gets two images, {given[path]} and "
                    f"{assignment.image}: name one"
                )
            if old != assignment.image:
                wanted[path] = FieldEdit(
                    path=path, value=assignment.image, old=old, new=assignment.image
                )
    if not wanted:
        raise errors.Rejected("every named container has that image already; nothing is changed")
    return list(wanted.values())


def _select_containers(
    known: list[TemplateGroup], assignment: Assignment
) -> list[tuple[FieldPath, str]]:
    """Return path and present value of each image field that an assignment selects.

    `known` are all groups of the cluster spec.
    """
    chosen = [group for group in known if assignment.group in {ALL_GROUPS, group.name}]
    if not chosen:
        raise errors.Rejected(
            f"there is no group {assignment.group!r}; groups: "
            f"{untrusted.joined([g.name for g in known], MAX_SHOWN_NAMES)}, or *"
        )
    images = [
        ((*path, "image"), pod_json.text(body, "image"))
        for group in chosen
        for name, (path, body) in list(group.containers.items())[
            : None if assignment.container else 1
        ]
        if assignment.container in {"", name}
    ]
    if not images:
        names = list(dict.fromkeys(name for group in chosen for name in group.containers))
        there = untrusted.joined(names, MAX_SHOWN_NAMES)
        raise errors.Rejected(
            f"group {assignment.group!r} has no container {assignment.container!r}; containers: "
            f"{there}"
            if assignment.container
            else f"group {assignment.group!r} has no container"
        )
    return images


def build_operations(meta: ObjectMeta, root: FieldPath, edits: Sequence[FieldEdit]) -> list[Body]:
    """Build the JSON patch that applies `edits` to the cluster spec at `root`, a path in an object.

    The API server rejects the patch if the object was deleted and created again under the same
    name, or if its spec changed.
    """
    tests: list[Body] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/generation", "value": meta.generation},
    ]
    return [
        *tests,
        *(
            {"op": "add", "path": _format_pointer((*root, *e.path)), "value": e.value}
            for e in edits
        ),
    ]


def _format_pointer(path: FieldPath) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
