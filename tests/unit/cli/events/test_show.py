"""Which events are shown: each once, from where on, and how many."""

import msgspec
import pytest

from common.bus.nats import StoredMessage
from common.upgrade import events as upgrade_events
from common.upgrade.events import Event
from raybus_cli.events.show import Options, Show
from support.builders.example_upgrade import an_example_upgrade


def _stored(number: int, event: Event) -> StoredMessage:
    wire = upgrade_events.encode(event)
    return StoredMessage(wire.subject, number, wire.headers, wire.payload)


EVENTS = [_stored(number, event) for number, event in enumerate(an_example_upgrade(), start=1)]
IDS = [event.id for event in an_example_upgrade()]


def _shown(
    options: Options, stored: list[StoredMessage], later: list[StoredMessage] | None = None
) -> list[str]:
    """Return the ids of what is shown of the stored events, and then of those that come later."""
    lines: list[str] = []
    show = Show(msgspec.structs.replace(options, as_json=True), lines.append)
    wants_more = all(show.take(each) for each in stored) and show.caught_up()
    assert show.count == len(lines)
    for each in later or []:
        wants_more = wants_more and show.take(each)
    return [msgspec.json.decode(line)["id"] for line in lines]


@pytest.mark.parametrize(
    ("options", "shown", "shown_later"),
    [
        pytest.param(Options(), slice(0, 6), slice(0, 0), id="all that is stored"),
        pytest.param(Options(follow=True), slice(0, 6), slice(6, 9), id="and what comes"),
        pytest.param(Options(limit=2), slice(4, 6), slice(0, 0), id="the last two"),
        pytest.param(
            Options(limit=2, follow=True),
            slice(4, 6),
            slice(6, 9),
            id="the last two and what comes",
        ),
        pytest.param(Options(limit=100), slice(0, 6), slice(0, 0), id="no more than there are"),
        pytest.param(
            Options(replay=IDS[3]), slice(3, 6), slice(0, 0), id="from an id on, that one included"
        ),
        pytest.param(
            Options(replay=IDS[3], follow=True),
            slice(3, 6),
            slice(6, 9),
            id="from an id on and what comes",
        ),
        pytest.param(
            Options(replay=IDS[1], limit=2),
            slice(1, 3),
            slice(0, 0),
            id="the first two from an id on",
        ),
        pytest.param(
            Options(replay=IDS[5], limit=2, follow=True),
            slice(5, 6),
            slice(6, 7),
            id="two, one to come",
        ),
        pytest.param(
            Options(replay="unknown", follow=True),
            slice(0, 0),
            slice(0, 0),
            id="none for an unknown id",
        ),
    ],
)
def test_what_is_shown(options: Options, shown: slice, shown_later: slice) -> None:
    assert _shown(options, EVENTS[:6], EVENTS[6:9]) == IDS[shown] + IDS[shown_later]


def test_an_event_that_comes_twice_is_shown_once() -> None:
    again = [
        StoredMessage(each.subject, each.sequence + 50, each.headers, each.payload)
        for each in EVENTS[:6]
    ]
    assert _shown(Options(follow=True), EVENTS[:3], [*again, *EVENTS[6:8]]) == IDS[:8]


def test_an_id_that_is_not_there_is_noticed() -> None:
    show = Show(Options(replay="unknown"), lambda _: None)
    assert all(show.take(each) for each in EVENTS)
    assert (show.caught_up(), show.is_start_missing) == (False, True)


def test_json_is_what_is_stored_on_one_line() -> None:
    lines: list[str] = []
    show = Show(Options(as_json=True), lines.append)
    show.take(EVENTS[0])
    show.take(StoredMessage("s", 50, {}, b'{\n "id": "1",\n "more": [1, 2]\n}'))
    show.take(StoredMessage("s", 51, {}, b"\xffno\njson"))
    assert lines == [EVENTS[0].payload.decode(), '{"id":"1","more":[1,2]}', "�no json"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybus_cli.events.show.REMEMBERED", 10)
    show = Show(Options(), lambda _: None)
    for number in range(15):
        show.take(StoredMessage("s", number, {}, b'{"id":"%d"}' % number))
    assert len(show._known) == 10  # pyright: ignore[reportPrivateUsage]  (the bound is what is tested)
