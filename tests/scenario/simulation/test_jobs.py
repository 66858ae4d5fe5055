"""RayJobs with interruptions at every write: a few seeds here, any number with `make simulate`."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from common.api.ray_job import RayJob, SubmissionMode
from job_reconciler import attempts, outcome
from job_reconciler.phases import ending, running
from scenario.simulation import job_draws, job_simulator
from scenario.simulation.boundaries import Fate, Strike
from scenario.simulation.job_draws import Happening, JobDraw, JobPlan
from scenario.simulation.job_simulator import Result

SEEDS = range(1, 13)
PLAN = JobPlan(
    name="job0",
    mode="K8sJobMode",
    retries=0,
    results=("SUCCEEDED",),
    seconds=10.0,
    shuts_down=False,
)
REPLACED_HEAD = JobDraw(
    seed=1, jobs=(PLAN,), happenings=(Happening(at=6.0, what="head replaced", seconds=90.0),)
)
IN_HTTP_MODE = replace(REPLACED_HEAD, jobs=(replace(PLAN, mode="HTTPMode"),))


def report(result: Result) -> str:
    return f"{result.found}\n{result.draw}"


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_job_breaks_a_law(seed: int) -> None:
    result = await job_simulator.run(job_draws.draw(seed))
    assert not result.found, report(result)


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
async def test_no_fate_of_any_write_breaks_a_law(mode: str, fate: Fate) -> None:
    plan = JobPlan(name="job0", mode=mode, retries=1, results=("FAILED", "SUCCEEDED"), seconds=1.0)
    for write in (2, 7, 12, 17):
        strike = Strike(write=write, fate=fate, seconds=3.0, down=2.0)
        result = await job_simulator.run(JobDraw(seed=write, jobs=(plan,), strikes=(strike,)))
        assert not result.found, report(result)
        assert result.drivers == 2


async def test_a_seed_gives_the_same_run_twice() -> None:
    first, second = [await job_simulator.run(job_draws.draw(11)) for _ in range(2)]
    assert first == second


def _returns_nothing(*_: object) -> None:
    """Replace a decision by one that ends no attempt."""


def _returns_nothing_to_do(_: object) -> tuple[()]:
    """Replace a decision by one without actions."""
    return ()


def _submits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit a job again that Ray no longer knows."""
    honest: Callable[..., bool] = outcome._must_submit  # pyright: ignore[reportPrivateUsage]

    def must_submit(job: RayJob) -> bool:
        return honest(job) or job.spec.submission_mode == SubmissionMode.HTTP

    monkeypatch.setattr(outcome, "_must_submit", must_submit)
    monkeypatch.setattr(outcome, "_after_not_found", _returns_nothing)
    monkeypatch.setattr(running, "_find_lost_run", _returns_nothing)


def _keeps_submitters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the submitter of an ended attempt continue."""
    monkeypatch.setattr(ending, "_delete_late_submitter", _returns_nothing_to_do)


def _counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count each success twice."""
    honest = attempts.finish

    def finish(*args: Any) -> Any:
        status = honest(*args)
        return replace(status, succeeded=2 * (status.succeeded or 0))

    monkeypatch.setattr(attempts, "finish", finish)


@pytest.mark.parametrize(
    ("sabotage", "draw", "law"),
    [
        (_submits_again, IN_HTTP_MODE, "one driver for one attempt"),
        (_keeps_submitters, REPLACED_HEAD, "one driver for one attempt"),
        (_counts_twice, replace(REPLACED_HEAD, happenings=()), "each attempt is counted once"),
    ],
)
async def test_a_reconciler_that_does_wrong_breaks_a_law(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    draw: JobDraw,
    law: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sabotage(monkeypatch)
    result = await job_simulator.run(draw)
    assert law in {found.partition(" (")[0] for found in result.found}
