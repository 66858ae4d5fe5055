"""The service, time and id that `raybus events` accepts, and the messages for those that it
refuses.
"""

from datetime import UTC, datetime

import pytest

from common import errors
from common.bus import subjects
from raybus_cli.events import show
from raybus_cli.events.show import EventOptions, SelectedObject
from support.tables import cases

NOW = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)


@cases(
    ("text", "wanted"),
    {
        "minutes ago": ("10m", datetime(2026, 1, 31, 9, 50, tzinfo=UTC)),
        "hours and minutes ago": ("1h30m", datetime(2026, 1, 31, 8, 30, tzinfo=UTC)),
        "days ago, which Go's durations do not know": (
            "2d",
            datetime(2026, 1, 29, 10, 0, tzinfo=UTC),
        ),
        "now": ("0", NOW),
        "a moment": ("2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, 0, tzinfo=UTC)),
        "without a zone it is UTC": (
            "2026-01-31T09:00:00",
            datetime(2026, 1, 31, 9, 0, tzinfo=UTC),
        ),
        "with a zone": ("2026-01-31T10:30:00+02:00", datetime(2026, 1, 31, 8, 30, tzinfo=UTC)),
        "a day": ("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC)),
    },
)
def test_since_is_a_length_or_a_moment(text: str, wanted: datetime) -> None:
    assert show.parse_since(text, now=NOW) == wanted


@pytest.mark.parametrize(
    "text", ["", "yesterday", "10", "999999999d", "99999999h", "2026-13-01", "-", "10 m"]
)
def test_since_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=r"^--since .* is no time: expected"):
        show.parse_since(text, now=NOW)


@pytest.mark.parametrize("text", ["-10m", "2026-01-31T10:00:01Z", "2027-01-01"])
def test_since_refuses_the_future(text: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match="lies in the future; it is 2026-01-31T10:00:00Z now"
    ):
        show.parse_since(text, now=NOW)


def test_a_service_is_a_namespace_and_a_name() -> None:
    assert show.parse_object("default/my.chat-1") == SelectedObject("default", "my.chat-1")
    assert show.parse_object(None) is None
    assert show.check_namespace(None) == ""
    assert show.EventOptions(
        namespace=show.check_namespace("team-a")
    ).subject == subjects.build_events_filter("team-a")
    with pytest.raises(errors.InvalidSpec, match="--namespace '>' is no name of a namespace"):
        show.check_namespace(">")


def test_a_name_alone_is_in_the_callers_own_namespace() -> None:
    assert show.parse_object("chat", "team-a") == SelectedObject("team-a", "chat")
    assert show.parse_object("default/chat", "team-a") == SelectedObject("default", "chat")
    with pytest.raises(errors.InvalidSpec, match="names no RayService"):
        show.parse_object("Chat", "team-a")


@pytest.mark.parametrize(
    "text", ["chat", "/chat", "default/", "a/b/c", "default/Chat", "default/*", "default/>", " / "]
)
def test_a_service_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match="names no RayService and no RayJob: expected NAMESPACE/NAME"
    ):
        show.parse_object(text)


def test_a_name_with_a_dot_is_one_token_of_the_filter() -> None:
    assert (
        EventOptions(selected=SelectedObject("default", "my.chat")).subject
        == "ray.events.default.my_chat.*"
    )
    assert EventOptions().subject == "ray.events.>"


def test_other_values_are_refused_with_the_option_and_what_is_expected() -> None:
    with pytest.raises(errors.InvalidSpec, match="--limit 0: expected a whole number of 1 or more"):
        show.check_limit(0)
    with pytest.raises(errors.InvalidSpec, match="--replay '': expected the id of an event"):
        show.check_replay(" ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rayjob/train", SelectedObject("team-a", "train", "rayjobs")),
        ("rayjobs/default/train", SelectedObject("default", "train", "rayjobs")),
        ("RayService/chat", SelectedObject("team-a", "chat", "rayservices")),
        ("train", SelectedObject("team-a", "train")),
    ],
)
def test_an_object_may_begin_with_its_kind(text: str, expected: SelectedObject) -> None:
    assert show.parse_object(text, "team-a") == expected


def test_kinds_are_those_of_all_events() -> None:
    assert show.parse_kinds(["job-failed", "failed"]) == {"job-failed", "failed"}
    assert show.parse_kinds(None) == frozenset()
    with pytest.raises(errors.InvalidSpec, match=r"--kind 'done': there is no such kind; kinds"):
        show.parse_kinds(["done"])
