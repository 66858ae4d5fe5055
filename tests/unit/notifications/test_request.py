"""Signature, body and the decision after an attempt."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from notifications import request
from notifications.request import Drop, ReceiverAnswer, Retry

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = b"32 bytes that both sides know 12"


def decided(
    status: int, *, attempt: int = 1, most: int = 5, retry_after: str = "", jitter: float = 1.0
) -> object:
    return request.decide(
        ReceiverAnswer(status, retry_after),
        attempt=attempt,
        max_attempts=most,
        now=NOW,
        jitter=jitter,
    )


@pytest.mark.parametrize("status", [200, 202, 204])
def test_2xx_accepts_the_event(status: int) -> None:
    assert decided(status) is None


@pytest.mark.parametrize("status", [0, 301, 307, 401, 403, 404, 408, 410, 429, 500, 503])
def test_what_an_administrator_or_time_can_correct_is_tried_again(status: int) -> None:
    assert decided(status) == Retry(1.0)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_rejected_body_is_dropped_at_once(status: int) -> None:
    assert decided(status) == Drop(f"status {status}: the receiver rejects the body")


def test_the_last_attempt_drops_the_event() -> None:
    assert decided(503, attempt=4) == Retry(8.0)
    assert decided(503, attempt=5) == Drop("status 503, attempt 5 of 5")
    assert decided(0, attempt=6) == Drop("no answer, attempt 6 of 5")


def test_the_delay_doubles_up_to_its_limit_and_jitter_halves_it_at_most() -> None:
    delays = [decided(503, attempt=attempt, most=2_000) for attempt in (1, 2, 3, 9, 10, 1_500)]
    assert delays == [Retry(1.0), Retry(2.0), Retry(4.0), Retry(256.0), Retry(300.0), Retry(300.0)]
    assert decided(503, attempt=3, jitter=0.0) == Retry(2.0)


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("30", 30.0),
        ("0", 1.0),
        (format_datetime(NOW.replace(minute=2), usegmt=True), 120.0),
        (format_datetime(NOW.replace(hour=11), usegmt=True), 1.0),
        ("999999999", 3600.0),
        ("99999999999999999999", 1.0),
        ("-5", 1.0),
        ("soon", 1.0),
        ("Thu, 01 Jan 2026 12:02:00", 1.0),
    ],
    ids=[
        *("seconds", "zero", "date", "past", "long", "absurd", "negative", "text"),
        "date without a zone",
    ],
)
def test_retry_after_lengthens_the_delay_and_is_bounded(retry_after: str, seconds: float) -> None:
    assert decided(429, retry_after=retry_after) == Retry(seconds)


def test_the_id_is_the_key_of_repetitions() -> None:
    assert request.build_headers("1-started", b"{}", key=None, now=NOW) == {
        "Content-Type": "application/json",
        "User-Agent": "raybus-notifications",
        "Idempotency-Key": "1-started",
    }


def test_the_signature_covers_id_time_and_body() -> None:
    found = request.build_headers("1-started", b"{}", key=KEY, now=NOW)
    digest = hmac.new(KEY, b"1-started.1767268800.{}", hashlib.sha256).digest()
    assert found["webhook-id"] == "1-started"
    assert found["webhook-timestamp"] == "1767268800"
    assert found["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
