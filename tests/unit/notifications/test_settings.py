"""The file and the secrets: what is wrong is named, and no secret is shown."""

from pathlib import Path
from typing import Any

import pytest

from common import errors
from notifications import settings
from notifications.settings import Destination, NotificationSettings, Paths

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


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        pytest.param("destinations: []", "length >= 1 - at `$.destinations`", id="none"),
        pytest.param("destinations:\n- name: slack\n  kind: [failed]", "unknown field `kind` - at `$.destin", id="typo"),
        pytest.param("destinations:\n- name: slack\n  kinds: [fail]", r"destinations[0].kinds: there is no kind 'fail'", id="kind"),
        pytest.param("destinations:\n- name: Slack", "destinations[0].name: 'Slack' is no name", id="name"),
        pytest.param("destinations:\n- name: slack\n- name: slack", "destinations[1].name: 'slack' occurs twice", id="twice"),
        pytest.param("destinations:\n- name: slack\n  format: xml", "'xml' - at `$.destinations[0].format`", id="format"),
        pytest.param(f"{ONE}attempts: 0", "`int` >= 1 - at `$.attempts`", id="attempts"),
        pytest.param(f"{ONE}templates: {{failed: $why}}", "templates.failed: there is no field $why", id="template"),
        pytest.param("{", "notifications.yaml: ", id="no YAML"),
        pytest.param("destinations:\n- name: pager", "there is no file pager.url in", id="no address"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named(tmp_path: Path, text: str, reported: str) -> None:
    with pytest.raises(errors.InvalidSpec) as refusal:
        read(tmp_path, text)
    assert reported in str(refusal.value)


@pytest.mark.parametrize(
    ("entries", "reported"),
    [
        pytest.param({"slack_url": "http://hooks.test/secret"}, "slack.url: expected https://; set allowHttp", id="http"),
        pytest.param({"slack_url": "hooks.test/secret"}, "slack.url: expected https://HOST/PATH", id="no scheme"),
        pytest.param({"slack_url": "https:///secret"}, "slack.url: expected https://HOST/PATH", id="no host"),
        pytest.param({"slack_url": "https://a b/secret\x00"}, "slack.url: expected https://HOST/PATH", id="invalid"),
        pytest.param({"slack_key": "secret"}, "slack.key: expected whsec_ and base64", id="no key"),
    ],
)  # fmt: skip
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
    ],
)
def test_an_event_passes_all_filters(filters: dict[str, Any], wanted: bool) -> None:
    assert Destination(name="slack", **filters).wants("stalled", "team-a", "demo") is wanted
