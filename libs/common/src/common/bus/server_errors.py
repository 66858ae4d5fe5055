"""Distinguish the errors of the NATS server.

The protocol of NATS has no error codes: the server sends a line of text, and nats-py passes most of
these lines on as the text of its base class `Error`. So only this module reads such texts.
"""

from enum import Enum, auto
from typing import Final

import re2
from nats import errors as nats_errors


class ServerError(Enum):
    """The errors of the NATS server that raybus treats differently."""

    UNKNOWN_KEY = auto()
    """The server does not know the key of the client."""
    NOT_PERMITTED = auto()
    """The user of the client may not publish or subscribe to a subject."""
    OTHER = auto()


_UNKNOWN_KEY: Final = "authorization violation"
_NOT_PERMITTED: Final = "permissions violation"
_REFUSED_SUBJECT: Final = re2.compile(f'{_NOT_PERMITTED} for publish to "([^"]+)"')


def classify(problem: BaseException) -> ServerError:
    """Return which error of the NATS server an exception reports."""
    text = str(problem).lower()
    if isinstance(problem, nats_errors.AuthorizationError) or _UNKNOWN_KEY in text:
        return ServerError.UNKNOWN_KEY
    return ServerError.NOT_PERMITTED if _NOT_PERMITTED in text else ServerError.OTHER


def parse_refused_subject(problem: BaseException) -> str | None:
    """Return the subject to which the client may not publish; None for any other error."""
    match = _REFUSED_SUBJECT.search(str(problem).lower())
    return None if match is None else match.group(1)
