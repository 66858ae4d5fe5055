"""What people read of each kind of event."""

import msgspec
import pytest

from common import upgrade_events
from raybus_cli.events import words
from support.builders.upgrade_story import a_retreat, a_story
from support.golden import Golden


def _line(event: upgrade_events.Event) -> str:
    wire = upgrade_events.encode(event)
    return words.line(wire.subject, wire.payload)


def test_every_kind_is_one_line(golden: Golden) -> None:
    told = [*a_story(), *a_retreat()]
    assert {each.kind for each in told} == set(upgrade_events.KINDS)
    golden.check("cli/events.txt", "".join(f"{_line(each)}\n" for each in told))


def test_a_kind_that_this_reader_does_not_know_is_told_by_its_name() -> None:
    known = msgspec.json.decode(upgrade_events.encode(a_story()[0]).payload)
    newer = msgspec.json.encode({**known, "type": "io.raybus.upgrade.admired.v1"})
    assert words.line("s", newer) == "2026-01-01T12:00:00Z  default/greeter  admired: demo-x7k2p → demo-b4n9d"


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b'{"type": "io.raybus.upgrade.started.v1"}', b"\xff"])
def test_what_is_no_event_of_ours_is_told_as_that(payload: bytes) -> None:
    assert words.line("ray.events.a.b.c", payload).startswith(
        "(no time)             ray.events.a.b.c  is no upgrade event: "
    )


def test_a_message_cannot_reach_into_the_terminal() -> None:
    known = msgspec.json.decode(upgrade_events.encode(a_retreat()[-1]).payload)
    known["data"]["message"] = "\x1b[31mred\nand a second line"
    line = words.line("s", msgspec.json.encode(known))
    assert line.endswith("failed (InitializingTimeout):  [31mred and a second line")
