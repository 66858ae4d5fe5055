"""Go's durations, read and printed; spec rayservice §3.2, §15."""

import time
from datetime import timedelta

import pytest

from common import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("0", 0),
        ("-2s", -2),
        ("100ms", 0.1),
        (".5s", 0.5),
        ("+1s", 1),
    ],
)
def test_read_as_go_reads(text: str, seconds: float) -> None:
    assert durations.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5x", "m", "1h 2m", "--1s", "s5"])
def test_no_duration(text: str) -> None:
    assert durations.parse(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (6, "6s"),
        (6.190972, "6.190972s"),
        (60, "1m0s"),
        (3600, "1h0m0s"),
        (90.5, "1m30.5s"),
        (0, "0s"),
        (0.25, "250ms"),
    ],
)
def test_printed_as_go_prints(seconds: float, text: str) -> None:
    assert durations.text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), (" 5m ", 300), ("0", 0), ("x", None), ("-5", None), ("", None)],
)
def test_read_with_seconds_as_plain_numbers(text: str, seconds: int | None) -> None:
    assert durations.parse_or_seconds(text) == (
        None if seconds is None else timedelta(seconds=seconds)
    )


@pytest.mark.parametrize(
    "text", ["1" * 20_000, "1" * 20_000 + "x", "1." * 10_000 + "x", "1s" * 10_000 + "x"], ids=len
)
def test_a_text_as_long_as_an_annotation_can_be_holds_nobody_up(text: str) -> None:
    began = time.process_time()
    assert durations.parse_or_seconds(text) is None
    assert time.process_time() - began < 0.5
