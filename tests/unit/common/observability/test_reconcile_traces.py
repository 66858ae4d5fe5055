"""A reconcile belongs to the trace of the newest change that enqueued its key, and each change
reports how long it waited.
"""

from pathlib import Path

import msgspec
import pytest

from common.bus import messages
from common.observability import tracing
from common.observability.open_telemetry import SpanLine
from common.observability.tracing import MAX_QUEUED_SPANS, ReconcileTraces

FIRST, SECOND, LOADED = (messages.derive_trace("uid", version) for version in ("1", "2", "3"))


def test_the_newest_change_is_what_a_reconcile_is_about() -> None:
    keys = ReconcileTraces()
    for change in (FIRST, SECOND, ""):
        keys.enqueued("ns/a", change, waits=True)

    with keys.reconciling("ns/a"):
        assert tracing.CURRENT.get() == SECOND
    with keys.reconciling("ns/a"):  # a reconcile of a timer continues it
        assert tracing.CURRENT.get() == SECOND
    assert tracing.CURRENT.get() == ""


def test_a_key_that_is_forgotten_has_no_change() -> None:
    keys = ReconcileTraces()
    keys.enqueued("ns/a", FIRST, waits=True)
    keys.forget("ns/a")
    with keys.reconciling("ns/a"):
        assert tracing.CURRENT.get() == ""


@pytest.mark.long
def test_every_change_reports_its_wait_once(tmp_path: Path) -> None:
    keys = ReconcileTraces()
    with tracing.configure("test", file=tmp_path / "traces", environment={}):
        keys.enqueued("ns/a", LOADED, waits=False)
        for change in (FIRST, *[SECOND] * (2 * MAX_QUEUED_SPANS)):
            keys.enqueued("ns/a", change, waits=True)
        for _ in range(2):
            with keys.reconciling("ns/a"):
                pass

    found = [
        msgspec.json.decode(line, type=SpanLine)
        for line in (tmp_path / "traces").read_bytes().splitlines()
    ]
    waits = [span for span in found if span.name == "queue"]
    reconciles = [span for span in found if span.name == "reconcile"]
    assert len(waits) == MAX_QUEUED_SPANS
    assert {span.trace for span in waits} == {FIRST.split("-")[1], SECOND.split("-")[1]}
    assert [span.trace for span in reconciles] == [SECOND.split("-")[1]] * 2
    assert all(span.attributes == {"object": "ns/a"} for span in found)
    assert max(span.end for span in waits) <= reconciles[0].begin + 1_000_000_000
