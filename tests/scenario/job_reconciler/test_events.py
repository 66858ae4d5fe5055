"""The events of RayJobs for other programs: complete and in order, whatever process ends or server
becomes unreachable.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from common import errors
from common.kube.resources import RAY_JOB
from job_reconciler.published_events import REPEATED_FOR
from scenario.job_reconciler.harness import NAME, Harness, Killed
from support.builders.ray_service import NAMESPACE

Story = Callable[[Harness], Awaitable[list[str]]]
MAX_PUBLISHES: Final = 20
MAX_WRITES: Final = 80
SECRET: Final = "token=hunter2"


async def _succeeds(harness: Harness) -> list[str]:
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    return ["job-submitted", "job-running", "job-succeeded"]


async def _is_stopped(harness: Harness) -> list[str]:
    harness.apply()
    await harness.until_running()
    harness.end("STOPPED")
    await harness.until_state("Complete")
    return ["job-submitted", "job-running", "job-stopped"]


async def _is_retried(harness: Harness) -> list[str]:
    harness.apply(backoffLimit=1)
    await harness.until_running()
    harness.end("FAILED", f"failed with exit code 3, last available logs:\n{SECRET}")
    await harness.until(lambda: harness.status.get("failed") == 1)
    await harness.until_running()
    harness.end("FAILED", f"failed with exit code 4, last available logs:\n{SECRET}")
    await harness.until_state("Failed")
    attempt = ["job-submitted", "job-running"]
    return [*attempt, "job-retried", *attempt, "job-failed"]


async def _is_suspended(harness: Harness) -> list[str]:
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    harness.apply(shutdownAfterJobFinishes=True, suspend=True)
    await harness.until_state("Suspended")
    await harness.run(2)
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    attempt = ["job-submitted", "job-running"]
    return [*attempt, "job-suspended", *attempt]


async def _is_deleted(harness: Harness) -> list[str]:
    harness.apply()
    await harness.until_running()
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.until(lambda: not harness.kube.all(RAY_JOB))
    return ["job-submitted", "job-running", "job-deleted"]


async def _misses_its_deadline(harness: Harness) -> list[str]:
    harness.apply(activeDeadlineSeconds=20)
    await harness.until_running()
    await harness.until_state("Failed")
    return ["job-submitted", "job-running", "job-failed"]


STORIES: Final = (
    _succeeds,
    _is_stopped,
    _is_retried,
    _is_suspended,
    _is_deleted,
    _misses_its_deadline,
)


@pytest.mark.parametrize("story", STORIES)
async def test_each_step_is_published_once_and_in_order(story: Story) -> None:
    harness = Harness()
    expected = await story(harness)
    await harness.run(5)
    assert harness.events.kinds() == expected
    assert len(harness.events.sent) == len(expected)
    ids = {report.event.data.attempt.id for report in harness.events.stored}
    assert len(ids) == expected.count("job-submitted")


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("story", STORIES)
async def test_a_death_around_a_publish_loses_none(story: Story, moment: str) -> None:
    for number in range(1, MAX_PUBLISHES):
        harness = Harness()
        kill = _kill_at(harness, moment, number)
        expected = await story(harness)
        await harness.run(5)
        assert harness.events.kinds() == expected, f"a death {moment} publish {number}"
        _assert_repetitions_are_equal(harness)
        if kill["count"] < number:
            return
    pytest.fail("the story has more events than expected")


@pytest.mark.parametrize("story", STORIES)
async def test_a_death_after_any_write_loses_none(story: Story) -> None:
    for number in range(1, MAX_WRITES):
        harness = Harness()
        harness.kill_after = number
        expected = await story(harness)
        await harness.run(5)
        assert harness.events.kinds() == expected, f"a death after write {number}"
        if harness.writes < number:
            return
    pytest.fail("the story has more writes than expected")


async def test_without_nats_a_job_waits_and_no_event_is_lost() -> None:
    harness = Harness()
    harness.apply()
    await harness.until_running()
    harness.events.problem = "NATS is not reachable"
    harness.events.on_publish.append(_unavailable)
    harness.end()
    await harness.run(60)
    assert harness.events.kinds() == ["job-submitted", "job-running"]
    harness.restart()
    await harness.run(5)
    harness.events.problem = None
    harness.events.on_publish.clear()
    await harness.until_state("Complete")
    await harness.run(5)
    assert harness.events.kinds() == ["job-submitted", "job-running", "job-succeeded"]
    assert "JobEventLost" not in harness.reasons()


async def test_a_server_that_refuses_events_does_not_stop_a_job() -> None:
    harness = Harness()
    harness.events.on_publish.append(_unavailable)
    harness.apply()
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    await harness.run(5)
    assert not harness.events.stored
    assert harness.reasons().count("JobEventLost") == 3


async def test_the_end_is_repeated_by_a_new_process_only_for_a_while() -> None:
    harness = Harness()
    await _succeeds(harness)
    await harness.run(5)
    harness.restart()
    await harness.run(5)
    last = [report.kind for report in harness.events.sent[3:]]
    assert last == ["job-running", "job-succeeded"]
    _assert_repetitions_are_equal(harness)
    harness.clock.advance(REPEATED_FOR.total_seconds() + 1)
    harness.restart()
    await harness.run(5)
    assert len(harness.events.sent) == 5


async def test_an_event_has_the_reason_and_exit_code_but_no_text_of_the_job() -> None:
    harness = Harness()
    await _is_retried(harness)
    await harness.run(5)
    retried, failed = (
        report.event.data
        for report in harness.events.unique()
        if report.kind in {"job-retried", "job-failed"}
    )
    assert (retried.reason, retried.exit_code, retried.attempt.number) == ("AppFailed", 3, 1)
    assert (failed.reason, failed.exit_code, failed.attempt.number) == ("AppFailed", 4, 2)
    assert retried.attempt.cluster != failed.attempt.cluster
    assert not any(SECRET.encode() in report.payload for report in harness.events.stored)
    assert SECRET in harness.status["message"]


async def test_a_deadline_is_explained() -> None:
    harness = Harness()
    await _misses_its_deadline(harness)
    await harness.run(5)
    failed = harness.events.unique()[-1].event.data
    assert failed.reason == "DeadlineExceeded"
    assert failed.message.startswith("The RayJob has passed the activeDeadlineSeconds.")


async def test_the_events_of_a_run_name_its_cron_job() -> None:
    harness = Harness()
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCronJob",
        "name": "nightly",
        "uid": "u",
        "controller": True,
    }
    harness.apply(meta={"ownerReferences": [owner]})
    await harness.until_running()
    assert [r.event.data.attempt.cron_job for r in harness.events.stored] == ["nightly"] * 2


def _kill_at(harness: Harness, moment: str, number: int) -> dict[str, int]:
    """End the process once around a publish; return the number of publishes."""
    state = {"count": 0}

    def kill(now: str) -> None:
        if now != moment:
            return
        state["count"] += 1
        if state["count"] == number:
            raise Killed

    harness.events.on_publish.append(kill)
    return state


def _unavailable(_moment: str) -> None:
    raise errors.Unavailable("nobody answers")


def _assert_repetitions_are_equal(harness: Harness) -> None:
    known: dict[str, Any] = {}
    for report in harness.events.sent:
        first = known.setdefault(report.event.id, report.event.data)
        assert report.event.data == first
    counts = Counter(report.event.id for report in harness.events.stored)
    assert set(counts.values()) <= {1}
