"""A cause as it is found on one object, and the finding that all objects with the same cause are merged into."""

from collections.abc import Iterable
from enum import IntEnum

import msgspec

from raybus_cli.show.reasons import Code


class Rank(IntEnum):
    """The order in which causes are to be corrected."""

    SPEC = 0
    """Nothing progresses before that is corrected."""
    REQUESTED = 1
    """A user has requested it."""
    UNMANAGED = 2
    """No controller manages it."""
    QUOTA = 3
    IMAGE = 4
    CAPACITY = 5
    PODS = 6
    GATEWAY = 7
    SERVE = 8
    OTHER = 9
    EVENT = 10


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A cause on one object."""

    rank: Rank
    code: Code
    what: str
    """Without the pod."""
    remedy: str
    image: str = ""
    """The image that cannot be pulled: one cause, whichever container needs it and whatever the registry answers."""
    pod: str = ""
    """The name of the pod, where it is one's."""
    cluster: str = ""
    container: str = ""
    origin: str = ""
    """The text in which service-reconciler reports it."""
    evidence: tuple[str, ...] = ()
    detail: str = ""

    def is_named_in(self, text: str) -> bool:
        """Return whether a message of a condition or of an Event contains this cause."""
        return any(each and each in text for each in (self.what, self.origin))


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One cause, with all objects that have it."""

    rank: Rank
    code: Code
    message: str
    evidence: list[str] = []
    """Further objects, Events and conditions, one line each."""
    remedy: str
    command: str
    """A command to copy."""
    anchor: str
    """The section of the documentation about the code."""
    detail: str = ""
    """All of a text of which `message` has the cause."""


def merged(causes: Iterable[Cause]) -> list[list[Cause]]:
    """Return the causes by rank, those that are the same on several objects together, each object once."""
    found: dict[tuple[Code, str], dict[tuple[str, str], Cause]] = {}
    for each in sorted(causes, key=lambda each: each.rank):
        same = found.setdefault((each.code, each.image or each.what), {})
        held = same.setdefault((each.pod, each.cluster), each)
        new = tuple(line for line in each.evidence if line not in held.evidence)
        same[each.pod, each.cluster] = msgspec.structs.replace(held, evidence=held.evidence + new)
    return [[*each.values()] for each in found.values()]


def finding(same: list[Cause], command: str) -> Finding:
    """Return the finding about one cause on some objects."""
    first, *others = same
    more = f" and {len(others)} more" if others else ""
    pods = [f"Pod {each.pod}" for each in others if each.pod]
    evidence = dict.fromkeys([*pods, *(line for each in same for line in each.evidence)])
    return Finding(
        rank=first.rank,
        code=first.code,
        message=f"Pod {first.pod}{more}: {first.what}" if first.pod else first.what,
        evidence=[*evidence],
        remedy=first.remedy,
        command=command,
        anchor=first.code.anchor,
        detail=first.detail,
    )
