"""The gates of an upgrade as users see them: the outcome of all, and a text of each. Pure."""

from collections.abc import Iterable

from common.upgrade.gate_record import Current, State, Step, Verdict
from common.upgrade.gates import Outcome


def is_one(verdict: Verdict) -> bool:
    """Return whether a gate has a verdict: it passed, it failed, or the step waits for it."""
    return verdict.outcome != Outcome.INCONCLUSIVE or (isinstance(verdict, State) and verdict.waits)


def overall(gates: Iterable[Verdict]) -> Outcome:
    """Return the outcome of several gates; an unknown one decides nothing."""
    found = {each.outcome for each in gates}
    if Outcome.FAIL in found:
        return Outcome.FAIL
    return Outcome.PASS if found == {Outcome.PASS} else Outcome.INCONCLUSIVE


def texts(current: Current) -> list[str]:
    """Return a text for each gate, with its newest figures."""
    return [f"{each.outcome}: {each.figures.text or each.gate}" for each in current.gates]


def of_step(step: Step) -> str:
    """Return what the gates came to at a weight as one text."""
    found = (f"{each.outcome}: {each.text or each.gate}" for each in step.gates)
    return f"{step.weight} % since {step.since:%H:%M:%S}: {'; '.join(found)}"


def sentence(current: Current) -> str:
    """Return the gates at the present weight as one text."""
    return f"At {current.weight} percent since {current.since:%H:%M:%S}: {'; '.join(texts(current))}"
