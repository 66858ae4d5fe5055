"""The time limit for the first start; spec rayservice §3.2 (M3), §15."""

from datetime import timedelta

import pytest

from common.errors import InvalidSpec
from service_reconciler import validation


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("0", "must be a positive duration, got: 0"),
        ("-5m", "must be a positive duration, got: -5m"),
        ("-100", "must be a positive integer .seconds., got: -100"),
        ("5x", "has invalid format: 5x. Expected Go duration format"),
    ],
)
def test_05_a_wrong_time_limit_has_the_message_of_kuberay(value: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=f"annotation ray.io/initializing-timeout {problem}"):
        validation.initializing_limit({"ray.io/initializing-timeout": value})


@pytest.mark.parametrize(("value", "limit"), [("5m", 300), ("90", 90), ("", None)])
def test_05_a_time_limit_is_a_duration_or_seconds(value: str, limit: int | None) -> None:
    found = validation.initializing_limit({"ray.io/initializing-timeout": value})
    assert found == (None if limit is None else timedelta(seconds=limit))
