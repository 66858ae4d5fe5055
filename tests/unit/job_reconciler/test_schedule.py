"""Cron schedules as KubeRay's parser reads them (spec rayjob §20.2)."""

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_reconciler.cron import schedule
from job_reconciler.cron.schedule import ScheduleError

NEW_YORK = ZoneInfo("America/New_York")


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _next(text: str, after: str, zone: ZoneInfo | None = None) -> str | None:
    found = schedule.parse(text).next_run(_at(after), zone or UTC)
    return None if found is None else found.strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.parametrize(
    ("text", "after", "run"),
    [
        ("* * * * *", "2026-01-01 00:00:00", "2026-01-01 00:01:00"),
        ("* * * * *", "2026-12-31 23:59:59", "2027-01-01 00:00:00"),
        ("*/5 * * * *", "2026-01-01 00:00:00", "2026-01-01 00:05:00"),
        ("*/5 * * * *", "2026-01-01 00:04:59", "2026-01-01 00:05:00"),
        ("7/20 * * * *", "2026-01-01 00:30:00", "2026-01-01 00:47:00"),
        ("0 9-17/4 * * *", "2026-01-01 13:00:00", "2026-01-01 17:00:00"),
        ("30 8 1,15 * *", "2026-01-02 00:00:00", "2026-01-15 08:30:00"),
        ("0 0 * JUN *", "2026-01-01 00:00:00", "2026-06-01 00:00:00"),
        ("0 0 * * fri", "2026-01-01 00:00:00", "2026-01-02 00:00:00"),
        ("0 0 ? * 1-5", "2026-01-03 00:00:00", "2026-01-05 00:00:00"),
        ("0 0 29 2 *", "2026-01-01 00:00:00", "2028-02-29 00:00:00"),
        ("0 0 29 2 *", "2096-03-01 00:00:00", "2104-02-29 00:00:00"),
        ("@hourly", "2026-01-01 00:00:00", "2026-01-01 01:00:00"),
        ("@daily", "2026-01-01 00:00:00", "2026-01-02 00:00:00"),
        ("@midnight", "2026-01-01 00:00:00", "2026-01-02 00:00:00"),
        ("@weekly", "2026-01-01 00:00:00", "2026-01-04 00:00:00"),
        ("@monthly", "2026-01-01 00:00:00", "2026-02-01 00:00:00"),
        ("@yearly", "2026-01-01 00:00:00", "2027-01-01 00:00:00"),
        ("@annually", "2026-06-01 00:00:00", "2027-01-01 00:00:00"),
        ("@every 90s", "2026-01-01 00:00:10", "2026-01-01 00:01:40"),
        ("@every 1.9s", "2026-01-01 00:00:00", "2026-01-01 00:00:01"),
        ("@every 1ms", "2026-01-01 00:00:00", "2026-01-01 00:00:01"),
    ],
)
def test_the_next_run_is_strictly_after_a_time(text: str, after: str, run: str) -> None:
    assert _next(text, after) == run


@pytest.mark.parametrize(
    ("text", "run"),
    [
        pytest.param("0 0 13 * 5", "2026-01-02", id="no star: one of both days suffices"),
        pytest.param("0 0 13 * *", "2026-01-13", id="a star in the weekday: the day counts"),
        pytest.param("0 0 * * 5", "2026-01-02", id="a star in the day: the weekday counts"),
        pytest.param("0 0 */2 * 5", "2026-01-02", id="a star with a step is no star"),
        pytest.param("0 0 */1 * 5", "2026-01-02", id="a star with step 1 is one"),
    ],
)
def test_day_and_weekday_combine_by_the_star_rule(text: str, run: str) -> None:
    assert _next(text, "2026-01-01 00:00:00") == f"{run} 00:00:00"


def test_a_star_with_a_step_lets_the_other_day_field_suffice() -> None:
    assert _next("0 0 */2 * 5", "2026-01-02 00:00:00") == "2026-01-03 00:00:00"
    assert _next("0 0 */1 * 5", "2026-01-02 00:00:00") == "2026-01-09 00:00:00"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("invalid cron", "expected exactly 5 fields, found 2: [invalid cron]"),
        (" @daily", "expected exactly 5 fields, found 1: [@daily]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* 24 * * *", "end of range (24) above maximum (23): 24"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("* * * 13 *", "end of range (13) above maximum (12): 13"),
        ("* * * * 7", "end of range (7) above maximum (6): 7"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("-5 * * * *", 'failed to parse int from : strconv.Atoi: parsing "": invalid syntax'),
        ("٣ * * * *", 'failed to parse int from ٣: strconv.Atoi: parsing "٣": invalid syntax'),
        (
            "1_0 * * * *",
            'failed to parse int from 1_0: strconv.Atoi: parsing "1_0": invalid syntax',
        ),
        (
            "* * * MAY5 *",
            'failed to parse int from MAY5: strconv.Atoi: parsing "MAY5": invalid syntax',
        ),
        ("@never", "unrecognized descriptor: @never"),
        ("@DAILY", "unrecognized descriptor: @DAILY"),
        ("@every soon", 'failed to parse duration @every soon: time: invalid duration "soon"'),
    ],
)
def test_an_invalid_schedule_has_the_text_of_kuberays_parser(text: str, error: str) -> None:
    with pytest.raises(ScheduleError) as raised:
        schedule.parse(text)
    assert str(raised.value) == error


def test_a_number_beyond_64_bits_is_out_of_range() -> None:
    with pytest.raises(ScheduleError, match=r"value out of range$"):
        schedule.parse(f"{'9' * 20} * * * *")


