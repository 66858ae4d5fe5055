"""Texts of events: every kind, every field, and foreign text in them."""

from datetime import UTC, datetime

import msgspec
import pytest

from common import errors, event_catalogue
from common.bus import cloud_events
from common.bus.cloud_events import CloudEvent, EventData, EventSource
from common.ray import job_events
from common.upgrade import events as upgrade_events
from common.upgrade.events import UpgradeEventData
from notifications import templates
from support import job_events as jobs
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.upgrade_events import STALLED, UPGRADE

JOB_EVENTS = [jobs.a_job_event(data, seconds=at) for at, data in jobs.EXAMPLES]
EVENTS = [*an_example_upgrade(), *a_retreat(), *JOB_EVENTS]


def rendered(event: cloud_events.Event, **given: str) -> str:
    family = job_events.FAMILY if event in JOB_EVENTS else upgrade_events.FAMILY
    source = EventSource(resource=family.resource, namespace=event.namespace, name=event.name)
    decoded = event_catalogue.decode(family.encode(event).payload)
    return templates.render(
        templates.check_templates(given), decoded, source, escape=templates.strip_markup
    )


def of_kind(kind: str) -> cloud_events.Event:
    return next(each for each in EVENTS if each.data.kind == kind)


def test_every_kind_has_a_template() -> None:
    assert set(templates.DEFAULTS) == {*event_catalogue.KINDS, templates.OTHER}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.data.kind)
def test_a_default_template_fills_every_field(event: cloud_events.Event) -> None:
    text = rendered(event)
    assert "$" not in text
    assert text.startswith(f"{event.namespace}/{event.name}: ")


def test_a_text_names_what_happened() -> None:
    assert rendered(of_kind("stalled")) == (
        f"default/greeter: upgrade to {UPGRADE.new} stalled (InsufficientCapacity): {STALLED}"
    )
    assert rendered(of_kind("completed")) == (
        f"default/greeter: upgrade from {UPGRADE.old} to {UPGRADE.new} completed (Promoted), requests cut: 0"
    )


def test_a_text_names_what_happened_to_a_job() -> None:
    name = f"team-a/{jobs.NAME}"
    assert rendered(of_kind("job-succeeded")) == f"{name}: the job has succeeded after 312 s"
    assert rendered(of_kind("job-retried")) == (
        f"{name}: attempt 1 has failed (AppFailed, exit code 137), another one follows"
    )


def test_a_template_can_name_the_time_and_nested_fields_of_the_data() -> None:
    text = rendered(of_kind("completed"), completed="$time ${receipt_seconds_draining} s $$ $kind")
    assert text == "2026-01-01T12:04:20Z 70 s $ completed"


@pytest.mark.parametrize("kind", [*event_catalogue.KINDS, templates.OTHER])
def test_no_field_of_an_event_hides_one_of_all_events(kind: str) -> None:
    own = templates.list_fields(kind) - templates.FIELDS_OF_ALL
    assert not templates.FIELDS_OF_ALL & {path.partition("_")[0] for path in own}
    assert own & {"upgrade_from", "attempt_number"}


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        pytest.param(
            {"stalled": "$reasson"},
            "templates.stalled: there is no field $reasson; fields of stalled are ",
        ),
        pytest.param(
            {"promoted": "$reason"},
            "templates.promoted: there is no field $reason; fields of promoted are ",
        ),
        pytest.param({"stale": "x"}, "templates.stale: there is no such kind; kinds are started, "),
        pytest.param(
            {"failed": "5 $ more"}, "templates.failed: a \\$ stands before no name of a field"
        ),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused_by_the_name_of_its_field(
    given: dict[str, str], reported: str
) -> None:
    with pytest.raises(errors.InvalidSpec, match=reported.replace("$r", "\\$r")):
        templates.check_templates(given)


def stalled_with(message: str) -> str:
    event = of_kind("stalled")
    data = msgspec.structs.replace(event.data, message=message)
    return rendered(msgspec.structs.replace(event, data=data), stalled="[$message]")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        pytest.param(
            "<!channel> <https://evil|ok> & more",
            "[&lt;!channel&gt; &lt;https://evil|ok&gt; &amp; more]",
        ),
        pytest.param(
            "one\ndefault/other: upgrade completed", "[one default/other: upgrade completed]"
        ),
        pytest.param("\x1b[31mred\x07", "[red\ufffd]"),
        pytest.param("$namespace ${name}", "[$namespace ${name}]"),
        pytest.param("x" * 600, "[" + "x" * 499 + "…]"),
        pytest.param("@everyone @channel", "[@\u200beveryone @\u200bchannel]"),
        pytest.param("[a](https://evil)", "[[a]\u200b(https://evil)]"),
    ],
    ids=["links and mentions", "lines", "terminal", "fields", "length", "names", "Markdown"],
)
def test_foreign_text_is_shown_as_text(message: str, shown: str) -> None:
    assert stalled_with(message) == shown


def test_a_kind_of_a_later_release_has_a_text() -> None:
    event = CloudEvent[EventData](
        id="1",
        source="/apis/ray.io/v1/namespaces/default/rayservices/greeter",
        type=upgrade_events.type_of("shadowed"),
        subject="greeter",
        time=datetime(2026, 1, 1, tzinfo=UTC),
        data=UpgradeEventData(upgrade=UPGRADE),
    )
    source = EventSource(resource="rayservices", namespace="default", name="greeter")
    assert (
        templates.render(templates.check_templates({}), event, source, escape=str)
        == "default/greeter: shadowed"
    )
