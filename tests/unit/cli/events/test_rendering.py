"""What people read of each kind of event."""

import msgspec
import pytest

from common.upgrade import events as upgrade_events
from raybus_cli.events import rendering
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.golden import Golden


def _line(event: upgrade_events.Event) -> str:
    wire = upgrade_events.encode(event)
    return rendering.line(wire.subject, wire.payload)


def test_every_kind_is_one_line(golden: Golden) -> None:
    events = [*an_example_upgrade(), *a_retreat()]
    assert {each.data.kind for each in events} == set(upgrade_events.KINDS)
    golden.check("cli/events.txt", "".join(f"{_line(each)}\n" for each in events))


def test_an_unknown_kind_is_shown_by_its_name() -> None:
    known = msgspec.json.decode(upgrade_events.encode(an_example_upgrade()[0]).payload)
    newer = msgspec.json.encode({**known, "type": "io.raybus.upgrade.admired.v1"})
    assert (
        rendering.line("s", newer)
        == "2026-01-01T12:00:00Z  default/greeter  admired: demo-x7k2p → demo-b4n9d"
    )


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[]", b'{"type": "io.raybus.upgrade.started.v1"}', b"\xff"]
)
def test_a_foreign_event_is_shown_as_one(payload: bytes) -> None:
    assert rendering.line("ray.events.a.b.c", payload).startswith(
        "(no time)             ray.events.a.b.c  is no upgrade event: "
    )


def test_a_message_cannot_reach_into_the_terminal() -> None:
    known = msgspec.json.decode(upgrade_events.encode(a_retreat()[-1]).payload)
    known["data"]["message"] = "\x1b[31mred\nand a second line"
    line = rendering.line("s", msgspec.json.encode(known))
    assert line.endswith("failed (InitializingTimeout):  [31mred and a second line")
