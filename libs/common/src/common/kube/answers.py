"""Translate answers of the API server: refusals to errors, managed fields to a manager's name."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube import protobuf
from common.untrusted import clipped

MAX_MESSAGE_LENGTH: Final = 4096
"""Maximum characters of an error text.

The text is limited because any server may answer through the API server's proxy."""

UNAUTHENTICATED: Final = frozenset({401, 403})
"""Status codes with which a Ray dashboard refuses a missing or wrong token."""
MAX_FOREIGN_BODY: Final = 64 * 2**10
"""Maximum bytes that are kept of an answer of a server behind the API server's proxy.

A longer answer is cut in its middle: a traceback ends with its reason."""
_MEANING: Final[dict[int, Callable[[str], errors.RaybusError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    409: errors.Conflict,
    410: errors.Conflict,
}
OURS: Final = "raybus-"
"""Prefix of the field manager names of raybus."""
UNKNOWN: Final = "unknown"


NAMESPACE_TERMINATING: Final = "NamespaceTerminating"
"""Cause in a 403 answer: the namespace of the object to be created is being deleted."""
VERSION_AHEAD: Final = "ResourceVersionTooLarge"
"""Cause in a 504 answer: the API server has not reached the requested resourceVersion."""


class RefusalKind(Enum):
    """Kinds of refusals that only the text of the API server's answer identifies."""

    TOO_LARGE = auto()
    """The object is too large to store."""
    WEBHOOK_SILENT = auto()
    """An admission webhook did not answer; requests for other objects may succeed."""
    QUOTA_EXCEEDED = auto()
    OTHER = auto()


_REFUSALS: Final = {
    "etcdserver: request is too large": RefusalKind.TOO_LARGE,
    "trying to send message larger than max": RefusalKind.TOO_LARGE,
    "failed calling webhook": RefusalKind.WEBHOOK_SILENT,
    "exceeded quota": RefusalKind.QUOTA_EXCEEDED,
}


def classify(message: str) -> RefusalKind:
    """Return the kind of a refusal from its message.

    The answer's code and reason do not distinguish such a refusal from an internal error (500) or a
    missing right (403). A message that a condition or Event quotes is accepted, too.
    """
    return next(
        (kind for phrase, kind in _REFUSALS.items() if phrase in message), RefusalKind.OTHER
    )


class StatusCause(msgspec.Struct, frozen=True):
    """One cause in the details of a `Status`."""

    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True):
    """The details of a `Status`."""

    name: str = ""
    """The object that the request was about."""
    causes: tuple[StatusCause, ...] | None = None


class ApiStatus(msgspec.Struct, frozen=True):
    """The `Status` object in the body of a refused request or in an error event of a watch."""

    kind: str = ""
    code: int = 0
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> frozenset[str]:
        causes = None if self.details is None else self.details.causes
        return frozenset(cause.reason for cause in causes or ())


def _build_details(*, name: str = "", causes: Iterable[StatusCause] = ()) -> StatusDetails:
    return StatusDetails(name, tuple(causes))


_cause: Final = protobuf.build_reader(StatusCause, protobuf.text(1, "reason"))
_details: Final = protobuf.build_reader(
    _build_details,
    protobuf.text(1, "name"),
    protobuf.message(4, "causes", _cause, repeated=True),
)
_protobuf_status: Final = protobuf.build_reader(
    ApiStatus,
    protobuf.text(3, "message"),
    protobuf.text(4, "reason"),
    protobuf.message(5, "details", _details),
    protobuf.integer(6, "code"),
)


def read_protobuf_status(content: bytes) -> ApiStatus:
    """Read a `Status` from protobuf."""
    return msgspec.structs.replace(_protobuf_status(content), kind="Status")


def make_error(
    code: int, body: bytes, *, retry_after: float | None = None, is_foreign: bool = False
) -> errors.RaybusError:
    """Return the error for a refused request.

    `retry_after` is the wait in seconds that the answer asked for. With `is_foreign`, the request
    went through the API server's proxy; then a body that is not a `Status` is from the server
    behind the proxy. If that server refuses a token, the error is `Unauthenticated`.
    """
    status = _status(code, body)
    error = _make_error(code, status, retry_after=retry_after, is_foreign=is_foreign)
    if is_foreign and status.kind != "Status":
        error.answer = keep_answer(code, body)
    return error


def keep_answer(code: int, body: bytes) -> errors.HttpAnswer:
    """Return the answer of another server with at most `MAX_FOREIGN_BODY` bytes of its body."""
    if len(body) > MAX_FOREIGN_BODY:
        half = MAX_FOREIGN_BODY // 2
        body = body[:half] + body[-half:]
    return errors.HttpAnswer(code, body.decode(errors="replace"))


def _make_error(
    code: int, status: ApiStatus, *, retry_after: float | None, is_foreign: bool
) -> errors.RaybusError:
    text = clipped(status.message, MAX_MESSAGE_LENGTH) or f"the API server answered {code}"
    if is_foreign and code in UNAUTHENTICATED and status.kind != "Status":
        return errors.Unauthenticated(f"{code} {text}")
    if code == 409 and status.reason == "AlreadyExists":
        return errors.AlreadyExists(text)
    if code == 429:
        return errors.Throttled(text, after=retry_after)
    if code == 404:
        return errors.NotFound(text, name="" if status.details is None else status.details.name)
    if not 400 <= code < 500:
        return _make_server_error(code, status, text, retry_after)
    is_ending = code == 403 and NAMESPACE_TERMINATING in status.causes
    return (errors.NamespaceTerminating if is_ending else _MEANING.get(code, errors.Rejected))(text)


def _make_server_error(
    code: int, status: ApiStatus, text: str, retry_after: float | None
) -> errors.RaybusError:
    if VERSION_AHEAD in status.causes:
        return errors.VersionAhead(text, after=retry_after)
    refusal = classify(text) if code == 500 else RefusalKind.OTHER
    if refusal is RefusalKind.TOO_LARGE:
        return errors.Rejected(f"{text}; make the object smaller")
    kind = errors.Retryable if refusal is RefusalKind.WEBHOOK_SILENT else errors.Unavailable
    return kind(text, after=retry_after)


def _status(code: int, body: bytes) -> ApiStatus:
    if code < 400:
        return ApiStatus(message=f"the API server answered {code}, and redirects are not followed")
    try:
        if protobuf.is_envelope(body):  # the answer to a request for protobuf
            return read_protobuf_status(protobuf.open_envelope(body).content)
        return msgspec.json.decode(body, type=ApiStatus)
    except (
        msgspec.DecodeError,
        protobuf.MalformedMessage,
        UnicodeDecodeError,
        RecursionError,
    ):
        return ApiStatus(message=body[:200].decode(errors="replace"))


def find_rules_writer(body: bytes) -> str:
    """Return the field manager that last wrote `spec.rules` of a route, apart from raybus.

    `UNKNOWN` if no other manager wrote them.
    """
    entries: list[Json] = msgspec.json.decode(body)["metadata"].get("managedFields", [])
    rules = [entry for entry in entries if "f:rules" in entry.get("fieldsV1", {}).get("f:spec", {})]
    foreign_rules = [entry for entry in rules if not entry.get("manager", "").startswith(OURS)]
    # all times end in Z, so that their order as text is their order in time
    last = max(foreign_rules, key=lambda entry: entry.get("time", ""), default=Json())
    return last.get("manager") or UNKNOWN
