"""The workers that count for a budget: those that are ready, or may become ready soon."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from cluster_reconciler.resources import disruption_budget
from common.api.core import Pod
from common.api.meta import ObjectMeta
from common.api.opaque import Json

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO, JUST_NOW = NOW - timedelta(minutes=10), NOW - timedelta(minutes=9)


def a_pod(
    *,
    phase: str = "Running",
    ready: str | None = "False",
    since: datetime | None = LONG_AGO,
    is_going: bool = False,
) -> Pod:
    condition: Json = {"type": "Ready", "status": ready}
    condition |= {} if since is None else {"lastTransitionTime": since.isoformat()}
    status: Json = {"phase": phase, "conditions": [] if ready is None else [condition]}
    meta = ObjectMeta(name="w", namespace="ns", deletion_timestamp=NOW if is_going else None)
    return msgspec.convert({"metadata": msgspec.to_builtins(meta), "status": status}, Pod)


@pytest.mark.parametrize(
    ("pod", "is_idle"),
    [
        pytest.param(a_pod(), True, id="not ready for long"),
        pytest.param(a_pod(since=JUST_NOW), False, id="not ready for a while"),
        pytest.param(a_pod(ready="True"), False, id="ready"),
        pytest.param(a_pod(is_going=True), False, id="evicted: another one comes in its place"),
        pytest.param(a_pod(phase="Pending"), False, id="waits for a node"),
        pytest.param(a_pod(ready=None), False, id="not observed yet"),
        pytest.param(a_pod(since=None), False, id="without a time"),
    ],
)
def test_what_counts(pod: Pod, is_idle: bool) -> None:
    assert disruption_budget.is_idle(pod, now=NOW) is is_idle
