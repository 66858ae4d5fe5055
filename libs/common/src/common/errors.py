"""The four kinds of error, and the party at fault in each.

    RaybusError
    ├── Retryable: Conflict, AlreadyExists, NotFound, Throttled, NotOurs, Unavailable (OutOfRoom, Unauthenticated, Unanswered)
    ├── Terminal: InvalidSpec, Rejected, Forbidden (NamespaceTerminating)
    └── Invariant

Adapters translate into these; `common.runtime.controller` alone decides what happens next. "Not yet" is not an error: it is
the time at which a reconcile is to be repeated. What keeps an object from its goal and ends no
reconcile is a value, a `Problem`.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar, cast

import msgspec

Code = TypeVar("Code", bound=StrEnum)


class RaybusError(Exception):
    """Base of every error that the services raise on purpose."""


class Retryable(RaybusError):
    """The cluster was busy or our read was stale: try again, with backoff; `after` is the shortest wait in seconds, if the server named one."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Conflict(Retryable):
    """The object changed since we read it (409)."""


class AlreadyExists(Retryable):
    """A create met an object of that name (409)."""


class NotFound(Retryable):
    """The object is gone (404)."""


class Throttled(Retryable):
    """The server asked for a wait (429)."""


class NotOurs(Retryable):
    """The object is no longer certainly ours to write: another replica may own it by now."""


class Unavailable(Retryable):
    """No answer, or the server's fault (5xx, connection, time-out)."""


class OutOfRoom(Unavailable):
    """The server stores nothing more until there is room; what was sent is not stored."""


class Unauthenticated(Unavailable):
    """A Ray dashboard refuses our token (401, 403), or there is none to send: nothing was carried out."""


class Unanswered(Unavailable):
    """No answer came: the connection failed, or the time was over.

    `is_late` is whether this process looked so late that the answer may lie in its own socket.
    """

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


class Terminal(RaybusError):
    """Only the user can correct it: condition, event, wait for a change."""


class InvalidSpec(Terminal):
    """The object breaks a rule of its kind; the text names the field and the rule."""


class Rejected(Terminal):
    """The API server refused what the object asks for (422)."""


class Forbidden(Terminal):
    """We may not do that, or a quota is used up (403); retried slowly, since a quota may be lifted."""


class Unauthorized(Forbidden):
    """The API server does not accept our credentials (401): nothing was carried out."""


class NamespaceTerminating(Forbidden):
    """The namespace is being deleted (403): nothing is created in it any more, and no user is to act."""


class Invariant(RaybusError):
    """Something that cannot happen has happened: our bug."""


def leaves(problem: BaseException) -> Iterator[BaseException]:
    """Return the errors inside nested groups, first to last; an error that is no group is its own."""
    if not isinstance(problem, BaseExceptionGroup):
        yield problem
        return
    for each in cast("BaseExceptionGroup[BaseException]", problem).exceptions:
        yield from leaves(each)


def text_of(problem: BaseException) -> str:
    """Return the text of an error, or at least its kind."""
    return str(problem) or type(problem).__name__


class Problem(msgspec.Struct, Generic[Code], frozen=True):
    """Why an object does not reach its goal: decisions read its code, users its message."""

    code: Code
    """What kind it is; a condition's or an Event's reason where one reports it."""
    message: str
    transient: bool = False
    """Whether a controller that has not answered yet resolves it by itself."""

    def at(self, where: str) -> Self:
        """Return the problem with the name of its object before the message."""
        return msgspec.structs.replace(self, message=f"{where} {self.message}")


def message_of(problem: Problem[Any] | None) -> str | None:
    """Return the message of a problem, None without one."""
    return None if problem is None else problem.message
