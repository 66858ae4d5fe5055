"""Builds the request of a notification, and decides what to do after its answer (no I/O)."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import msgspec

from common import signature

FIRST_DELAY: Final = 1.0
MAX_DELAY: Final = 300.0
MAX_RETRY_AFTER: Final = 3600.0
"""Maximum seconds that a receiver can ask for with Retry-After."""
NO_ANSWER: Final = 0
_INVALID: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""Statuses by which a receiver rejects the body, so that sending the body again is useless."""


class Slack(msgspec.Struct, frozen=True):
    """The request body for Slack and Slack-compatible receivers."""

    text: str
    unfurl_links: bool = False
    unfurl_media: bool = False


class Generic(msgspec.Struct, frozen=True):
    """The request body for any other receiver: the text, and the CloudEvent as stored in NATS."""

    text: str
    event: msgspec.Raw


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """Status and Retry-After header of an answer; the status is `NO_ANSWER` if no answer came."""

    status: int
    retry_after: str = ""

    def __str__(self) -> str:
        return "no answer" if self.status == NO_ANSWER else f"status {self.status}"


class Retry(msgspec.Struct, frozen=True):
    """The decision to send the event again after `after` seconds."""

    after: float


class Drop(msgspec.Struct, frozen=True):
    """The decision not to send the event again."""

    reason: str


def build_headers(
    identity: str, body: bytes, *, key: bytes | None, now: datetime
) -> dict[str, str]:
    """Return the headers of a request. The body is signed if there is a key."""
    values = {
        "Content-Type": "application/json",
        "User-Agent": "raybus-notifications",
        "Idempotency-Key": identity,
    }
    if key is None:
        return values
    return values | signature.headers(identity, body, key=key, now=now)


def decide(
    answer: ReceiverAnswer, *, attempt: int, max_attempts: int, now: datetime, jitter: float
) -> Retry | Drop | None:
    """Return what to do after attempt number `attempt` (from 1); None if the event was accepted.

    `jitter`, from 0 to 1, spreads the waiting times.
    """
    if 200 <= answer.status < 300:
        return None
    if answer.status in _INVALID:
        return Drop(f"{answer}: the receiver rejects the body")
    if attempt >= max_attempts:
        return Drop(f"{answer}, attempt {attempt} of {max_attempts}")
    backoff = min(MAX_DELAY, FIRST_DELAY * 2 ** min(attempt - 1, 30)) * (1 + jitter) / 2
    return Retry(max(backoff, min(MAX_RETRY_AFTER, _parse_retry_after(answer.retry_after, now))))


def _parse_retry_after(retry_after: str, now: datetime) -> float:
    """Return the seconds of a Retry-After header (seconds or a date); 0 for any other text."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
