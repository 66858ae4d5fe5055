"""Go's durations, read and printed; spec rayservice §3.2, §15."""

from datetime import timedelta

import pytest

from common.errors import InvalidSpec
from service_reconciler import durations
from service_reconciler.serve import initializing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("0", 0), ("-2s", -2), ("100ms", 0.1), (".5s", 0.5), ("+1s", 1)],
)
def test_read_as_go_reads(text: str, seconds: float) -> None:
    assert durations.parse(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "5", "5x", "m", "1h 2m", "--1s", "s5"])
def test_no_duration(text: str) -> None:
    assert durations.parse(text) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(6, "6s"), (6.190972, "6.190972s"), (60, "1m0s"), (3600, "1h0m0s"), (90.5, "1m30.5s"), (0, "0s"), (0.25, "250ms")],
)
def test_printed_as_go_prints(seconds: float, text: str) -> None:
    assert durations.text(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("0", "must be a positive duration, got: 0"),
        ("-5m", "must be a positive duration, got: -5m"),
        ("-100", "must be a positive integer .seconds., got: -100"),
        ("5x", "has invalid format: 5x. Expected Go duration format"),
    ],
)
def test_05_a_wrong_time_limit_is_told_in_kuberays_words(value: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=f"annotation ray.io/initializing-timeout {problem}"):
        initializing.limit({"ray.io/initializing-timeout": value})


@pytest.mark.parametrize(("value", "limit"), [("5m", 300), ("90", 90), ("", None)])
def test_05_a_time_limit_is_a_duration_or_seconds(value: str, limit: int | None) -> None:
    found = initializing.limit({"ray.io/initializing-timeout": value})
    assert found == (None if limit is None else timedelta(seconds=limit))
