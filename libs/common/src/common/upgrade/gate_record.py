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
from common.upgrade.gates import GateOutcome

MAX_RECORD_SIZE: Final = 16 * 1024
"""Maximum bytes of all steps together; all annotations of one object may have 256 KiB."""
MAX_TEXT_LENGTH: Final = 200
MAX_NAME_LENGTH: Final = 64
"""Maximum characters of a gate's name."""


class RecordedFigures(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The measurements of a gate."""

    requests: int = 0
    value: float | None = None
    """A fraction of the requests, seconds, or the result of a query; None without data."""
    limit: float | None = None
    text: str = ""
    """The gate and its figures as a sentence for users."""


class Verdict(RecordedFigures, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a gate, with the figures on which it is based."""

    gate: str
    outcome: str
    """A member of `common.upgrade.gates.Outcome`, or an unknown value that a later release wrote.
    """
    at: datetime
    """When the gate reached this outcome."""


class GateState(Verdict, frozen=True, kw_only=True, rename="camel"):
    """The verdict of a gate at the present weight."""

    waits: bool = False
    """Whether the step waits for nothing but gates, this gate included."""
    latest: RecordedFigures | UnsetType = UNSET
    """Measurements that are newer than those on which the outcome is based."""

    @property
    def figures(self) -> RecordedFigures:
        return self if isinstance(self.latest, UnsetType) else self.latest


class StepVerdicts(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts of the gates at one traffic weight."""

    weight: int
    since: datetime
    """When the new cluster got the weight."""
    gates: tuple[Verdict, ...]


class Current(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts of the gates at the present traffic weight."""

    weight: int
    since: datetime
    written_at: datetime
    gates: tuple[GateState, ...]


AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def closed(current: Current) -> StepVerdicts:
    """Convert the present weight to a finished step."""
    return msgspec.convert(current, StepVerdicts, from_attributes=True)


def is_verdict(verdict: Verdict) -> bool:
    """Return whether to report a gate: it passed, failed, or is the reason why the step waits."""
    return verdict.outcome != GateOutcome.INCONCLUSIVE or (
        isinstance(verdict, GateState) and verdict.waits
    )


def overall(gates: Iterable[Verdict]) -> GateOutcome:
    """Combine the outcomes.

    `Fail` if any gate failed, `Pass` if all passed, else `Inconclusive`.
    """
    outcomes = {verdict.outcome for verdict in gates}
    if GateOutcome.FAIL in outcomes:
        return GateOutcome.FAIL
    return GateOutcome.PASS if outcomes == {GateOutcome.PASS} else GateOutcome.INCONCLUSIVE


def step_text(step: StepVerdicts) -> str:
    """Describe the verdicts at one weight."""
    texts = (f"{verdict.outcome}: {verdict.text or verdict.gate}" for verdict in step.gates)
    return f"{step.weight} % since {step.since:%H:%M:%S}: {'; '.join(texts)}"


def sentence(current: Current) -> str:
    """Describe the gates at the present weight, with their newest figures."""
    texts = (f"{state.outcome}: {state.figures.text or state.gate}" for state in current.gates)
    return f"At {current.weight} percent since {current.since:%H:%M:%S}: {'; '.join(texts)}"


def bounded(steps: Iterable[StepVerdicts]) -> tuple[StepVerdicts, ...]:
    """Return the last steps that fit into a record.

    Their texts are shortened and free of control characters.
    """
    last = list(steps)[-MAX_STEPS:]
    steps_kept = [
        msgspec.structs.replace(step, gates=tuple(map(_shown, step.gates[:MAX_GATES])))
        for step in last
    ]
    while len(msgspec.json.encode(steps_kept)) > MAX_RECORD_SIZE:
        del steps_kept[0]
    return tuple(steps_kept)


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
