"""Events of every family: the official SDK reads them, and the published schemas and pages match
them.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat

from common import event_catalogue
from common.bus import cloud_events
from common.bus.cloud_events import Event, EventFamily
from common.ray import job_events
from common.ray.job_events import JobEventData
from common.upgrade import events as upgrade_events
from support import event_docs
from support import job_events as jobs
from support import upgrade_events as upgrades
from support.golden import Golden

DOCS: Final = Path(__file__).parents[3] / "docs"
EXAMPLES: Final = {
    upgrade_events.FAMILY.resource: [
        upgrades.an_event(data, seconds=at) for at, data in upgrades.EXAMPLES
    ],
    job_events.FAMILY.resource: [jobs.a_job_event(data, seconds=at) for at, data in jobs.EXAMPLES],
}
PAGES: Final = {
    upgrade_events.FAMILY.resource: "README.md",
    job_events.FAMILY.resource: "jobs.md",
}
EVENTS: Final = [
    pytest.param(family, event, id=event.data.kind)
    for family in event_catalogue.FAMILIES
    for event in EXAMPLES[family.resource]
]


@pytest.fixture
def pages(request: pytest.FixtureRequest) -> Golden:
    return Golden(root=DOCS / "events", update=bool(request.config.getoption("--update-golden")))


def test_there_is_an_example_of_each_kind() -> None:
    shown = [event.data.kind for events in EXAMPLES.values() for event in events]
    assert shown == list(event_catalogue.KINDS)


def test_no_two_families_share_a_kind() -> None:
    assert len(event_catalogue.KINDS) == sum(
        len(family.kinds) for family in event_catalogue.FAMILIES
    )


@pytest.mark.parametrize("kind", event_catalogue.KINDS)
def test_the_schema_is_the_published_one(pages: Golden, kind: str) -> None:
    pages.check(f"{kind}.json", event_docs.schema_text(kind))
    jsonschema.Draft202012Validator.check_schema(event_docs.schema(kind))


@pytest.mark.parametrize("family", event_catalogue.FAMILIES, ids=lambda family: family.resource)
def test_the_page_shows_every_type(pages: Golden, family: EventFamily[Any]) -> None:
    name = PAGES[family.resource]
    text = (DOCS / "events" / name).read_text()
    pages.check(name, event_docs.page(text, family, EXAMPLES[family.resource]))


@pytest.mark.parametrize(("family", "event"), EVENTS)
@pytest.mark.parametrize("trace", [None, upgrades.TRACE])
def test_the_official_sdk_reads_an_event(
    family: EventFamily[Any], event: Event, trace: str | None
) -> None:
    wire = family.encode(event, trace=trace)
    message = http.HTTPMessage(
        headers={"content-type": wire.headers["Content-Type"]}, body=wire.payload
    )
    read = http.from_http(message, JSONFormat())
    source = f"/apis/ray.io/v1/namespaces/team-a/{family.resource}/{event.name}"
    assert (read.get_id(), read.get_source()) == (event.id, source)
    assert (read.get_type(), read.get_subject()) == (family.type_of(event.data.kind), event.name)
    assert (read.get_time(), read.get_extension("traceparent")) == (event.time, trace)
    assert msgspec.convert(read.get_data(), type(event.data)) == event.data
    assert wire.subject == f"ray.events.team-a.{event.name}.{event.data.kind}"


@pytest.mark.parametrize(("family", "event"), EVENTS)
def test_an_event_holds_its_schema_and_no_other(family: EventFamily[Any], event: Event) -> None:
    written: dict[str, Any] = msgspec.json.decode(family.encode(event).payload)
    held = [
        kind for kind in event_catalogue.KINDS if not list(_validator(kind).iter_errors(written))
    ]
    assert held == [event.data.kind]


@pytest.mark.parametrize("without", ["id", "specversion", "time", "data"])
def test_a_schema_refuses_what_is_no_event(without: str) -> None:
    event = EXAMPLES[upgrade_events.FAMILY.resource][0]
    written: dict[str, Any] = msgspec.json.decode(upgrade_events.encode(event).payload)
    del written[without]
    assert list(_validator("started").iter_errors(written))


@pytest.mark.parametrize(("family", "event"), EVENTS)
def test_what_is_written_can_be_read(family: EventFamily[Any], event: Event) -> None:
    read = event_catalogue.decode(family.encode(event, trace=upgrades.TRACE).payload)
    assert (read.id, read.time, read.traceparent, read.data) == (
        event.id,
        event.time,
        upgrades.TRACE,
        event.data,
    )
    assert event_catalogue.kind_of(read.type) == event.data.kind


def test_of_a_newer_kind_the_attempt_is_read() -> None:
    event = EXAMPLES[job_events.FAMILY.resource][0]
    payload = job_events.FAMILY.encode(event).payload.replace(b"job.submitted", b"job.queued")
    read = event_catalogue.decode(payload)
    assert read.data == JobEventData(attempt=jobs.ATTEMPT)
    assert event_catalogue.kind_of(read.type) == "job-queued"


def test_a_reader_of_one_family_refuses_an_event_of_another() -> None:
    event = EXAMPLES[job_events.FAMILY.resource][0]
    with pytest.raises(msgspec.DecodeError):
        upgrade_events.decode(job_events.FAMILY.encode(event).payload)


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b'{"type":"io.raybus.job.running.v1"}', b'{"type":"com.example.done"}', b"\xff"],
)
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        event_catalogue.decode(payload)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "/apis/ray.io/v1/namespaces/a/rayjobs/b",
            cloud_events.EventSource(resource="rayjobs", namespace="a", name="b"),
        ),
        ("/apis/ray.io/v1/namespaces/a/rayjobs", None),
        ("elsewhere", None),
    ],
)
def test_a_source_names_an_object(text: str, expected: cloud_events.EventSource | None) -> None:
    assert cloud_events.parse_source(text) == expected


@cache
def _validator(kind: str) -> Any:
    return jsonschema.Draft202012Validator(
        msgspec.json.decode((DOCS / "events" / f"{kind}.json").read_bytes())
    )
