"""What an answer of the API server means for us: a status code becomes one of our errors."""

import msgspec

from common import errors


class Status(msgspec.Struct, frozen=True):
    """The `Status` object that the API server answers with when it refuses."""

    message: str = ""
    reason: str = ""


def from_answer(code: int, body: bytes, *, retry_after: float | None = None) -> errors.RaybusError:
    """Return the error that stands for a refused request; `retry_after` is in seconds."""
    try:
        status = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        status = Status(message=body[:200].decode(errors="replace"))
    text = status.message or f"the API server answered {code}"
    match code:
        case 404:
            return errors.NotFound(text)
        case 409 if status.reason == "AlreadyExists":
            return errors.AlreadyExists(text)
        case 409:
            return errors.Conflict(text)
        case 410:
            return errors.Conflict(text)
        case 401 | 403:
            return errors.Forbidden(text)
        case 429:
            return errors.Throttled(text, after=retry_after)
        case _ if code >= 500:
            return errors.Unavailable(text, after=retry_after)
        case _:
            return errors.Rejected(text)
