"""Sign webhook requests by the Standard Webhooks specification (https://www.standardwebhooks.com).

The signature is HMAC-SHA256 over id, time and body. A receiver verifies it, rejects old times, and
detects a repetition by its id.
"""

import base64
import hashlib
import hmac
from datetime import datetime
from typing import Final

MIN_KEY_LENGTH: Final = 16
"""Minimum length of a signing key, in bytes."""
KEY_FORM: Final = "whsec_ and base64 of at least 16 bytes, as 'openssl rand -base64 32' makes it"


def read_key(text: str) -> bytes:
    """Parse a signing key: `whsec_` and base64.

    Raises `ValueError`, whose message does not contain the key.
    """
    try:
        key = base64.b64decode(text.strip().removeprefix("whsec_"), validate=True)
    except ValueError:
        key = b""
    if len(key) < MIN_KEY_LENGTH:
        raise ValueError(f"expected {KEY_FORM}")
    return key


def headers(identity: str, body: bytes, *, key: bytes, now: datetime) -> dict[str, str]:
    """Return the signature headers for a request with this id and body."""
    seconds = int(now.timestamp())
    digest = hmac.new(key, f"{identity}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": identity,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
