"""Translate errors of JetStream to errors of `common.errors`, with a remedy.

The numbers are JetStream's error codes. The remedy is in the log, so nobody has to look up a code.
"""

from typing import Final

import msgspec

from common import errors

WRONG_LAST_SEQUENCE: Final = frozenset({10071, 10164})
NO_STREAM: Final = 10059
NO_CONSUMER: Final = 10014
TOO_LARGE: Final = 10054
SEALED: Final = 10109
NO_ROOM: Final = frozenset({10002, 10023, 10047, 10077})

REMEDIES: Final = {
    NO_STREAM: "the provisioner beside the server makes it; see its log",
    TOO_LARGE: "raise max_msg_size of the stream",
    SEALED: "delete the stream; the provisioner makes it anew and it is filled again",
    10023: "raise the limits of JetStream or free its disk",
    10047: "raise max_file_store of the server, or give it a larger disk",
    10026: (
        "readers that ended leave consumers behind for seconds; raise max_consumers if this goes on"
    ),
    10028: "raise max_mem of the server",
    10077: "raise max_bytes of the stream or free its disk",
    10002: "raise the JetStream limits of the account",
    10074: (
        "too few servers of the cluster are there for the replicas asked for; start them, or "
        "ask for fewer"
    ),
    10005: (
        "too few servers of the cluster are there for the replicas asked for; start them, or "
        "ask for fewer"
    ),
    10039: "let the account use JetStream",
    10076: "JetStream is off; after a full disk it stays off until the server starts again",
    10008: "the servers of the cluster have no leader; more than half of them must be there",
}


class ApiFailure(msgspec.Struct, frozen=True):
    """The error in an answer of the JetStream API."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class ApiAnswer(msgspec.Struct, frozen=True):
    """The part of every JetStream answer that shows whether it is an error or a result."""

    error: ApiFailure | None = None


def make_error(subject: str, failure: ApiFailure) -> errors.RaybusError:
    """Return the error for a refused request to `subject`."""
    number = failure.err_code or failure.code
    remedy = REMEDIES.get(number)
    text = f"NATS refused {subject}: {failure.description} ({number})" + (
        f"; {remedy}" if remedy else ""
    )
    if number in WRONG_LAST_SEQUENCE:
        return errors.Conflict(text)
    if number in {NO_STREAM, NO_CONSUMER}:
        return errors.NotFound(text)
    if number in NO_ROOM:
        return errors.OutOfRoom(text)
    is_rejected = number == TOO_LARGE or (failure.code == 400 and number not in REMEDIES)
    return errors.Rejected(text) if is_rejected else errors.Unavailable(text)
