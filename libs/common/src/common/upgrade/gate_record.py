"""The outcomes of gates at each step of an upgrade, as kept in annotations.

The annotations are the traffic record of a route and the receipt of an upgrade. A verdict contains
the figures on which it is based, because it is also published as an event, which must be identical
if it is published again. Whoever may write the annotated object can replace the record. Therefore
`bounded` or `shown` must be applied before users see it.
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
"""Maximum bytes of the verdicts of all steps.

Kubernetes allows 256 KiB for all annotations of one object."""
MAX_TEXT_LENGTH: Final = 200
MAX_NAME_LENGTH: Final = 64
"""Characters after which the names of a gate and of its outcome are cut off."""


class RecordedFigures(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The measurements of a gate."""

    requests: int = 0
    value: float | None = None
    """Measured value: fraction of requests, seconds, or result of a query; None without data."""
    limit: float | None = None
    text: str = ""
    """The measurements in words, for users."""


class Verdict(RecordedFigures, frozen=True, kw_only=True, rename="camel"):
    """The outcome of a gate, with the figures on which it is based."""

    gate: str
    outcome: str
    """A value of `common.upgrade.gates.GateOutcome`, or one that only a later release knows."""
    at: datetime
    """When the gate reached this outcome."""


class GateState(Verdict, frozen=True, kw_only=True, rename="camel"):
    """The verdict of a gate at the present weight."""

    waits: bool = False
    """Whether the step waits for this gate. False while anything but a gate holds the step."""
    latest: RecordedFigures | UnsetType = UNSET
    """Newer measurements than those on which the outcome is based, if there are any."""

    @property
    def figures(self) -> RecordedFigures:
        return self if isinstance(self.latest, UnsetType) else self.latest


class StepVerdicts(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts of the gates at one traffic weight."""

    weight: int
    since: datetime
    """When the new cluster got this weight."""
    gates: tuple[Verdict, ...]


class Current(AnnotationRecord, frozen=True, kw_only=True, rename="camel"):
    """The verdicts of the gates at the present traffic weight."""

    weight: int
    since: datetime
    written_at: datetime
    gates: tuple[GateState, ...]


AnyVerdict = TypeVar("AnyVerdict", bound=Verdict)


def closed(current: Current) -> StepVerdicts:
    """Convert the verdicts at the present weight to those of a finished step."""
    return msgspec.convert(current, StepVerdicts, from_attributes=True)


def is_verdict(verdict: Verdict) -> bool:
    """Return whether to report a gate: it passed, it failed, or the step waits for it."""
    return verdict.outcome != GateOutcome.INCONCLUSIVE or (
        isinstance(verdict, GateState) and verdict.waits
    )


def overall(gates: Iterable[Verdict]) -> GateOutcome:
    """Return `Fail` if any gate failed, `Pass` if all gates passed, and else `Inconclusive`."""
    outcomes = {verdict.outcome for verdict in gates}
    if GateOutcome.FAIL in outcomes:
        return GateOutcome.FAIL
    return GateOutcome.PASS if outcomes == {GateOutcome.PASS} else GateOutcome.INCONCLUSIVE


def step_text(step: StepVerdicts) -> str:
    """Describe the verdicts at one weight, for users."""
    texts = (f"{verdict.outcome}: {verdict.text or verdict.gate}" for verdict in step.gates)
    return f"{step.weight} % since {step.since:%H:%M:%S}: {'; '.join(texts)}"


def sentence(current: Current) -> str:
    """Describe the verdicts at the present weight with the newest figures, for users."""
    texts = (f"{state.outcome}: {state.figures.text or state.gate}" for state in current.gates)
    return f"At {current.weight} percent since {current.since:%H:%M:%S}: {'; '.join(texts)}"


def bounded(steps: Iterable[StepVerdicts]) -> tuple[StepVerdicts, ...]:
    """Return the last steps, as many as fit into a record.

    Texts in them are shortened and cleaned of control characters.
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
    """Return the verdicts with shortened texts that have no control characters."""
    return msgspec.structs.replace(current, gates=tuple(map(_shown, current.gates[:MAX_GATES])))


def _shown(verdict: AnyVerdict) -> AnyVerdict:
    texts = {
        "gate": untrusted.clipped(verdict.gate, MAX_NAME_LENGTH),
        "outcome": untrusted.clipped(verdict.outcome, MAX_NAME_LENGTH),
        "text": untrusted.clipped(verdict.text, MAX_TEXT_LENGTH),
    }
    return msgspec.structs.replace(verdict, **texts)
