"""When a draining cluster is deleted: with no requests in flight by a recent count, or at the
maximum time.
"""

from datetime import datetime, timedelta

import pytest

from common.api import ray_service
from service_reconciler.promotion import cleanup_schedule
from support.builders.ray_service import a_ray_service

SINCE = datetime.fromisoformat("2026-11-21T12:00:00+00:00")
FRESH = SINCE + cleanup_schedule.SETTLING
CAP = SINCE + timedelta(seconds=100)


@pytest.mark.parametrize(
    ("why", "at", "ongoing", "again"),
    [
        ("nothing is in flight", 40, 0, None),
        ("requests are", 40, 3, 41),
        ("one is", 40, 1, 41),
        ("the number is unknown", 40, None, 41),
        ("a count may be from before the mark", 5, 0, 15),
        ("the cap ends it all the same", 100, 3, None),
        ("also when the number is unknown", 100, None, None),
        ("no requeue is later than the cap", 99.5, 3, 100),
    ],
)
def test_a_draining_cluster_goes_or_is_checked_again(
    why: str, at: float, ongoing: int | None, again: float | None
) -> None:
    found = cleanup_schedule.recheck_at(
        ongoing, fresh_at=FRESH, cap=CAP, now=SINCE + timedelta(seconds=at)
    )
    assert found == (None if again is None else SINCE + timedelta(seconds=again)), why


def test_a_cap_before_the_count_can_be_trusted_holds() -> None:
    now = SINCE + timedelta(seconds=5)
    assert cleanup_schedule.recheck_at(0, fresh_at=FRESH, cap=now, now=now) is None


@pytest.mark.parametrize(
    ("ongoing", "text"),
    [
        (3, "3 requests in flight"),
        (1, "1 request in flight"),
        (None, "an unknown number of requests in flight"),
    ],
)
def test_requests_in_flight_as_a_text(ongoing: int | None, text: str) -> None:
    assert cleanup_schedule.in_flight(ongoing) == text


@pytest.mark.parametrize(
    ("text", "seconds", "is_odd"),
    [
        (None, 60, False),
        ("90", 90, False),
        ("2m", 120, False),
        ("0", 0, False),
        ("1h0m0.5s", 3600.5, False),
        ("soon", 60, True),
        ("-5s", 60, True),
        ("", 60, True),
        ("٣", 60, True),
    ],
)
def test_time_outs(text: str | None, seconds: float, is_odd: bool) -> None:
    annotations = {} if text is None else {"raybus.io/drain-timeout": text}
    service = ray_service.decode(a_ray_service(annotations=annotations))
    length, odd = cleanup_schedule.timeout_of(service)
    assert (length, odd is not None) == (timedelta(seconds=seconds), is_odd)


@pytest.mark.parametrize(
    ("at", "refreshes", "again"),
    [
        (-5, 0, 3),
        (0, 0, 3),
        (2.9, 0, 3),
        (3, 1, 10),
        (10, 2, 30),
        (29, 2, 30),
        (30, 3, None),
        (3600, 3, None),
    ],
)
def test_the_pods_of_a_draining_cluster_are_changed_again(
    at: float, refreshes: int, again: float | None
) -> None:
    now = SINCE + timedelta(seconds=at)
    assert cleanup_schedule.refreshes(SINCE, now=now) == refreshes
    assert cleanup_schedule.next_refresh(SINCE, now=now) == (
        None if again is None else SINCE + timedelta(seconds=again)
    )
