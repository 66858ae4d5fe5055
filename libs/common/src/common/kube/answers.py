"""Translation of the API server's answers: a status code becomes one of our errors, `metadata.managedFields` the last writer."""

from collections.abc import Callable
from typing import Final

import msgspec

from common import errors
from common.api.opaque import Json
from common.untrusted import clipped

LONGEST_MESSAGE: Final = 4096
"""Characters that are kept of the text of a refusal; through the API server's proxy any server may have written it."""

UNAUTHENTICATED: Final = frozenset({401, 403})
"""Codes by which a Ray dashboard refuses a request: without a token, or with another one than it expects."""
_MEANING: Final[dict[int, Callable[[str], errors.RaybusError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Conflict,
}
_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""Texts by which the API server, with 500, reports that its store refuses an object for its size."""

_WEBHOOK: Final = "failed calling webhook"
"""The same, with 500, for a webhook that does not answer: other objects may well be admitted."""

OURS: Final = "raybus-"
"""Prefix of the names of our clients."""
UNKNOWN: Final = "unknown"


NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""The reason of a cause of 403: the object would be created in a namespace that is being deleted."""


class Cause(msgspec.Struct, frozen=True):
    """One of several reasons for a refusal."""

    reason: str = ""


class Details(msgspec.Struct, frozen=True):
    """What a refusal is about."""

    causes: tuple[Cause, ...] | None = None


class Status(msgspec.Struct, frozen=True):
    """The `Status` object that the API server answers with when it refuses."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    details: Details | None = None

    @property
    def causes(self) -> frozenset[str]:
        """Return the reasons of its causes."""
        causes = None if self.details is None else self.details.causes
        return frozenset(each.reason for each in causes or ())


def from_answer(
    code: int, body: bytes, *, retry_after: float | None = None, is_foreign: bool = False
) -> errors.RaybusError:
    """Return the error that stands for a refused request; `retry_after` is in seconds.

    A foreign server, behind the API server's proxy, refuses a token with any text but a `Status`.
    """
    status = _status(code, body)
    text = clipped(status.message, LONGEST_MESSAGE) or f"the API server answered {code}"
    if is_foreign and code in UNAUTHENTICATED and status.kind != "Status":
        return errors.Unauthenticated(f"{code} {text}")
    if code == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExists(text)
    if code == 429:
        return errors.Throttled(text, after=retry_after)
    if code == 500 and any(phrase in text for phrase in _TOO_LARGE):
        return errors.Rejected(f"{text}; make the object smaller")
    if not 400 <= code < 500:
        kind = errors.Retryable if code == 500 and _WEBHOOK in text else errors.Unavailable
        return kind(text, after=retry_after)
    is_ending = code == 403 and NAMESPACE_TERMINATING in status.causes
    return (errors.NamespaceTerminating if is_ending else _MEANING.get(code, errors.Rejected))(text)


def _status(code: int, body: bytes) -> Status:
    if code < 400:
        return Status(message=f"the API server answered {code}, and redirects are not followed")
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Status(message=body[:200].decode(errors="replace"))


def is_gone(problem: errors.NotFound, name: str) -> bool:
    """Return whether the API server misses this object, and not its whole kind, as it does in its first second."""
    return f'"{name}" not found' in str(problem)


def writer_of_rules(body: bytes) -> str:
    """Return the last client but ours that wrote `spec.rules` of a route."""
    entries: list[Json] = msgspec.json.decode(body)["metadata"].get("managedFields", [])
    rules = [each for each in entries if "f:rules" in each.get("fieldsV1", {}).get("f:spec", {})]
    others = [each for each in rules if not each.get("manager", "").startswith(OURS)]
    last = max(others, key=lambda each: each.get("time", ""), default=Json())  # all times end in Z
    return last.get("manager") or UNKNOWN
