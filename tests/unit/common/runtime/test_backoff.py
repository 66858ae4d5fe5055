"""The time for which a key waits after its n-th failure."""

import pytest

from common.runtime.work_queue import backoff


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        pytest.param(0, 0.005, id="case 24: from 5 ms"),
        pytest.param(4, 0.08, id="doubling"),
        pytest.param(29, 30.0, id="up to half a minute"),
        pytest.param(10_000, 30.0, id="without overflow"),
    ],
)
def test_delay(before: int, seconds: float) -> None:
    assert backoff(before) == seconds
