"""The file and the secrets: errors are named, and no secret is shown."""

from pathlib import Path
from typing import Any

import pytest

from common import errors
from common.bus.cloud_events import EventSource
from notifications import settings
from notifications.settings import Destination, NotificationSettings, Paths
from support.tables import cases

URL = "https://hooks.slack.test/services/T0/B0/very-secret"
KEY = "whsec_MzIgYnl0ZXMgdGhhdCBib3RoIHNpZGVzIGtub3cgMTI="
ONE = "destinations:\n- name: slack\n"


def read(folder: Path, text: str = ONE, **entries: str) -> NotificationSettings:
    file, secrets = folder / "notifications.yaml", folder / "secrets"
    file.write_text(text)
    secrets.mkdir()
    for name, content in {"slack_url": URL, **entries}.items():
        (secrets / name.replace("_", ".")).write_text(content)
    return settings.read(Paths(notifications_file=file, notifications_secrets=secrets))


def test_a_name_and_an_address_suffice(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.choices.destinations == (Destination(name="slack"),)
    assert (found.secrets["slack"].url, found.secrets["slack"].key) == (URL, None)


def test_a_final_line_feed_is_no_part_of_a_secret(tmp_path: Path) -> None:
    found = read(tmp_path, slack_url=f"{URL}\n", slack_key=f"{KEY}\n")
    assert (found.secrets["slack"].url, found.secrets["slack"].key) == (
        URL,
        b"32 bytes that both sides know 12",
    )


def test_no_secret_is_in_the_text_of_the_settings(tmp_path: Path) -> None:
    text = repr(read(tmp_path, slack_key=KEY))
    assert "secret" not in text.replace("secrets=", "")
    assert "both sides" not in text


@cases(("text", "reported"), {"none": ("destinations: []", "length >= 1 - at `$.destinations`"),
"typo": ("destinations:\n- name: slack\n  kind: [failed]", "unknown field `kind` - at `$.destin"),
"kind": ("destinations:\n- name: slack\n  kinds: [fail]", r"destinations[0].kinds: there is no kind 'fail'"),
"name": ("destinations:\n- name: Slack", "destinations[0].name: 'Slack' is no name"),
"twice": ("destinations:\n- name: slack\n- name: slack", "destinations[1].name: 'slack' occurs twice"),
"format": ("destinations:\n- name: slack\n  format: xml", "'xml' - at `$.destinations[0].format`"),
"attempts": (f"{ONE}attempts: 0", "`int` >= 1 - at `$.attempts`"),
"template": (f"{ONE}templates: {{failed: $why}}", "templates.failed: there is no field $why"),
"no YAML": ("{", "notifications.yaml: "),
"no address": ("destinations:\n- name: pager", "there is no file pager.url in"),})  # fmt: skip
def test_a_wrong_value_is_named(tmp_path: Path, text: str, reported: str) -> None:
    with pytest.raises(errors.InvalidSpec) as refusal:
        read(tmp_path, text)
    assert reported in str(refusal.value)


@cases(("entries", "reported"), {"http": ({"slack_url": "http://hooks.test/secret"}, "slack.url: expected https://; set allowHttp"),
"no scheme": ({"slack_url": "hooks.test/secret"}, "slack.url: expected https://HOST/PATH"),
"no host": ({"slack_url": "https:///secret"}, "slack.url: expected https://HOST/PATH"),
"invalid": ({"slack_url": "https://a b/secret\x00"}, "slack.url: expected https://HOST/PATH"),
"no key": ({"slack_key": "secret"}, "slack.key: expected whsec_ and base64"),})  # fmt: skip
def test_a_wrong_secret_is_named_and_not_shown(
    tmp_path: Path, entries: dict[str, str], reported: str
) -> None:
    with pytest.raises(errors.InvalidSpec) as refusal:
        read(tmp_path, **entries)
    assert reported in str(refusal.value)
    assert "secret" not in str(refusal.value)


def test_a_receiver_without_tls_is_asked_for(tmp_path: Path) -> None:
    assert (
        read(tmp_path, f"{ONE}allowHttp: true", slack_url="http://relay.test/x")
        .secrets["slack"]
        .url
        == "http://relay.test/x"
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        errors.InvalidSpec, match=r"RAYBUS_NOTIFICATIONS_FILE=.*gone\.yaml: cannot be read"
    ):
        settings.read(Paths(notifications_file=tmp_path / "gone.yaml"))


def test_the_environment_names_the_places() -> None:
    assert Paths.from_environment(
        {"RAYBUS_NOTIFICATIONS_SECRETS": "/s", "RAYBUS_NATS_CREDENTIALS": "/c"}
    ) == Paths(notifications_secrets=Path("/s"), nats_credentials=Path("/c"))


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({}, True),
        ({"kinds": ("failed", "stalled")}, True),
        ({"kinds": ("started",)}, False),
        ({"namespaces": ("team-a",)}, True),
        ({"namespaces": ("team-b",)}, False),
        ({"ray_services": ("demo",)}, True),
        ({"ray_services": ("other",), "namespaces": ("team-a",)}, False),
        ({"ray_jobs": ("demo",)}, False),
    ],
)
def test_an_event_passes_all_filters(filters: dict[str, Any], wanted: bool) -> None:
    source = EventSource(resource="rayservices", namespace="team-a", name="demo")
    assert Destination(name="slack", **filters).is_interested_in("stalled", source) is wanted


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({}, True),
        ({"kinds": ("job-failed",)}, True),
        ({"kinds": ("failed",)}, False),
        ({"ray_services": ("train",)}, False),
        ({"ray_jobs": ("train",)}, True),
        ({"ray_jobs": ("other",)}, False),
        ({"ray_jobs": ("other",), "ray_cron_jobs": ("nightly",)}, True),
        ({"ray_cron_jobs": ("hourly",)}, False),
    ],
)
def test_an_event_of_a_job_passes_all_filters(filters: dict[str, Any], wanted: bool) -> None:
    source = EventSource(resource="rayjobs", namespace="team-a", name="train")
    destination = Destination(name="slack", **filters)
    assert destination.is_interested_in("job-failed", source, "nightly") is wanted
