"""How a plan is carried out: what a failure ends, and what it does not."""

import pytest

from common import errors
from common.api.event import normal
from common.api.meta import ObjectMeta
from common.bus.cache import Cache
from common.kube.actions import Tell, Write
from common.kube.carrier import Carrier
from common.kube.events import EventRecorder
from common.kube.resources import RAY_SERVICE
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube


class Step(Write, frozen=True, kw_only=True):
    name: str
    fails: errors.RaybusError | None = None


async def carried(*actions: Step | Tell) -> tuple[list[str], list[str], errors.RaybusError | None]:
    """Return what was done, what was told, and what was raised."""
    kube, done = FakeKube(), list[str]()
    recorder = EventRecorder(kube, controller="c", instance="i", clock=FakeClock())
    carrier = Carrier(kube, Cache(), recorder, views={}, regarding=RAY_SERVICE)

    async def do(step: Step) -> bool:
        if step.fails is not None:
            raise step.fails
        done.append(step.name)
        return True

    problem: errors.RaybusError | None = None
    try:
        await carrier.carry_out(ObjectMeta(name="demo", namespace="default", uid="u"), actions, do)
    except errors.RaybusError as raised:
        problem = raised
    return done, [note for _, _, note in kube.events()], problem


REFUSED = errors.Forbidden("denied")


async def test_a_refusal_ends_its_chain_and_is_raised_in_the_end() -> None:
    told = Tell(event=normal("Moved", "Upgrade", "moved"))
    done, notes, problem = await carried(
        Step(name="a", fails=REFUSED), Step(name="b"), told, Step(name="x", chain="other"), Step(name="c")
    )
    assert (done, notes, problem) == (["x"], [], REFUSED)


@pytest.mark.parametrize(
    "problem", [errors.Conflict("old"), errors.NotFound("gone"), errors.NotOurs("another's"), errors.Invariant("bug")]
)
async def test_what_shows_that_the_plan_is_old_ends_all_of_it(problem: errors.RaybusError) -> None:
    done, _, raised = await carried(Step(name="a", fails=problem), Step(name="x", chain="other"))
    assert (done, raised) == ([], problem)


async def test_of_two_refusals_the_first_is_raised() -> None:
    second = errors.Unavailable("away")
    done, _, raised = await carried(Step(name="a", fails=REFUSED), Step(name="x", chain="other", fails=second))
    assert (done, raised) == ([], REFUSED)
