"""The text that people read for each kind of event."""

import msgspec
import pytest

from common import event_catalogue
from common.bus import cloud_events
from common.ray import job_events
from common.upgrade import events as upgrade_events
from raybus_cli.events import rendering
from support import job_events as jobs
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.golden import Golden


def _line(event: cloud_events.Event) -> str:
    is_job = event.data.kind in job_events.KINDS
    wire = (job_events.FAMILY if is_job else upgrade_events.FAMILY).encode(event)
    return rendering.format_line(wire.subject, wire.payload)


def test_every_kind_is_one_line(golden: Golden) -> None:
    of_jobs = [jobs.a_job_event(data, seconds=at) for at, data in jobs.EXAMPLES]
    events = [*an_example_upgrade(), *a_retreat(), *of_jobs]
    assert {event.data.kind for event in events} == set(event_catalogue.KINDS)
    golden.check("cli/events.txt", "".join(f"{_line(each)}\n" for each in events))


def test_an_unknown_kind_is_shown_by_its_name() -> None:
    known = msgspec.json.decode(upgrade_events.encode(an_example_upgrade()[0]).payload)
    newer = msgspec.json.encode({**known, "type": "io.raybus.upgrade.admired.v1"})
    assert (
        rendering.format_line("s", newer)
        == "2026-01-01T12:00:00Z  default/greeter  admired: demo-x7k2p → demo-b4n9d"
    )


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b'{"type": "io.raybus.upgrade.started.v1"}', b"\xff"]
)
def test_a_foreign_event_is_shown_as_one(payload: bytes) -> None:
    assert rendering.format_line("ray.events.a.b.c", payload).startswith(
        "(no time)             ray.events.a.b.c  is no event of raybus: "
    )


def test_a_message_cannot_reach_into_the_terminal() -> None:
    known = msgspec.json.decode(upgrade_events.encode(a_retreat()[-1]).payload)
    known["data"]["message"] = "\x1b[31mred\nand a second line"
    line = rendering.format_line("s", msgspec.json.encode(known))
    assert line.endswith("failed (InitializingTimeout):  [31mred and a second line")
