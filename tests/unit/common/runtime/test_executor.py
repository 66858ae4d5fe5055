"""How a plan is executed: what a failure ends, and what it does not; batches, their time slice, and the Events."""

from collections.abc import Sequence
from typing import ClassVar

import pytest

from common import errors
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from common.kube.resources import RAY_SERVICE
from common.runtime.actions import (
    Action,
    ActionEvents,
    EmitEvent,
    Parallel,
    Plan,
    Refuse,
    normal,
    warning,
)
from common.runtime.cache import Cache
from common.runtime.events import EventRecorder
from common.runtime.executor import SLICE, Executed, Executor
from common.runtime.writer import Writer
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

REFUSED = errors.Forbidden("denied")
AWAY = errors.Unavailable("away")
STALE = errors.Conflict("old")
MOVED = normal("Moved", "Upgrade", "moved")


class Step(Action, frozen=True, kw_only=True):
    name: str
    fails: errors.RaybusError | None = None
    seconds: float = 0.0
    is_part: bool = False

    @property
    def continues(self) -> bool:
        return self.is_part


class Optional(Step, frozen=True, kw_only=True):
    is_optional: ClassVar[bool] = True


class Run:
    """An executed plan: the actions batch by batch, the Events, and the result."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube()
        self.done: list[str] = []
        recorder = EventRecorder(
            self.kube, RAY_SERVICE, controller="c", instance="i", clock=self.clock
        )
        self.executor = Executor[RayService](
            recorder,
            clock=self.clock,
            writer_of=self._writer,
            handlers=dict.fromkeys((Step, Optional), self._perform),
        )

    async def execute(self, *steps: Action | Parallel) -> Executed:
        root = RayService(metadata=ObjectMeta(name="demo", namespace="default", uid="u"))
        return await self.executor.execute(root, Plan(actions=steps))

    def _writer(self, root: RayService) -> Writer:
        return Writer(self.kube, Cache(), {}, resource=RAY_SERVICE, root=root)

    async def _perform(self, action: Step, observed: RayService, writer: Writer) -> bool:
        assert writer.root is observed
        self.clock.advance(action.seconds)
        if action.fails is not None:
            raise action.fails
        self.done.append(action.name)
        return True

    @property
    def notes(self) -> list[str]:
        return [note for _, _, note in self.kube.events()]


async def executed(
    *steps: Action | Parallel,
) -> tuple[list[str], list[str], errors.RaybusError | None]:
    """Return the executed actions, the notes of the Events, and the raised error."""
    run = Run()
    result = await run.execute(*steps)
    return run.done, run.notes, result.error


def some(
    names: str, *, fails: errors.RaybusError | None = None, seconds: float = 0.0
) -> tuple[Step, ...]:
    return tuple(Step(name=name, fails=fails, seconds=seconds) for name in names)


async def test_a_refusal_ends_its_chain_and_is_raised_in_the_end() -> None:
    done, notes, problem = await executed(
        Step(name="a", fails=REFUSED),
        Step(name="b"),
        EmitEvent(event=MOVED),
        Step(name="x", chain="other"),
        Step(name="c"),
    )
    assert (done, notes, problem) == (["x"], [], REFUSED)


async def test_after_a_failure_of_a_side_action_the_plan_continues() -> None:
    done, notes, problem = await executed(
        Step(name="a", fails=AWAY, is_side=True), Step(name="b"), EmitEvent(event=MOVED)
    )
    assert (done, notes, problem) == (["b"], ["moved"], AWAY)


@pytest.mark.parametrize(
    "problem",
    [STALE, errors.NotFound("gone"), errors.OwnershipLost("another's"), errors.Invariant("bug")],
)
async def test_what_shows_that_the_plan_is_stale_ends_all_of_it(
    problem: errors.RaybusError,
) -> None:
    done, _, raised = await executed(Step(name="a", fails=problem), Step(name="x", chain="other"))
    assert (done, raised) == ([], problem)


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize(
    ("problem", "notes"),
    [
        pytest.param(errors.OwnershipLost("our Lease is not sure"), [], id="fenced"),
        pytest.param(errors.NamespaceTerminating("is being terminated"), [], id="terminating"),
        pytest.param(REFUSED, ["not written: denied"], id="refused"),
    ],
)
async def test_no_event_reports_a_failure_that_would_refuse_the_event(
    problem: errors.RaybusError, notes: list[str], *, is_parallel: bool
) -> None:
    report = ActionEvents(failure=warning("NotWritten", "Reconcile", "not written: "))
    step = Step(name="a", fails=problem, events=report)
    _, found, raised = await executed(Parallel(actions=(step,)) if is_parallel else step)
    assert (found, raised) == (notes, problem)


async def test_what_ends_a_plan_is_raised_before_an_earlier_refusal() -> None:
    _, _, raised = await executed(
        Step(name="a", fails=REFUSED, is_side=True), Step(name="b", fails=STALE)
    )
    assert raised is STALE


async def test_of_two_refusals_the_first_is_raised() -> None:
    done, _, raised = await executed(
        Step(name="a", fails=REFUSED), Step(name="x", chain="other", fails=AWAY)
    )
    assert (done, raised) == ([], REFUSED)


async def test_an_action_is_reported_with_its_error_and_a_conflict_is_not() -> None:
    events = ActionEvents(success=MOVED, failure=warning("Stuck", "Upgrade", "stuck: "))
    _, notes, _ = await executed(
        Step(name="a", events=events), Step(name="b", events=events, fails=REFUSED)
    )
    assert notes == ["moved", "stuck: denied"]
    assert (await executed(Step(name="b", events=events, fails=STALE)))[1] == []


async def test_a_refusal_by_the_plan_itself_fails_with_its_note() -> None:
    done, notes, raised = await executed(
        Refuse(event=warning("Bad", "Validate", "no account")), Step(name="a")
    )
    assert (done, notes) == ([], ["no account"])
    assert isinstance(raised, errors.InvalidSpec)
    assert str(raised) == "no account"


async def test_after_a_failure_no_further_batch_is_begun() -> None:
    done, _, raised = await executed(
        Parallel(actions=(*some("a", fails=REFUSED), *some("bcdefgh"), *some("i"))), *some("j")
    )
    assert (done, raised) == (list("bcdefgh"), REFUSED)


async def test_slow_start_spares_the_api_server() -> None:
    run = Run()
    actions = (*some("abc"), *some("d", fails=REFUSED), *some("efgh"))
    result = await run.execute(Parallel(actions=actions, starts_slowly=True))
    assert (run.done, len(result.failures)) == (list("abcefg"), 1), "batches of 1, 2 and 4"


@pytest.mark.parametrize(
    ("problem", "done"),
    [(REFUSED, ["x"]), (STALE, ["x"]), (AWAY, []), (errors.Throttled("wait"), [])],
)
async def test_a_side_step_ends_the_plan_only_if_the_api_server_does_not_answer(
    problem: errors.RaybusError, done: Sequence[str]
) -> None:
    steps = (Parallel(actions=some("a", fails=problem), is_side=True), Parallel(actions=some("x")))
    assert (await executed(*steps))[::2] == (done, problem)


async def test_events_of_a_step_come_after_all_writes_and_alike_ones_are_one() -> None:
    events = ActionEvents(success=MOVED)
    run = Run()
    await run.execute(
        Parallel(actions=tuple(Step(name=name, events=events) for name in "abc")), Step(name="d")
    )
    (event,) = (each.body for each in run.kube.requests)
    assert (run.done, event["series"]["count"]) == (list("abcd"), 3)


async def test_a_plan_that_takes_too_long_is_cut() -> None:
    run = Run()
    result = await run.execute(
        Parallel(actions=some("abcdefghi", seconds=SLICE)), Parallel(actions=some("j"))
    )
    assert (run.done, result.is_cut) == (list("abcdefgh"), True)


async def test_what_is_begun_is_completed_before_the_cut() -> None:
    run = Run()
    parts = (Step(name="b", is_part=True), Step(name="c", is_part=True), Step(name="d"))
    result = await run.execute(
        Parallel(actions=(*some("a", seconds=SLICE), *parts), starts_slowly=True)
    )
    assert (run.done, result.is_cut) == (list("abc"), True)


async def test_a_plan_in_time_is_not_cut() -> None:
    run = Run()
    result = await run.execute(Parallel(actions=some("a", seconds=SLICE)))
    assert (run.done, result.is_cut) == (["a"], False)


@pytest.mark.parametrize("is_parallel", [False, True])
async def test_a_failure_of_an_optional_action_is_reported_and_nothing_else(
    is_parallel: bool,
) -> None:
    note = ActionEvents(failure=warning("Failed", "Do", "failed: "))
    first = Optional(name="a", fails=REFUSED, events=note)
    done, notes, error = await executed(
        Parallel(actions=(first,)) if is_parallel else first, Step(name="b")
    )
    assert (done, notes, error) == (["b"], ["failed: denied"], None)
