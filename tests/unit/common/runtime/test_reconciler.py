"""One reconcile: the state is read, a plan is made and executed, and the earliest requested time is
kept.
"""

from datetime import UTC, datetime, timedelta

import pytest

from common import errors
from common.runtime.actions import Action, Plan
from common.runtime.executor import Executed, FailedAction
from common.runtime.key import Key
from common.runtime.reconciler import Reconciler

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = Key("ns", "c")


class Service:
    """A reconciler of numbers: a plan contains a number until it was read twice."""

    def __init__(
        self, *, found: int | None = 1, planned: float | None = None, left: float | None = None
    ) -> None:
        self.found, self.planned = found, planned
        self.executed: list[tuple[int, str]] = []
        self.result = Executed(requeue_at=_in(left, NOW))

    async def observe(self, key: Key, now: datetime) -> int | None:
        assert (key, now) == (KEY, NOW)
        return self.found

    def make_plan(self, observed: int, now: datetime) -> Plan[Action]:
        return Plan(note=f"plan of {observed}", requeue_at=_in(self.planned, now))

    async def execute(self, observed: int, plan: Plan[Action]) -> Executed:
        self.executed.append((observed, plan.note))
        return self.result

    async def recheck(self, observed: int, plan: Plan[Action]) -> int | None:
        assert plan.note == f"plan of {observed}"
        return observed + 1 if observed < 3 else None


def _in(seconds: float | None, now: datetime) -> datetime | None:
    return None if seconds is None else now + timedelta(seconds=seconds)


async def test_what_is_gone_is_not_planned() -> None:
    service = Service(found=None)
    assert (
        await Reconciler(service.observe, service.make_plan, service.execute)(KEY, now=NOW) is None
    )
    assert service.executed == []


async def test_a_plan_is_made_anew_until_what_it_relies_on_is_fresh() -> None:
    service = Service()
    await Reconciler(service.observe, service.make_plan, service.execute, recheck=service.recheck)(
        KEY, now=NOW
    )
    assert service.executed == [(3, "plan of 3")]


async def test_a_plan_that_never_holds_ends_the_reconcile() -> None:
    async def recheck(observed: int, plan: Plan[Action]) -> int:
        return observed + 1

    service = Service()
    with pytest.raises(errors.Retryable, match="stale again"):
        await Reconciler(service.observe, service.make_plan, service.execute, recheck=recheck)(
            KEY, now=NOW
        )
    assert service.executed == []


@pytest.mark.parametrize(
    ("planned", "left", "expected"),
    [(None, None, None), (5, None, 5), (None, 3, 3), (5, 3, 3), (2, 3, 2)],
)
async def test_the_earliest_moment_counts(
    planned: float | None, left: float | None, expected: float | None
) -> None:
    service = Service(planned=planned, left=left)
    again = await Reconciler(service.observe, service.make_plan, service.execute)(KEY, now=NOW)
    assert again == _in(expected, NOW)


async def test_the_rest_of_a_plan_that_was_cut_is_due_at_once() -> None:
    service = Service(planned=5)
    service.result = Executed(is_cut=True)
    assert (
        await Reconciler(service.observe, service.make_plan, service.execute)(KEY, now=NOW) == NOW
    )


async def test_the_first_failure_of_a_plan_is_raised() -> None:
    service, problem = Service(planned=5), errors.Forbidden("denied")
    service.result = Executed(
        failures=(FailedAction(Action(), problem), FailedAction(Action(), errors.Conflict("old")))
    )
    with pytest.raises(errors.Forbidden, match="denied"):
        await Reconciler(service.observe, service.make_plan, service.execute)(KEY, now=NOW)
