"""A line of the API server's audit log, as far as tests judge who asked for what."""

from typing import Final

import msgspec

ACCOUNT: Final = "system:serviceaccount:raybus:"


class Reference(msgspec.Struct, frozen=True):
    """What a request was about."""

    namespace: str = ""
    resource: str = ""
    name: str = ""


class User(msgspec.Struct, frozen=True):
    """Who asked."""

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

    def __str__(self) -> str:
        return f"{self.user.username.removeprefix(ACCOUNT)}: {self.verb} {self.request_uri.partition('?')[0]}"
