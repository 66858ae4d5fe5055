"""A good run breaks no law about RayJobs, and each law is broken by a run with the matching change."""

from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checker import jobs
from chaos.report import RunEvent
from support.laws.jobs import DriverRun
from unit.chaos.a_history import HistoryBuilder
from unit.chaos.a_report import a_report

FIRST, SECOND = "train-aaaaa", "train-bbbbb"


def a_driver(job_id: str, began: float, ended: float, status: str) -> DriverRun:
    return DriverRun(job_id=job_id, cluster=job_id, began=began, ended=ended, status=status)


def some_drivers() -> list[DriverRun]:
    return [a_driver(FIRST, 1.0, 2.0, "FAILED"), a_driver(SECOND, 5.0, 6.0, "SUCCEEDED")]


def job(builder: HistoryBuilder, at: float, state: str, **more: Any) -> HistoryBuilder:
    """Add a state of the RayJob `train`."""
    is_gone = more.pop("is_gone", False)
    name, is_going = more.pop("name", "train"), more.pop("is_going", False)
    labels, annotations = more.pop("labels", {}), more.pop("annotations", {})
    status = {"jobDeploymentStatus": state, **more}
    return builder.state(
        "RayJob",
        name,
        at=at,
        is_gone=is_gone,
        is_going=is_going,
        labels=labels,
        annotations=annotations,
        spec={"backoffLimit": 1},
        status=status,
    )


def cluster(
    builder: HistoryBuilder, name: str, *, at: float = 0.0, is_gone: bool = False
) -> HistoryBuilder:
    labels = {
        "ray.io/originated-from-cr-name": "train",
        "ray.io/originated-from-crd": "RayJob",
    }
    return builder.state("RayCluster", name, at=at, labels=labels, is_gone=is_gone)


def attempt(name: str, ray: str = "", **more: Any) -> dict[str, Any]:
    return {"jobId": name, "rayClusterName": name, "jobStatus": ray, **more}


def a_run(*, until: int = 9) -> HistoryBuilder:
    """Return a job whose first attempt fails and whose second one succeeds."""
    builder = HistoryBuilder()
    steps = [
        lambda: job(builder, 0.0, "Initializing", **attempt(FIRST)),
        lambda: cluster(builder, FIRST),
        lambda: job(builder, 1.5, "Running", **attempt(FIRST, "RUNNING")),
        lambda: job(
            builder, 3.0, "Retrying", **attempt(FIRST, "FAILED", reason="AppFailed", failed=1)
        ),
        lambda: cluster(builder, FIRST, is_gone=True),
        lambda: job(builder, 4.0, "Initializing", **attempt(SECOND, failed=1)),
        lambda: cluster(builder, SECOND),
        lambda: job(builder, 5.5, "Running", **attempt(SECOND, "RUNNING", failed=1)),
        lambda: job(
            builder, 7.0, "Complete", **attempt(SECOND, "SUCCEEDED", failed=1, succeeded=1)
        ),
    ]
    for step in steps[:until]:
        step()
    return builder


def broken(builder: HistoryBuilder, drivers: list[DriverRun] | None = None) -> set[str]:
    """Return the names of the broken laws."""
    found = jobs.judge(builder.seen, some_drivers() if drivers is None else drivers, end=9.0)
    assert all(each.about and each.text for each in found)
    return {each.rule for each in found}


def a_scheduled_run(builder: HistoryBuilder, name: str, at: float) -> HistoryBuilder:
    """Add a RayJob of the same run of the RayCronJob `nightly`."""
    return job(
        builder,
        at,
        "Initializing",
        name=name,
        labels={"ray.io/cronjob-name": "nightly"},
        annotations={"ray.io/cronjob-scheduled-timestamp": "2026-01-01T00:00:00Z"},
    )


@pytest.mark.parametrize(
    ("builder", "job_id", "about", "at"),
    [
        pytest.param(a_run(), SECOND, "ns/train", 7.0, id="the job ID of a RayJob"),
        pytest.param(
            cluster(a_run(), "train-ccccc", at=8.0),
            "train-ccccc",
            "ns/train",
            8.0,
            id="no RayJob names the job ID",
        ),
        pytest.param(a_run(), "train-ccccc", "train-ccccc", 9.0, id="nothing names the job ID"),
        pytest.param(
            job(a_run(), 8.0, "Running", **attempt(SECOND, failed=1, succeeded=1)),
            "",
            "ns/train",
            8.0,
            id="a RayJob",
        ),
        pytest.param(
            a_scheduled_run(a_scheduled_run(a_run(), "nightly-1", 7.5), "nightly-2", 8.5),
            "",
            "ns/nightly",
            8.5,
            id="a scheduled run",
        ),
    ],
)
def test_a_violation_has_the_root_and_the_last_time_of_its_subject(
    builder: HistoryBuilder, job_id: str, about: str, at: float
) -> None:
    again = [a_driver(job_id, 5.0, 6.0, "SUCCEEDED")] if job_id else []
    (found,) = jobs.judge(builder.seen, [*some_drivers(), *again], end=9.0)
    assert (found.about, found.at) == (about, at)


def test_the_report_has_the_events_of_the_root_until_the_violation() -> None:
    again = a_driver(SECOND, 5.0, 6.0, "SUCCEEDED")
    (found,) = jobs.judge(a_run().seen, [*some_drivers(), again], end=90.0)
    events = [
        RunEvent(6.0, "ns/train", "the driver ends"),
        RunEvent(6.5, "ns/other", "another job"),
        RunEvent(80.0, "", "a later fault"),
    ]
    report = replace(a_report(found), timeline=events)
    assert report.leading_to(found) == events[:1]


