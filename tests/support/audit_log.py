"""A line of the API server's audit log, as far as tests judge the client of a request, and how long it took."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

ACCOUNT: Final = "system:serviceaccount:raybus:"


class Reference(msgspec.Struct, frozen=True, rename="camel"):
    """What a request was about."""

    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    api_group: str = ""
    api_version: str = ""


class User(msgspec.Struct, frozen=True):
    """The client."""

    username: str = ""


class Status(msgspec.Struct, frozen=True):
    """What came of it."""

    code: int = 0


class Line(msgspec.Struct, frozen=True, rename="camel"):
    """One request."""

    verb: str
    request_uri: str = msgspec.field(name="requestURI", default="")
    user: User = User()
    object_ref: Reference = Reference()
    response_status: Status = Status()
    began: datetime | None = msgspec.field(name="requestReceivedTimestamp", default=None)
    ended: datetime | None = msgspec.field(name="stageTimestamp", default=None)

    def __str__(self) -> str:
        return f"{self.user.username.removeprefix(ACCOUNT)}: {self.verb} {self.request_uri.partition('?')[0]}"


def lines(log: Path) -> Iterator[Line]:
    """Yield all lines of a log in order, those of the files too into which the API server has rotated it (`audit-<time>.log`)."""
    decode = msgspec.json.Decoder(Line).decode
    for part in sorted(log.parent.glob(f"{log.stem}*{log.suffix}")):
        with part.open("rb") as found:
            yield from (decode(line) for line in found if line.endswith(b"\n"))
