"""What the gates of an UpgradePolicy came to at each step of an upgrade, as a part of the traffic record and as users see it.

A verdict keeps the figures that it was given for: it is published as an event, and a repetition must be the same. The record is an annotation
that every writer of its object can replace, so readers use `bounded` and `shown`.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from common import untrusted
from common.annotation_record import AnnotationRecord
from common.upgrade.gate_types import MOST_GATES, MOST_STEPS
from common.upgrade.gates import Outcome

LARGEST: Final = 16 * 1024
"""Bytes of all steps; the annotations of an object may have 256 KiB."""
LONGEST_TEXT: Final = 200
LONGEST_NAME: Final = 64
"""Of a gate."""


class Figures(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """What a gate observed."""

    requests: int = 0
    value: float | None = None
    """A fraction, seconds, or whatever the gate measures; None where there is none."""
    limit: float | None = None
    text: str = ""
    """The gate with its figures, as a sentence."""


class Verdict(Figures, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a gate, with the figures that led to it."""

    gate: str
    outcome: str
    """One of `common.upgrade.gates:Outcome`, or of a later build's."""
    at: datetime
    """Since when it is the outcome."""


class State(Verdict, frozen=True, kw_only=True, rename="camel"):
    """A gate at the present weight."""

    waits: bool = False
    """Whether the step waits for it: nothing else holds the step any more."""
    latest: Figures | UnsetType = UNSET
    """Newer figures than those of the verdict."""

    @property
    def figures(self) -> Figures:
        """Return the newest figures."""
        return self if isinstance(self.latest, UnsetType) else self.latest


class Step(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """What the gates came to at one weight."""

    weight: int
    since: datetime
    """When the new cluster got the weight."""
    gates: tuple[Verdict, ...]


class Current(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """What the gates come to at the present weight."""

    weight: int
    since: datetime
    written_at: datetime
    gates: tuple[State, ...]


AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def closed(current: Current) -> Step:
    """Return what the gates came to at a weight that is over."""
    return msgspec.convert(current, Step, from_attributes=True)


def is_verdict(verdict: Verdict) -> bool:
    """Return whether a gate has a verdict: it passed, it failed, or the step waits for it."""
    return verdict.outcome != Outcome.INCONCLUSIVE or (isinstance(verdict, State) and verdict.waits)


def overall(gates: Iterable[Verdict]) -> Outcome:
    """Return the outcome of several gates; an unknown one decides nothing."""
    found = {each.outcome for each in gates}
    if Outcome.FAIL in found:
        return Outcome.FAIL
    return Outcome.PASS if found == {Outcome.PASS} else Outcome.INCONCLUSIVE


def step_text(step: Step) -> str:
    """Return what the gates came to at a weight as one text."""
    found = (f"{each.outcome}: {each.text or each.gate}" for each in step.gates)
    return f"{step.weight} % since {step.since:%H:%M:%S}: {'; '.join(found)}"


def sentence(current: Current) -> str:
    """Return the gates at the present weight as one text, with their newest figures."""
    found = (f"{each.outcome}: {each.figures.text or each.gate}" for each in current.gates)
    return f"At {current.weight} percent since {current.since:%H:%M:%S}: {'; '.join(found)}"


def bounded(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the last steps that fit into a record, with texts that may be shown."""
    last = list(steps)[-MOST_STEPS:]
    found = [
        msgspec.structs.replace(each, gates=tuple(map(_shown, each.gates[:MOST_GATES])))
        for each in last
    ]
    while len(msgspec.json.encode(found)) > LARGEST:
        del found[0]
    return tuple(found)


def shown(current: Current) -> Current:
    """Return the present weight, with texts that may be shown."""
    return msgspec.structs.replace(current, gates=tuple(map(_shown, current.gates[:MOST_GATES])))


def _shown(verdict: AnyVerdict) -> AnyVerdict:
    texts = {
        "gate": untrusted.clipped(verdict.gate, LONGEST_NAME),
        "outcome": untrusted.clipped(verdict.outcome, LONGEST_NAME),
        "text": untrusted.clipped(verdict.text, LONGEST_TEXT),
    }
    return msgspec.structs.replace(verdict, **texts)
