"""What `raybus events` takes for a service, a time, an id; what it refuses, and with which message."""

from datetime import UTC, datetime

import pytest

from common import errors
from common.bus import subjects
from raybus_cli.events import show
from raybus_cli.events.show import Options, Service

NOW = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("10m", datetime(2026, 1, 31, 9, 50, tzinfo=UTC), id="minutes ago"),
        pytest.param("1h30m", datetime(2026, 1, 31, 8, 30, tzinfo=UTC), id="hours and minutes ago"),
        pytest.param(
            "2d",
            datetime(2026, 1, 29, 10, 0, tzinfo=UTC),
            id="days ago, which Go's durations do not know",
        ),
        pytest.param("0", NOW, id="now"),
        pytest.param(
            "2026-01-31T09:00:00Z", datetime(2026, 1, 31, 9, 0, tzinfo=UTC), id="a moment"
        ),
        pytest.param(
            "2026-01-31T09:00:00",
            datetime(2026, 1, 31, 9, 0, tzinfo=UTC),
            id="without a zone it is UTC",
        ),
        pytest.param(
            "2026-01-31T10:30:00+02:00", datetime(2026, 1, 31, 8, 30, tzinfo=UTC), id="with a zone"
        ),
        pytest.param("2026-01-30", datetime(2026, 1, 30, tzinfo=UTC), id="a day"),
    ],
)
def test_since_is_a_length_or_a_moment(text: str, wanted: datetime) -> None:
    assert show.check_since(text, now=NOW) == wanted


@pytest.mark.parametrize(
    "text", ["", "yesterday", "10", "999999999d", "99999999h", "2026-13-01", "-", "10 m"]
)
def test_since_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(errors.InvalidSpec, match=r"^--since .* is no time: expected"):
        show.check_since(text, now=NOW)


@pytest.mark.parametrize("text", ["-10m", "2026-01-31T10:00:01Z", "2027-01-01"])
def test_since_refuses_the_future(text: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match="lies in the future; it is 2026-01-31T10:00:00Z now"
    ):
        show.check_since(text, now=NOW)


def test_a_service_is_a_namespace_and_a_name() -> None:
    assert show.check_service("default/my.chat-1") == Service("default", "my.chat-1")
    assert show.check_service(None) is None
    assert show.check_namespace(None) == ""
    assert show.Options(
        namespace=show.check_namespace("team-a")
    ).subject == subjects.build_events_filter("team-a")
    with pytest.raises(errors.InvalidSpec, match="--namespace '>' is no name of a namespace"):
        show.check_namespace(">")


def test_a_name_alone_is_in_the_callers_own_namespace() -> None:
    assert show.check_service("chat", "team-a") == Service("team-a", "chat")
    assert show.check_service("default/chat", "team-a") == Service("default", "chat")
    with pytest.raises(errors.InvalidSpec, match="names no RayService"):
        show.check_service("Chat", "team-a")


@pytest.mark.parametrize(
    "text", ["chat", "/chat", "default/", "a/b/c", "default/Chat", "default/*", "default/>", " / "]
)
def test_a_service_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match="names no RayService: expected NAMESPACE/RAYSERVICE"
    ):
        show.check_service(text)


def test_a_name_with_a_dot_is_one_token_of_the_filter() -> None:
    assert Options(service=Service("default", "my.chat")).subject == "ray.events.default.my_chat.*"
    assert Options().subject == "ray.events.>"


def test_other_values_are_refused_with_the_option_and_what_is_expected() -> None:
    with pytest.raises(errors.InvalidSpec, match="--limit 0: expected a whole number of 1 or more"):
        show.check_limit(0)
    with pytest.raises(errors.InvalidSpec, match="--replay '': expected the id of an event"):
        show.check_replay(" ")