@pytest.mark.parametrize(
    "text", ["0 0 30 2 *", "0 0 31 4,6 ?", ", * * * *", "* , * * *", "* * * , *"]
)
def test_a_schedule_without_any_date_is_impossible(text: str) -> None:
    found = schedule.parse(text)
    assert not found.is_possible
    assert found.next_run(_at("2026-01-01"), UTC) is None
    assert found.newest_run(_at("2020-01-01"), _at("2026-01-01"), UTC) is None


@pytest.mark.parametrize("text", ["0 0 30 2 1", "0 0 29 2 *", "* * * * *", "@every 1h"])
def test_a_schedule_with_a_date_is_possible(text: str) -> None:
    assert schedule.parse(text).is_possible


@pytest.mark.acceptance("rayjob", 134)
@pytest.mark.parametrize(
    ("text", "after", "zone", "run"),
    [
        pytest.param(
            "45 21 * * *", "2026-01-01 00:00", "Asia/Taipei", "2026-01-01 13:45:00", id="zone"
        ),
        pytest.param(
            "0 2 * * *",
            "2026-03-08 00:00",
            "America/New_York",
            "2026-03-09 06:00:00",
            id="hour skipped in spring",
        ),
        pytest.param(
            "0 1 * * *",
            "2026-11-01 05:00",
            "America/New_York",
            "2026-11-02 06:00:00",
            id="once in autumn",
        ),
        pytest.param(
            "0 * * * *",
            "2026-11-01 05:00",
            "America/New_York",
            "2026-11-01 06:00:00",
            id="hourly in autumn",
        ),
        pytest.param(
            "0 0 * * *",
            "2018-11-03 12:00",
            "America/Sao_Paulo",
            "2018-11-05 02:00:00",
            id="no midnight",
        ),
        pytest.param(
            "45 1 * * *",
            "2026-04-03 16:00",
            "Australia/Lord_Howe",
            "2026-04-04 14:45:00",
            id="half an hour",
        ),
    ],
)
def test_a_run_follows_the_clock_of_its_zone(text: str, after: str, zone: str, run: str) -> None:
    assert _next(text, after, ZoneInfo(zone)) == run


def test_an_hourly_schedule_runs_in_both_passes_of_a_repeated_hour() -> None:
    hourly, moment = schedule.parse("30 * * * *"), _at("2026-11-01 04:00:00")
    runs = [moment]
    for _ in range(5):
        found = hourly.next_run(runs[-1], NEW_YORK)
        assert found is not None
        runs.append(found)
    assert {later - earlier for earlier, later in pairwise(runs[1:])} == {timedelta(hours=1)}


MOMENTS = st.datetimes(
    min_value=datetime(2024, 1, 1),  # noqa: DTZ001 - Hypothesis wants none, and adds UTC
    max_value=datetime(2027, 12, 31),  # noqa: DTZ001 - as above
    timezones=st.just(UTC),
)
TEXTS = st.sampled_from(
    [
        "*/7 * * * *",
        "30 1 * * *",
        "15 */6 * * *",
        "0 2 * * 0",
        "5 4 13 * 5",
        "0 0 1 * *",
        "@hourly",
        "@every 47m",
    ]
)
ZONES = st.sampled_from(["UTC", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]).map(
    ZoneInfo
)


@settings(deadline=None)
@given(text=TEXTS, after=MOMENTS, zone=ZONES)
def test_the_newest_run_up_to_the_next_one_is_the_next_one(
    text: str, after: datetime, zone: ZoneInfo
) -> None:
    found = schedule.parse(text)
    run = found.next_run(after, zone)
    assert run is not None
    assert run > after.replace(microsecond=0)
    assert found.newest_run(after, run, zone) == run
    assert found.newest_run(after, run - timedelta(seconds=1), zone) is None


@settings(deadline=None)
@given(text=TEXTS, after=MOMENTS, zone=ZONES)
def test_the_newest_run_is_the_last_of_all_runs(text: str, after: datetime, zone: ZoneInfo) -> None:
    found = schedule.parse(text)
    until = after + timedelta(days=3)
    newest, run = None, found.next_run(after, zone)
    while run is not None and run <= until:
        newest, run = run, found.next_run(run, zone)
    assert found.newest_run(after, until, zone) == newest


@given(st.text(max_size=60))
def test_any_text_parses_or_is_refused(text: str) -> None:
    try:
        found = schedule.parse(text)
    except ScheduleError:
        return
    found.next_run(_at("2026-01-01"), NEW_YORK)


@pytest.mark.parametrize(
    "part", ["1,", "1-", "*/", "9", "@every 1h", "٣", " ", "\u00a0", "1,1-2/3,"]
)
def test_a_hostile_schedule_is_read_in_linear_time(part: str) -> None:
    text = part * (1_000_000 // len(part))
    start = time.process_time()
    with pytest.raises(ScheduleError):
        schedule.parse(text)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("text", ["* * * * *", "0 0 1 1 *", "@every 1s"])
def test_the_ends_of_the_calendar_do_not_fail(text: str) -> None:
    found = schedule.parse(text)
    last = datetime.max.replace(tzinfo=UTC)
    assert found.next_run(last, ZoneInfo("America/New_York")) is None
    first = datetime.min.replace(tzinfo=UTC) + timedelta(days=2)
    assert found.newest_run(first, _at("2026-01-01 00:00"), UTC) == _at("2026-01-01 00:00")
