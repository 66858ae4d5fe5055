"""The outcomes of gates at each step of an upgrade, as kept in the traffic record and receipt.

A verdict keeps the figures on which it is based, since it is also published as an event, and a
redelivered event must be identical. Every writer of the annotated object can replace the record, so
readers apply `bounded` or `shown` before they show it.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from common import untrusted
from common.annotation_record import AnnotationRecord
from common.upgrade.gate_types import MAX_GATES, MAX_STEPS
from common.upgrade.gates import Outcome

MAX_RECORD_SIZE: Final = 16 * 1024
"""Bytes of all steps together; all annotations of one object may have 256 KiB."""
MAX_TEXT_LENGTH: Final = 200
MAX_NAME_LENGTH: Final = 64
"""Characters of a gate's name."""


class Figures(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The figures that a gate measured."""

    requests: int = 0
    value: float | None = None
    """A fraction of the requests, seconds, or the result of a query; None without data."""
    limit: float | None = None
    text: str = ""
    """The gate with its figures, as a sentence."""


class Verdict(Figures, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a gate, with the figures on which it is based."""

    gate: str
    outcome: str
    """A member of `common.upgrade.gates.Outcome`, or an unknown value that a later release wrote.
    """
    at: datetime
    """When the gate reached this outcome."""


class State(Verdict, frozen=True, kw_only=True, rename="camel"):
    """The verdict of a gate at the present weight."""

    waits: bool = False
    """Whether the step waits only for gates, this one included."""
    latest: Figures | UnsetType = UNSET
    """Figures that are newer than those of the verdict."""

    @property
    def figures(self) -> Figures:
        return self if isinstance(self.latest, UnsetType) else self.latest


class Step(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts at one weight."""

    weight: int
    since: datetime
    """When the new cluster got the weight."""
    gates: tuple[Verdict, ...]


class Current(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts at the present weight."""

    weight: int
    since: datetime
    written_at: datetime
    gates: tuple[State, ...]


AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def closed(current: Current) -> Step:
    """Convert the present weight to a finished step."""
    return msgspec.convert(current, Step, from_attributes=True)


def is_verdict(verdict: Verdict) -> bool:
    """Return whether to report a gate: it passed, failed, or is the reason why the step waits."""
    return verdict.outcome != Outcome.INCONCLUSIVE or (isinstance(verdict, State) and verdict.waits)


def overall(gates: Iterable[Verdict]) -> Outcome:
    """Combine the outcomes.

    `Fail` if any gate failed, `Pass` if all passed, else `Inconclusive`.
    """
    found = {each.outcome for each in gates}
    if Outcome.FAIL in found:
        return Outcome.FAIL
    return Outcome.PASS if found == {Outcome.PASS} else Outcome.INCONCLUSIVE


def step_text(step: Step) -> str:
    """Describe the verdicts at one weight."""
    found = (f"{each.outcome}: {each.text or each.gate}" for each in step.gates)
    return f"{step.weight} % since {step.since:%H:%M:%S}: {'; '.join(found)}"


def sentence(current: Current) -> str:
    """Describe the gates at the present weight, with their newest figures."""
    found = (f"{each.outcome}: {each.figures.text or each.gate}" for each in current.gates)
    return f"At {current.weight} percent since {current.since:%H:%M:%S}: {'; '.join(found)}"


def bounded(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Return the last steps that fit into a record.

    Their texts are shortened and free of control characters.
    """
    last = list(steps)[-MAX_STEPS:]
    found = [
        msgspec.structs.replace(each, gates=tuple(map(_shown, each.gates[:MAX_GATES])))
        for each in last
    ]
    while len(msgspec.json.encode(found)) > MAX_RECORD_SIZE:
        del found[0]
    return tuple(found)


def shown(current: Current) -> Current:
    """Return the verdicts at the present weight, with short texts without control characters."""
    return msgspec.structs.replace(current, gates=tuple(map(_shown, current.gates[:MAX_GATES])))


def _shown(verdict: AnyVerdict) -> AnyVerdict:
    texts = {
        "gate": untrusted.clipped(verdict.gate, MAX_NAME_LENGTH),
        "outcome": untrusted.clipped(verdict.outcome, MAX_NAME_LENGTH),
        "text": untrusted.clipped(verdict.text, MAX_TEXT_LENGTH),
    }
    return msgspec.structs.replace(verdict, **texts)
