"""Keys and signatures of Standard Webhooks."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest

from common import signature

KEY = b"32 bytes that both sides know 12"


def test_the_signature_covers_id_time_and_body() -> None:
    found = signature.headers("an-id", b"{}", key=KEY, now=datetime(2026, 1, 1, 12, tzinfo=UTC))
    digest = hmac.new(KEY, b"an-id.1767268800.{}", hashlib.sha256).digest()
    assert found == {
        "webhook-id": "an-id",
        "webhook-timestamp": "1767268800",
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def test_a_key_is_read_with_its_prefix_or_without() -> None:
    text = base64.b64encode(KEY).decode()
    assert signature.read_key(f"whsec_{text}\n") == signature.read_key(text) == KEY


@pytest.mark.parametrize("text", ["", "in clear", "whsec_c2hvcnQ=", "whsec_é"])
def test_what_is_no_key_is_refused_and_not_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="expected whsec_ and base64") as refusal:
        signature.read_key(text)
    assert not text or text not in str(refusal.value)
