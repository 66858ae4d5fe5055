"""docs/how-to/notifications.md: its recipe verifies sent requests, and its examples are valid."""

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from notifications import request, settings, templates
from support.manifests import ROOT

PAGE = (ROOT / "docs" / "how-to" / "notifications.md").read_text()
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = b"32 bytes that both sides know 12"


def block(language: str, beginning: str) -> str:
    """Return the code block of the page that begins with a text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return next(each for each in found if each.startswith(beginning))


@pytest.fixture(scope="module")
def is_genuine() -> Callable[..., bool]:
    names: dict[str, Any] = {}
    exec(block("python", "import base64"), names)  # noqa: S102
    return names["is_genuine"]


@pytest.mark.parametrize(
    ("body", "key", "later", "expected"),
    [
        pytest.param(b"{}", KEY, 0, True, id="genuine"),
        pytest.param(b"{ }", KEY, 0, False, id="another body"),
        pytest.param(b"{}", b"another key of 32 bytes, or more", 0, False, id="another key"),
        pytest.param(b"{}", KEY, 301, False, id="recorded"),
    ],
)
def test_the_recipe_accepts_a_signed_request_alone(
    is_genuine: Callable[..., bool], body: bytes, key: bytes, later: int, expected: bool
) -> None:
    headers = request.build_headers("1-started", b"{}", key=KEY, now=NOW)
    text = f"whsec_{base64.b64encode(key).decode()}"
    assert is_genuine(headers, body, text, NOW.timestamp() + later) is expected


def test_the_examples_are_valid() -> None:
    choices = settings.decode(block("yaml", "# notifications.yaml").encode())
    assert [each.name for each in choices.destinations] == ["slack", "pager", "data-team"]
    assert templates.check_templates(yaml.safe_load(block("yaml", "templates:"))["templates"])


def test_the_page_has_every_field_and_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))
    given = settings.SettingsFile(destinations=())
    assert (rows["attempts"], rows["timeoutSeconds"]) == (
        str(given.attempts),
        f"{given.timeout_seconds:g}",
    )
    assert rows["allowHttp"] == str(given.allow_http).lower()
