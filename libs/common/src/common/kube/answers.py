"""Translate answers of the API server: a status to an error, managed fields to a writer."""

from collections.abc import Callable
from typing import Final

import msgspec

from common import errors
from common.api.opaque import Json
from common.untrusted import clipped

MAX_MESSAGE_LENGTH: Final = 4096
"""Characters kept of an error text.

An answer through the API server's proxy may come from any server.
"""

UNAUTHENTICATED: Final = frozenset({401, 403})
"""Codes with which a Ray dashboard refuses a request whose token is missing or wrong."""
_MEANING: Final[dict[int, Callable[[str], errors.RaybusError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Conflict,
}
_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""Texts with which the API server reports, with code 500, an object that is too large to store."""

_WEBHOOK: Final = "failed calling webhook"
"""Text with which the API server reports, with code 500, an admission webhook without an answer.

Requests for other objects may succeed.
"""

OURS: Final = "raybus-"
"""Prefix of the field manager names of raybus."""
UNKNOWN: Final = "unknown"


NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""Cause of a 403 answer: the namespace of the object to be created is being deleted."""


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in the details of a `Status`."""

    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True):
    """The details of a `Status`."""

    causes: tuple[StatusCause, ...] | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """The `Status` object in the body of a refused request."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> frozenset[str]:
        causes = None if self.details is None else self.details.causes
        return frozenset(cause.reason for cause in causes or ())


def make_error(
    code: int, body: bytes, *, retry_after: float | None = None, is_foreign: bool = False
) -> errors.RaybusError:
    """Return the error for a refused request.

    `retry_after` is the wait in seconds that the answer asked for. With `is_foreign` the answer
    came from a server behind the API server's proxy. If such a server refuses a token, the body is
    any text instead of a `Status`, and the error is `Unauthenticated`.
    """
    status = _status(code, body)
    text = clipped(status.message, MAX_MESSAGE_LENGTH) or f"the API server answered {code}"
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


def _status(code: int, body: bytes) -> ApiStatus:
    if code < 400:
        return ApiStatus(message=f"the API server answered {code}, and redirects are not followed")
    try:
        return msgspec.json.decode(body, type=ApiStatus)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ApiStatus(message=body[:200].decode(errors="replace"))


def is_gone(error: errors.NotFound, name: str) -> bool:
    """Return whether the named object is missing, and not its whole kind.

    In the first second after its start the API server answers 404 for kinds that it does serve.
    """
    return f'"{name}" not found' in str(error)


def find_rules_writer(body: bytes) -> str:
    """Return the field manager, except raybus, that last wrote `spec.rules` of a route.

    `UNKNOWN` if there is none.
    """
    entries: list[Json] = msgspec.json.decode(body)["metadata"].get("managedFields", [])
    rules = [entry for entry in entries if "f:rules" in entry.get("fieldsV1", {}).get("f:spec", {})]
    foreign_rules = [entry for entry in rules if not entry.get("manager", "").startswith(OURS)]
    # all times end in Z, so that their order as text is their order in time
    last = max(foreign_rules, key=lambda entry: entry.get("time", ""), default=Json())
    return last.get("manager") or UNKNOWN
