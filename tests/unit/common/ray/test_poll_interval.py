"""The interval in which objects that send no message are polled."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.api import ray_cluster
from common.ray import poll_interval
from common.ray.view import ServeView


@pytest.mark.parametrize(
    ("quiet", "seconds"),
    [
        pytest.param(-3600, 0.25, id="a change of the future, for the clock was set"),
        pytest.param(0, 0.25, id="just now"),
        pytest.param(10, 0.25, id="quickly in a transition"),
        pytest.param(40, 1, id="a fortieth of the wait"),
        pytest.param(200, 5, id="the slowest"),
        pytest.param(86400, 5, id="for ever"),
    ],
)
def test_the_longer_nothing_changes_the_slower(quiet: float, seconds: float) -> None:
    assert poll_interval.interval(timedelta(seconds=quiet)) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("services", "seconds"),
    [
        pytest.param(1, 5, id="every few seconds"),
        pytest.param(25, 5, id="as many as can be asked so often"),
        pytest.param(500, 100, id="more share the same questions"),
    ],
)
def test_services_at_rest_share_what_is_asked(services: int, seconds: float) -> None:
    assert poll_interval.at_rest(services, now=datetime(2026, 1, 1, tzinfo=UTC)) == timedelta(
        seconds=seconds
    )


@given(
    now=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  (aware by `timezones`)
    services=st.integers(1, 20_000),
)
def test_services_at_rest_are_polled_at_moments_that_they_share(
    now: datetime, services: int
) -> None:
    pause = max(timedelta(seconds=5), timedelta(seconds=services / 5))
    at = now + poll_interval.at_rest(services, now=now)
    assert now + pause <= at < now + pause + min(timedelta(seconds=2), pause / 10)
    if services >= 100:
        assert at.timestamp() % 2 == 0


def test_two_services_that_were_polled_apart_are_polled_together() -> None:
    first, second = (
        datetime(2026, 1, 1, 0, 0, 0, 100, tzinfo=UTC),
        datetime(2026, 1, 1, 0, 0, 1, 900_000, tzinfo=UTC),
    )
    assert first + poll_interval.at_rest(500, now=first) == second + poll_interval.at_rest(
        500, now=second
    )


def test_a_cluster_was_last_stirred_by_the_newest_of_its_moments() -> None:
    def condition(kind: str, moment: str) -> dict[str, str]:
        return {
            "type": kind,
            "status": "True",
            "reason": "R",
            "message": "",
            "lastTransitionTime": moment,
        }

    cluster = ray_cluster.decode(
        {
            "metadata": {"name": "c", "creationTimestamp": "2026-01-01T12:00:00Z"},
            "status": {
                "lastUpdateTime": "2026-01-01T12:00:07Z",
                "conditions": [
                    condition("HeadPodReady", "2026-01-01T12:00:09Z"),
                    condition("RayClusterProvisioned", "2026-01-01T12:00:08Z"),
                ],
            },
        }
    )
    assert poll_interval.last_changed_at(ServeView(cluster=cluster)).second == 9


def test_a_cluster_without_any_moment_never_changed() -> None:
    view = ServeView(cluster=ray_cluster.decode({"metadata": {"name": "c"}}))
    assert poll_interval.last_changed_at(view).year == 1
    sent_at = datetime(2026, 1, 1, tzinfo=UTC)
    assert poll_interval.last_changed_at(msgspec.structs.replace(view, put_at=sent_at)) == sent_at
