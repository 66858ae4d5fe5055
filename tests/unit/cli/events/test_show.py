"""Which events are shown: each once, from where on, and how many."""

from typing import Any

import msgspec
import pytest

from common import event_catalogue
from common.bus.cloud_events import Event
from common.bus.nats import StoredMessage
from common.ray import job_events
from common.upgrade import events as upgrade_events
from raybus_cli.events.show import EventOptions, EventPrinter, SelectedObject
from support import job_events as jobs
from support import upgrade_events as shown
from support.builders.example_upgrade import an_example_upgrade
from support.tables import cases


def _stored(number: int, event: Event) -> StoredMessage:
    wire = upgrade_events.encode(event)
    return StoredMessage(wire.subject, number, wire.headers, wire.payload)


EVENTS = [_stored(number, event) for number, event in enumerate(an_example_upgrade(), start=1)]
IDS = [event.id for event in an_example_upgrade()]


def _shown(
    options: EventOptions, stored: list[StoredMessage], later: list[StoredMessage] | None = None
) -> list[str]:
    """Return the ids of the shown events: the stored ones, then those that come later."""
    lines: list[str] = []
    show = EventPrinter(msgspec.structs.replace(options, as_json=True), lines.append)
    wants_more = all(show.receive(each) for each in stored) and show.finish_stored()
    assert show.count == len(lines)
    for each in later or []:
        wants_more = wants_more and show.receive(each)
    return [msgspec.json.decode(line)["id"] for line in lines]


@cases(
    ("options", "shown", "shown_later"),
    {
        "all that is stored": (EventOptions(), slice(0, 6), slice(0, 0)),
        "and what comes": (EventOptions(follow=True), slice(0, 6), slice(6, 9)),
        "the last two": (EventOptions(limit=2), slice(4, 6), slice(0, 0)),
        "the last two and what comes": (
            EventOptions(limit=2, follow=True),
            slice(4, 6),
            slice(6, 9),
        ),
        "no more than there are": (EventOptions(limit=100), slice(0, 6), slice(0, 0)),
        "from an id on, that one included": (EventOptions(replay=IDS[3]), slice(3, 6), slice(0, 0)),
        "from an id on and what comes": (
            EventOptions(replay=IDS[3], follow=True),
            slice(3, 6),
            slice(6, 9),
        ),
        "the first two from an id on": (
            EventOptions(replay=IDS[1], limit=2),
            slice(1, 3),
            slice(0, 0),
        ),
        "two, one to come": (
            EventOptions(replay=IDS[5], limit=2, follow=True),
            slice(5, 6),
            slice(6, 7),
        ),
        "none for an unknown id": (
            EventOptions(replay="unknown", follow=True),
            slice(0, 0),
            slice(0, 0),
        ),
    },
)
def test_what_is_shown(options: EventOptions, shown: slice, shown_later: slice) -> None:
    assert _shown(options, EVENTS[:6], EVENTS[6:9]) == IDS[shown] + IDS[shown_later]


def test_an_event_that_comes_twice_is_shown_once() -> None:
    again = [
        StoredMessage(each.subject, each.sequence + 50, each.headers, each.payload)
        for each in EVENTS[:6]
    ]
    assert _shown(EventOptions(follow=True), EVENTS[:3], [*again, *EVENTS[6:8]]) == IDS[:8]


def test_an_id_that_is_not_there_is_noticed() -> None:
    show = EventPrinter(EventOptions(replay="unknown"), lambda _: None)
    assert all(show.receive(each) for each in EVENTS)
    assert (show.finish_stored(), show.is_start_missing) == (False, True)


def test_json_is_what_is_stored_on_one_line() -> None:
    lines: list[str] = []
    show = EventPrinter(EventOptions(as_json=True), lines.append)
    show.receive(EVENTS[0])
    show.receive(StoredMessage("s", 50, {}, b'{\n "id": "1",\n "more": [1, 2]\n}'))
    show.receive(StoredMessage("s", 51, {}, b"\xffno\njson"))
    assert lines == [EVENTS[0].payload.decode(), '{"id":"1","more":[1,2]}', "�no json"]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raybus_cli.events.show.MAX_REMEMBERED", 10)
    show = EventPrinter(EventOptions(), lambda _: None)
    for number in range(15):
        show.receive(StoredMessage("s", number, {}, b'{"id":"%d"}' % number))
    assert len(show._known) == 10  # pyright: ignore[reportPrivateUsage]  (the bound is what is tested)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["started", "job-submitted", "job-failed"]),
        ({"kinds": frozenset({"job-failed"})}, ["job-failed"]),
        ({"selected": SelectedObject("a", "b", "rayjobs")}, ["job-submitted", "job-failed"]),
        ({"selected": SelectedObject("a", "b", "rayservices")}, ["started"]),
        ({"kinds": frozenset({"job-submitted", "started"}), "limit": 1}, ["job-submitted"]),
    ],
)
def test_events_are_selected_by_kind_and_object(
    options: dict[str, Any], expected: list[str]
) -> None:
    lines: list[str] = []
    taker = EventPrinter(EventOptions(as_json=True, **options), lines.append)
    of_jobs = [jobs.a_job_event(data) for _, data in jobs.EXAMPLES]
    events = [
        upgrade_events.encode(shown.an_event(shown.EXAMPLES[0][1])),
        job_events.FAMILY.encode(of_jobs[0]),
        job_events.FAMILY.encode(of_jobs[4]),
    ]
    for sequence, wire in enumerate(events, start=1):
        taker.receive(StoredMessage(wire.subject, sequence, wire.headers, wire.payload))
    taker.finish_stored()
    kinds = [event_catalogue.kind_of(msgspec.json.decode(line)["type"]) for line in lines]
    assert kinds == expected
