"""The wire form of upgrade events: the official SDK reads it, the published schemas hold, and docs/events shows it."""

from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat

from common.upgrade import events as upgrade_events
from common.upgrade.events import Data, Event
from support import upgrade_events as shown
from support.golden import Golden

DOCS = Path(__file__).parents[4] / "docs"
EVENTS = [
    pytest.param(shown.an_event(data, seconds=at), id=type(data).__name__)
    for at, data in shown.EXAMPLES
]


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Golden:
    return Golden(root=DOCS / "events", update=bool(request.config.getoption("--update-golden")))


def test_there_is_an_example_of_each_kind() -> None:
    assert [type(data) for _, data in shown.EXAMPLES] == list(upgrade_events.KINDS.values())


@pytest.mark.parametrize("kind", upgrade_events.KINDS)
def test_the_schema_is_the_published_one(pages: Golden, kind: str) -> None:
    pages.check(f"{kind}.json", shown.schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(shown.schema(kind))


def test_the_page_shows_every_type(pages: Golden) -> None:
    pages.check("README.md", shown.page((DOCS / "events" / "README.md").read_text()))


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("trace", [None, shown.TRACE])
def test_the_official_sdk_reads_an_event(event: Event, trace: str | None) -> None:
    wire = upgrade_events.encode(event, trace=trace)
    message = http.HTTPMessage(
        headers={"content-type": wire.headers["Content-Type"]}, body=wire.payload
    )
    read = http.from_http(message, JSONFormat())
    assert (read.get_id(), read.get_source()) == (
        event.id,
        "/apis/ray.io/v1/namespaces/team-a/rayservices/demo",
    )
    assert (read.get_type(), read.get_subject()) == (
        f"io.raybus.upgrade.{event.data.kind}.v1",
        "demo",
    )
    assert (read.get_time(), read.get_extension("traceparent")) == (event.time, trace)
    assert msgspec.convert(read.get_data(), type(event.data)) == event.data
    assert wire.subject == f"ray.events.team-a.demo.{event.data.kind}"


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_holds_its_schema_and_no_other(event: Event) -> None:
    written: dict[str, Any] = msgspec.json.decode(upgrade_events.encode(event).payload)
    held = [
        kind for kind in upgrade_events.KINDS if not list(_validator(kind).iter_errors(written))
    ]
    assert held == [event.data.kind]


@pytest.mark.parametrize("without", ["id", "specversion", "time", "data"])
def test_a_schema_refuses_what_is_no_event(without: str) -> None:
    at, data = shown.EXAMPLES[0]
    written: dict[str, Any] = msgspec.json.decode(
        upgrade_events.encode(shown.an_event(data, seconds=at)).payload
    )
    del written[without]
    assert list(_validator("started").iter_errors(written))


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_written_can_be_read(event: Event) -> None:
    read = upgrade_events.decode(upgrade_events.encode(event, trace=shown.TRACE).payload)
    assert (read.id, read.time, read.traceparent, read.data) == (
        event.id,
        event.time,
        shown.TRACE,
        event.data,
    )


def test_of_a_newer_kind_the_upgrade_is_read() -> None:
    event = shown.an_event(shown.EXAMPLES[0][1])
    payload = upgrade_events.encode(event).payload.replace(
        b"upgrade.started.v1", b"upgrade.celebrated.v1"
    )
    assert upgrade_events.decode(payload).data == Data(upgrade=shown.UPGRADE)


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"type":"io.raybus.upgrade.promoted.v1"}', b"\xff"]
)
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        upgrade_events.decode(payload)


def test_ids_differ_by_upgrade_kind_and_fact() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    upgrades = [
        upgrade_events.upgrade(*each)
        for each in (("u", "a", "b"), ("u", "b", "a"), ("v", "a", "b"))
    ]
    kinds = (upgrade_events.Promoted, upgrade_events.Resumed)
    ids = [
        upgrade_events.identity(kind(upgrade=each), *more)
        for each in upgrades
        for kind in kinds
        for more in ((), (when,))
    ]
    assert len(set(ids)) == len(ids)
    assert upgrade_events.identity(kinds[0](upgrade=upgrades[0]), when) == ids[1]


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(
        msgspec.json.decode((DOCS / "events" / f"{kind}.json").read_bytes())
    )