def test_a_good_run_breaks_no_law() -> None:
    assert not broken(a_run())


def test_a_driver_that_runs_twice_in_one_attempt() -> None:
    again = a_driver(SECOND, 5.0, 6.0, "SUCCEEDED")
    assert broken(a_run(), [*some_drivers(), again]) == {"one driver for one attempt"}


def test_a_driver_that_no_status_has_named() -> None:
    stray = a_driver("train-ccccc", 5.0, 6.0, "SUCCEEDED")
    assert broken(a_run(), [*some_drivers(), stray]) == {"no driver without an attempt"}


@pytest.mark.parametrize(
    ("number", "status", "ended"),
    [
        (1, "FAILED", 6.0),  # the record says that it has succeeded
        (0, "SUCCEEDED", 2.0),  # the record says that it has failed
        (0, "FAILED", 3.5),  # recorded as failed while it runs
    ],
)
def test_a_record_that_differs_from_the_driver(number: int, status: str, ended: float) -> None:
    drivers = some_drivers()
    drivers[number] = replace(drivers[number], status=status, ended=ended)
    assert broken(a_run(), drivers) == {"a record says how the driver ended"}


def test_a_success_without_any_driver() -> None:
    assert broken(a_run(), some_drivers()[:1]) == {"a record says how the driver ended"}


@pytest.mark.parametrize(
    "lost", [{"ended": None, "status": "RUNNING", "lost_at": 2.5}, {"lost_at": 2.5}]
)
def test_a_head_that_went_away_tells_nothing(lost: dict[str, Any]) -> None:
    first, second = some_drivers()
    assert not broken(a_run(), [replace(first, **{"status": "SUCCEEDED", **lost}), second])


def test_a_deadline_ends_a_driver_that_would_have_succeeded() -> None:
    builder = HistoryBuilder()
    job(builder, 0.0, "Running", **attempt(FIRST, "RUNNING"))
    ended = attempt(FIRST, "RUNNING", reason="DeadlineExceeded", failed=1)
    job(builder, 3.0, "Failed", **ended)
    assert not broken(builder, [a_driver(FIRST, 1.0, 3.1, "STOPPED")])


def test_attempts_that_are_counted_twice() -> None:
    builder = a_run(until=8)
    job(builder, 7.0, "Complete", **attempt(SECOND, "SUCCEEDED", failed=1, succeeded=2))
    assert broken(builder) == {"each attempt is counted once"}


def test_an_attempt_that_is_not_counted() -> None:
    builder = a_run(until=8)
    job(builder, 7.0, "Complete", **attempt(SECOND, "SUCCEEDED", failed=1))
    assert broken(builder) == {"each attempt is counted once"}


def test_more_failures_than_the_backoff_limit_allows() -> None:
    builder = a_run(until=5)
    job(builder, 4.0, "Retrying", **attempt(SECOND, "FAILED", failed=2))
    job(builder, 5.0, "Failed", **attempt("train-ccccc", "FAILED", failed=3))
    drivers = [a_driver(name, 1.0, 2.0, "FAILED") for name in (FIRST, SECOND, "train-ccccc")]
    assert broken(builder, drivers) == {"each attempt is counted once"}


def test_a_counter_that_falls() -> None:
    builder = a_run(until=8)
    job(builder, 7.0, "Complete", **attempt(SECOND, "SUCCEEDED", succeeded=1))
    assert "no counter falls" in broken(builder)


def test_a_job_that_goes_on_after_its_end() -> None:
    builder = job(a_run(), 8.0, "Running", **attempt(SECOND, "RUNNING", failed=1, succeeded=1))
    assert broken(builder) == {"an ended job stays ended"}


@pytest.mark.parametrize(
    "end", [{"state": "Complete"}, {"is_going": True}, {"is_gone": True}, {"state": "Suspended"}]
)
def test_a_driver_that_runs_on(end: dict[str, Any]) -> None:
    builder = a_run(until=8)
    fields = {"state": "Running", **attempt(SECOND, "RUNNING", failed=1), **end}
    if end.get("state") == "Complete":
        fields |= {"reason": "DeadlineExceeded", "failed": 2}
    job(builder, 7.0, **fields)
    first, second = some_drivers()
    second = replace(second, ended=None, status="RUNNING")
    assert "no driver outlives its job" in broken(builder, [first, second])


def test_a_cluster_that_is_deleted_before_the_outcome_is_recorded() -> None:
    builder = cluster(a_run(until=8), SECOND, is_gone=True)
    job(builder, 7.0, "Complete", **attempt(SECOND, "SUCCEEDED", failed=1, succeeded=1))
    assert broken(builder) == {"the outcome is recorded before a deletion"}


def test_a_cluster_goes_with_its_job() -> None:
    builder = job(a_run(until=8), 6.5, "Running", **attempt(SECOND, failed=1), is_going=True)
    cluster(builder, SECOND, is_gone=True)
    assert not broken(builder)


def test_a_scheduled_run_that_starts_twice() -> None:
    builder = a_scheduled_run(HistoryBuilder(), "nightly-1", 0.0)
    assert not broken(builder, [])
    a_scheduled_run(builder, "nightly-2", 0.0)
    assert broken(builder, []) == {"a scheduled run starts once"}
