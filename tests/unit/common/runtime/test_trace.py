"""A look stands in the trace of the newest change that woke its key, and each change tells how long it waited."""

from pathlib import Path

import msgspec
import pytest

from common.bus import messages
from common.observability import tracing
from common.observability.tracing import Line
from common.runtime import trace as traces
from common.runtime.trace import MOST_WAITING, Wakers

FIRST, SECOND, LOADED = (messages.trace_of("uid", version) for version in ("1", "2", "3"))


def test_the_newest_change_is_what_a_look_is_about() -> None:
    wakers: Wakers[str] = Wakers()
    for change in (FIRST, SECOND, ""):
        wakers.woken("ns/a", change, waits=True)

    with wakers.look("ns/a"):
        assert traces.current() == SECOND
    with wakers.look("ns/a"):  # a timer's look goes on with it
        assert traces.current() == SECOND
    assert traces.current() == ""


def test_a_key_that_is_forgotten_has_no_change() -> None:
    wakers: Wakers[str] = Wakers()
    wakers.woken("ns/a", FIRST, waits=True)
    wakers.forget("ns/a")
    with wakers.look("ns/a"):
        assert traces.current() == ""


@pytest.mark.long
def test_every_change_tells_its_wait_once(tmp_path: Path) -> None:
    wakers: Wakers[str] = Wakers()
    with tracing.configured("test", file=tmp_path / "traces", environment={}):
        wakers.woken("ns/a", LOADED, waits=False)
        for change in (FIRST, *[SECOND] * (2 * MOST_WAITING)):
            wakers.woken("ns/a", change, waits=True)
        for _ in range(2):
            with wakers.look("ns/a"):
                pass

    found = [msgspec.json.decode(line, type=Line) for line in (tmp_path / "traces").read_bytes().splitlines()]
    waits = [span for span in found if span.name == "queue"]
    looks = [span for span in found if span.name == "reconcile"]
    assert len(waits) == MOST_WAITING
    assert {span.trace for span in waits} == {FIRST.split("-")[1], SECOND.split("-")[1]}
    assert [span.trace for span in looks] == [SECOND.split("-")[1]] * 2
    assert all(span.attributes == {"object": "ns/a"} for span in found)
    assert max(span.end for span in waits) <= looks[0].begin + 1_000_000_000
