"""The forms of the messages on the state stream: which ones this build writes and reads (ADR 16).

A form is `<major>.<minor>`. A higher minor only adds fields, so every reader of the same major
reads it. No reader reads a different major. A lower minor lacks fields: this build reads it only if
`MIN_MINOR` allows it. `tests/golden/forms` ties each number to its schema.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import msgspec

UNREADABLE: Final = "the watcher publishes a form that this build does not read"


class MessageForm(msgspec.Struct, frozen=True):
    """Version of the fields in one kind of message, such as 1.2."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


FIRST: Final = MessageForm(1, 0)
FIRST_KINDS: Final[tuple[str, ...]] = (
    "ControllerRevision",
    "EndpointSlice",
    "GRPCRoute",
    "Gateway",
    "HTTPRoute",
    "Job",
    "Pod",
    "RayCluster",
    "RayService",
    "Service",
)
"""Kinds published by a watcher whose sync marker lists no forms."""
FORMS: Final[dict[str, MessageForm]] = {
    **dict.fromkeys((*FIRST_KINDS, "Gone", "Quarantined", "Synced", "RayJob", "RayCronJob"), FIRST),
    "Pod": MessageForm(1, 1),
    "Job": MessageForm(1, 1),
    # 1.1 promises the trees of RayJobs. A watcher of 1.0 leaves deleted objects in them, so this
    # build does not decide on what it publishes.
    "Synced": MessageForm(1, 1),
}
"""The form in which this build writes each kind of object or message.

This build neither publishes nor reads other kinds."""
MIN_MINOR: Final[dict[str, int]] = {"Pod": 0, "Job": 0}
"""The lowest minor version that this build reads of a kind, if it writes a higher one.

Fields that later minor versions added are optional; an absent field means "unknown".
"""
EARLIER: Final[dict[str, MessageForm]] = dict.fromkeys(
    ("", "1", "1-f73851c4", "1-8b62c23b", "1-6a7bb5ba", "Quarantined"), FIRST
)
"""Form texts of older builds, which did not number their forms. They count as form 1.0.

Some of these texts end with a checksum of the message's fields.
"""


def get_form(kind: str) -> str:
    """Return the form in which this build publishes messages of a kind."""
    return str(FORMS[kind])


def list_forms() -> dict[str, str]:
    """Return the form of each kind as text, as a sync marker lists them."""
    return {kind: str(form) for kind, form in FORMS.items()}


def explain_unreadable(kind: str, text: str) -> str | None:
    """Return why this build cannot read messages of a kind in the form that `text` names.

    None if it can read them, or if the kind is unknown.
    """
    ours = FORMS.get(kind)
    if ours is None:
        return None
    min_minor = MIN_MINOR.get(kind, ours.minor)
    theirs = _parse(text)
    if theirs is not None and theirs.major == ours.major and theirs.minor >= min_minor:
        return None
    return (
        f"{UNREADABLE}: {kind} {text or 'without a form'}, expected {ours.major}.{min_minor} or a "
        f"later {ours.major}.x; "
        "run the watcher and this service in one version"
    )


def explain_unreadable_marker(listed: Mapping[str, str], kinds: Iterable[str]) -> str | None:
    """Return why this build cannot read a watcher's messages of these kinds; None if it can.

    `listed` has the form of each kind, as the watcher's sync marker lists them.
    """
    forms = listed or dict.fromkeys(FIRST_KINDS, str(FIRST))
    return next(
        (
            reason
            for kind in sorted(kinds)
            if (reason := explain_unreadable(kind, forms.get(kind, "not published")))
        ),
        None,
    )


@lru_cache(maxsize=256)
def _parse(text: str) -> MessageForm | None:
    major, _, minor = text.partition(".")
    if major.isdecimal() and minor.isdecimal():
        return MessageForm(int(major), int(minor))
    return EARLIER.get(text)
