"""The four kinds of error, and who is guilty of each.

    RaybusError
    ├── Retryable           the world was busy, or our read was old: try again, with back-off
    │   ├── Conflict        the object changed since we read it (409)
    │   ├── AlreadyExists   a create met an object of that name (409)
    │   ├── NotFound        the object is gone (404)
    │   ├── Throttled       we were told to wait (429)
    │   ├── NotOurs         we cannot be sure any more that the object is ours to write
    │   └── Unavailable     no answer, or a server's fault (5xx, connection, time-out)
    │       └── OutOfRoom   the server stores nothing more until there is room
    ├── Terminal            only the user can mend it: condition, event, wait for a change
    │   ├── InvalidSpec     the object breaks a rule of its kind
    │   ├── Rejected        the API server refused what the user asked for (422)
    │   └── Forbidden       not allowed, or over quota (403); retried slowly, since a quota may be lifted
    └── Invariant           our own bug

Adapters translate into these; `common.runtime.runner` alone decides what happens next. "Not yet" is not an error: it is
the time at which a reconcile wants to look again.
"""


class RaybusError(Exception):
    """Base of every error that the services raise on purpose."""


class Retryable(RaybusError):
    """The world was busy or our read was old; `after` is the shortest wait in seconds, if the other side named one."""

    def __init__(self, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.after = after


class Conflict(Retryable):
    """The object changed since we read it."""


class AlreadyExists(Retryable):
    """A create met an object of that name."""


class NotFound(Retryable):
    """The object is gone."""


class Throttled(Retryable):
    """The other side told us to wait."""


class NotOurs(Retryable):
    """We cannot be sure any more that the object is ours to write: another replica may look after it by now."""


class Unavailable(Retryable):
    """No answer, or the other side's fault."""


class OutOfRoom(Unavailable):
    """The server stores nothing more until there is room; what was sent is not stored."""


class Terminal(RaybusError):
    """Only the user can mend it."""


class InvalidSpec(Terminal):
    """The object breaks a rule of its kind; the text names the field and the rule."""


class Rejected(Terminal):
    """The API server refused what the object asks for."""


class Forbidden(Terminal):
    """We may not do that, or a quota is used up."""


class Invariant(RaybusError):
    """Something that cannot happen has happened: our bug."""
