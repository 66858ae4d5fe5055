"""Reads `GROUP=IMAGE` and `GROUP/CONTAINER=IMAGE`, and refuses an image that no container runtime can read.

The grammar is that of the OCI distribution specification: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
"""

import re
from typing import Final

import msgspec

from common import errors

HEAD: Final = "head"
ALL: Final = "*"
LONGEST: Final = 255
"""Characters of the name of an image."""
_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_NAME: Final = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")


class Assignment(msgspec.Struct, frozen=True):
    """An image for a container of a group."""

    group: str
    """`head`, the name of a worker group, or `*` for all."""
    container: str
    """Empty for the Ray container."""
    image: str

    @property
    def target(self) -> str:
        """Return what stands before the equals sign."""
        return f"{self.group}/{self.container}" if self.container else self.group


def parse(given: str) -> Assignment:
    """Read one argument; `InvalidSpec` names what is wrong with it."""
    target, equals, image = given.partition("=")
    group, slash, container = target.partition("/")
    if not equals or not group or (slash and not container):
        raise errors.InvalidSpec(
            f"{given!r} is not GROUP=IMAGE or GROUP/CONTAINER=IMAGE, such as head=rayproject/ray:2.53.0"
        )
    why = problem(image)
    if why is not None:
        raise errors.InvalidSpec(f"{given!r}: {image!r} is not an image reference: {why}")
    return Assignment(group, container, image)


def problem(image: str) -> str | None:
    """Return why a text is no image reference."""
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
