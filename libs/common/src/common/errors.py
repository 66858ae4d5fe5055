"""The kinds of errors, grouped by who can correct the cause.

    RaybusError
    ├── Retryable: Conflict, AlreadyExists, NotFound, Throttled, OwnershipLost,
    │              Unavailable (OutOfRoom, VersionAhead, Unauthenticated, Unanswered)
    ├── Terminal:  InvalidSpec, Rejected, Forbidden (Unauthorized, NamespaceTerminating)
    └── Invariant

Adapters translate errors of libraries to these, and only `common.runtime.controller` decides how to
react. "Not ready yet" is not an error but a requeue time. If an object does not reach its goal but
the reconcile can continue, the reason is not an error either but a value: a `Problem`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

Code = TypeVar("Code", bound=StrEnum)


class HttpAnswer(msgspec.Struct, frozen=True):
    """The answer with which a server refused a request."""

    code: int
    body: str


class RaybusError(Exception):
    """Base of all errors that the services raise on purpose."""

    answer: HttpAnswer | None = None
    """The answer that led to the error, from a Ray dashboard or another server in a pod.

    None if there was no answer, or if the API server itself answered.
    """


class Retryable(RaybusError):
    """The cluster was busy or a read was stale: retry with backoff.

    `after` is the minimum wait in seconds, if the server demands one.
    """

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Conflict(Retryable):
    """The object changed since it was read (409)."""


class AlreadyExists(Retryable):
    """An object of that name exists already (409)."""


class NotFound(Retryable):
    """The object does not exist (404).

    `name` is the name of the missing object. It is empty if the server does not serve the kind. In
    the first second after its start, the API server gives this answer even for kinds that it
    serves.
    """

    def __init__(self, message: str, *, name: str = "", after: float | None = None) -> None:
        super().__init__(message, after=after)
        self.name = name


class Throttled(Retryable):
    """The server asks the client to wait (429)."""


class OwnershipLost(Retryable):
    """This replica may no longer own the object, so it must not write to the object."""


class Unavailable(Retryable):
    """No answer, or a server error (5xx, connection failure, timeout)."""


class OutOfRoom(Unavailable):
    """The server has no storage left; the request was not stored."""


class VersionAhead(Unavailable):
    """The API server has not reached the requested resourceVersion.

    This happens after its store was restored from a backup.
    """


class Unauthenticated(Unavailable):
    """A Ray dashboard rejects the token (401, 403), or there is no token. Nothing was executed."""


class Unanswered(Unavailable):
    """No answer: the connection failed or timed out.

    `is_late` is True if this process itself was delayed, so that an answer may be unread in its
    socket.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class Terminal(RaybusError):
    """Only the user can correct the cause: report it, and wait for a change."""


class InvalidSpec(Terminal):
    """The object breaks a rule of its kind; the message names the field and the rule."""


class Rejected(Terminal):
    """A server (the API server, Ray or NATS) rejected the request, and would reject it again."""


class Forbidden(Terminal):
    """A right is missing or a quota is used up (403).

    Such an error is retried slowly, since a quota may be raised.
    """


class Unauthorized(Forbidden):
    """The API server does not accept our credentials (401). Nothing was executed."""


class NamespaceTerminating(Forbidden):
    """The namespace is being deleted (403).

    Nothing can be created in it, and no user needs to act.
    """


class Invariant(RaybusError):
    """An impossible state: a bug of raybus."""


def leaves(problem: BaseException) -> Iterator[BaseException]:
    """Yield the errors inside nested exception groups, in order; a plain error yields itself."""
    if not isinstance(problem, BaseExceptionGroup):
        yield problem
        return
    for inner in cast("BaseExceptionGroup[BaseException]", problem).exceptions:
        yield from leaves(inner)


def causes(problem: BaseException) -> Iterator[BaseException]:
    """Yield an error, then the error from which it was raised, and so on."""
    error: BaseException | None = problem
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def text_of(problem: BaseException) -> str:
    """Return the message of an error, or its class name if it has none."""
    return str(problem) or type(problem).__name__


class Problem(msgspec.Struct, Generic[Code], frozen=True):
    """Why an object does not reach its goal; decisions use the code, users read the message."""

    code: Code
    """Kind of the problem, and reason of the condition or Event that reports the problem."""
    message: str
    transient: bool = False
    """Whether the problem resolves by itself once the object's controller has reported."""

    def at(self, where: str) -> Self:
        """Return the problem with `where`, the name of its object, put before the message."""
        return msgspec.structs.replace(self, message=f"{where} {self.message}")


def message_of(problem: Problem[Any] | None) -> str | None:
    """Return the message of a problem, None for None."""
    return None if problem is None else problem.message
