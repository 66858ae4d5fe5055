"""The intervals and moments at which Ray is asked about a job."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from job_reconciler import polling
from support.builders.ray_job import a_ray_job

NOW = datetime(2026, 1, 1, 12, 0, 0, 400_000, tzinfo=UTC)


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


@pytest.mark.parametrize(
    ("mode", "quiet", "jobs", "interval"),
    [
        pytest.param("HTTPMode", 0, 1, 0.5, id="often after a change"),
        pytest.param("HTTPMode", 30, 1, 1.5, id="less often with time"),
        pytest.param("HTTPMode", 3600, 1, 3, id="but as often as KubeRay"),
        pytest.param("HTTPMode", 3600, 450, 30, id="a replica has a limit for all jobs"),
        pytest.param("HTTPMode", 10, 450, 5, id="which delays a short job by half of its time"),
        pytest.param("HTTPMode", 0, 100, 2, id="many new jobs share a higher limit"),
        pytest.param("HTTPMode", 0, 450, 3, id="but each is asked about as often as by KubeRay"),
        pytest.param("K8sJobMode", 3600, 500, 62.5, id="a lower one if a submitter tells the end"),
    ],
)
def test_the_interval(mode: str, quiet: float, jobs: int, interval: float) -> None:
    start = (NOW - seconds(quiet)).isoformat()
    job = a_ray_job(submissionMode=mode, status={"startTime": start})
    assert polling.compute_interval(job, jobs, NOW) == seconds(interval)


@pytest.mark.parametrize(
    ("interval", "age", "after"),
    [
        pytest.param(0.5, 0.1, 0.5, id="a short interval is exact"),
        pytest.param(3, 1.2, 2.6, id="a long one ends at a full second"),
        pytest.param(3, 2.4, 0.6, id="... at the next one"),
        pytest.param(3, 9, 0.6, id="an answer that is too old is replaced soon"),
    ],
)
def test_the_next_poll(interval: float, age: float, after: float) -> None:
    found = polling.compute_next_poll(seconds(interval), seconds(age), NOW)
    assert found == NOW + seconds(after)


@given(interval=st.floats(3, 100), age=st.floats(0, 200), offset=st.floats(0, 1))
def test_a_late_poll_is_less_than_a_second_late(interval: float, age: float, offset: float) -> None:
    now = NOW + seconds(offset)
    found = polling.compute_next_poll(seconds(interval), seconds(age), now)
    due = now + max(seconds(interval - age), polling.MIN_INTERVAL)
    assert found.microsecond == 0
    assert seconds(0) <= found - due + timedelta(microseconds=1) <= seconds(1)
