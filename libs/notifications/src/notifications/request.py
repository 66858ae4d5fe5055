"""The request of a notification, and what its answer means. Pure."""

from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import msgspec

from common import signature

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 300.0
LONGEST_RETRY_AFTER: Final = 3600.0
"""Seconds that a receiver can ask for."""
NO_ANSWER: Final = 0
_INVALID: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""The receiver has read the body and rejects it; another attempt changes nothing."""


class Slack(msgspec.Struct, frozen=True):
    """The body for Slack, and for what accepts the same."""

    text: str
    unfurl_links: bool = False
    unfurl_media: bool = False


class Generic(msgspec.Struct, frozen=True):
    """The body for any other receiver: the text, and the CloudEvent as it is stored."""

    text: str
    event: msgspec.Raw


class Answer(msgspec.Struct, frozen=True):
    """The part of an answer that counts; its body is not read."""

    status: int
    retry_after: str = ""

    def __str__(self) -> str:
        return "no answer" if self.status == NO_ANSWER else f"status {self.status}"


class Retry(msgspec.Struct, frozen=True):
    """The event is sent again after some seconds."""

    after: float


class Drop(msgspec.Struct, frozen=True):
    """The event is not sent again."""

    reason: str


def headers(identity: str, body: bytes, *, key: bytes | None, now: datetime) -> dict[str, str]:
    """Return the headers of a request; signed if there is a key."""
    found = {
        "Content-Type": "application/json",
        "User-Agent": "raybus-notifications",
        "Idempotency-Key": identity,
    }
    if key is None:
        return found
    return found | signature.headers(identity, body, key=key, now=now)


def decide(
    answer: Answer, *, attempt: int, most: int, now: datetime, jitter: float
) -> Retry | Drop | None:
    """Return what follows an attempt, counted from 1; None when the event was accepted. `jitter` is from 0 to 1."""
    if 200 <= answer.status < 300:
        return None
    if answer.status in _INVALID:
        return Drop(f"{answer}: the receiver rejects the body")
    if attempt >= most:
        return Drop(f"{answer}, attempt {attempt} of {most}")
    backoff = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(attempt - 1, 30)) * (1 + jitter) / 2
    return Retry(max(backoff, min(LONGEST_RETRY_AFTER, _asked(answer.retry_after, now))))


def _asked(retry_after: str, now: datetime) -> float:
    """Return the seconds of a header Retry-After, which has seconds or a date; 0 for any other text."""
    text = retry_after.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - now).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0
