"""The spec edits of `restart` and `set image`, and the JSON patch that applies them.

Users name containers as `GROUP=IMAGE` or `GROUP/CONTAINER=IMAGE`. Image references follow the OCI
distribution specification: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.

The patch tests uid and generation, and no text of the spec. The API server compares texts in their
encoded form, where `<`, `>` and `&` are escaped, so a test of a shell command would never succeed.
The generation changes only with the spec, so a status update causes no conflict.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, TypeAlias

import msgspec
import re2

from common import errors, labels, pod_json
from common.api.meta import ObjectMeta, rfc3339
from common.api.opaque import Body, Json

HEAD: Final = "head"
ALL: Final = "*"
LONGEST: Final = 255
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
    why = problem(image)
    if why is not None:
        raise errors.InvalidSpec(f"{given!r}: {image!r} is not an image reference: {why}")
    return Assignment(group, container, image)


def problem(image: str) -> str | None:
    """Return why a text is not an image reference; None if it is."""
    rest, at, digest = image.partition("@")
    if at and not _DIGEST.fullmatch(digest):
        return "a digest is sha256: and 64 hexadecimal digits"
    name, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        name, tag = rest, None
    if tag is not None and not _TAG.fullmatch(tag):
        return "a tag has letters, digits, '_', '.' and '-', and at most 128 of them"
    if not name or len(name) > LONGEST:
        return f"the name has 1 to {LONGEST} characters"
    return (
        None
        if _NAME.fullmatch(name)
        else "the name has lower-case letters, digits and single separators, as in host/path:tag"
    )


SHOWN: Final = 8
"""Maximum number of names listed in a message."""
Place: TypeAlias = tuple[str | int, ...]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """A new value for one field of a cluster spec."""

    place: Place
    value: str | dict[str, str] | dict[str, dict[str, str]]
    old: str = ""
    new: str


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The pod template of the head or of a worker group."""

    name: str
    place: Place
    template: Json

    @property
    def containers(self) -> dict[str, tuple[Place, Json]]:
        """Containers by name, each with its path in the spec; the Ray container is the first.

        Init containers come last.
        """
        return {
            pod_json.text(each, "name"): ((*self.place, "spec", field, at), each)
            for field in ("containers", "initContainers")
            for at, each in enumerate(pod_json.bodies(pod_json.spec(self.template), field))
        }


def groups(config: Json) -> list[Group]:
    """Return the groups of a cluster spec, the head first."""
    head = pod_json.body(pod_json.body(config, "headGroupSpec"), "template")
    workers = [
        Group(
            name=pod_json.text(each, "groupName"),
            place=("workerGroupSpecs", at, "template"),
            template=pod_json.body(each, "template"),
        )
        for at, each in enumerate(pod_json.bodies(config, "workerGroupSpecs"))
    ]
    return [Group(name=HEAD, place=("headGroupSpec", "template"), template=head), *workers]


def restart(config: Json, *, now: datetime) -> list[Edit]:
    """Set the restart annotation on every pod template.

    Templates are part of the cluster spec hash, so the edit makes a new cluster necessary.
    """
    at = rfc3339(now)
    return [_annotation(each, at) for each in groups(config)]


def _annotation(group: Group, at: str) -> Edit:
    meta: Json | None = group.template.get("metadata")
    held: dict[str, str] | None = None if meta is None else meta.get("annotations")
    value, place = {labels.RESTARTED_AT: at}, (*group.place, "metadata")
    if meta is None:
        return Edit(place=place, value={"annotations": value}, new=f"{labels.RESTARTED_AT}: {at}")
    if held is None:
        return Edit(place=(*place, "annotations"), value=value, new=f"{labels.RESTARTED_AT}: {at}")
    whole = (*place, "annotations", labels.RESTARTED_AT)
    return Edit(place=whole, value=at, old=held.get(labels.RESTARTED_AT, ""), new=at)


def set_images(config: Json, assignments: Sequence[Assignment]) -> list[Edit]:
    """Return the edits that set the images.

    Raises `Rejected` for an unknown group or container, for two images for one container, and if
    every container has its image already.
    """
    wanted: dict[Place, Edit] = {}
    given: dict[Place, str] = {}
    for each in assignments:
        for place, old in _containers(groups(config), each):
            if given.setdefault(place, each.image) != each.image:
                raise errors.Rejected(
                    f"{each.target} gets two images, {given[place]} and {each.image}: name one"
                )
            if old != each.image:
                wanted[place] = Edit(place=place, value=each.image, old=old, new=each.image)
    if not wanted:
        raise errors.Rejected("every named container has that image already; nothing is changed")
    return list(wanted.values())


def _containers(known: list[Group], assignment: Assignment) -> list[tuple[Place, str]]:
    """Return the path and the present value of each image field that an assignment selects."""
    chosen = [each for each in known if assignment.group in {ALL, each.name}]
    if not chosen:
        raise errors.Rejected(
            f"there is no group {assignment.group!r}; groups: "
            f"{_listed([g.name for g in known])}, or *"
        )
    found = [
        ((*place, "image"), pod_json.text(body, "image"))
        for group in chosen
        for name, (place, body) in list(group.containers.items())[
            : None if assignment.container else 1
        ]
        if assignment.container in {"", name}
    ]
    if not found:
        there = _listed(list(dict.fromkeys(name for each in chosen for name in each.containers)))
        raise errors.Rejected(
            f"group {assignment.group!r} has no container {assignment.container!r}; containers: "
            f"{there}"
            if assignment.container
            else f"group {assignment.group!r} has no container"
        )
    return found


def _listed(found: list[str]) -> str:
    return ", ".join(found[:SHOWN]) + (
        f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    )


def operations(meta: ObjectMeta, root: Place, edits: Sequence[Edit]) -> list[Body]:
    """Build the JSON patch.

    The API server rejects it if the object was created again under the same name, or if its spec
    changed.
    """
    tests: list[Body] = [
        {"op": "test", "path": "/metadata/uid", "value": meta.uid},
        {"op": "test", "path": "/metadata/generation", "value": meta.generation},
    ]
    return [
        *tests,
        *({"op": "add", "path": _pointer((*root, *e.place)), "value": e.value} for e in edits),
    ]


def _pointer(place: Place) -> str:
    return "".join("/" + str(each).replace("~", "~0").replace("/", "~1") for each in place)
