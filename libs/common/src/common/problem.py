"""Why an object does not reach its goal, as a value: decisions read its code, users its message."""

from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

import msgspec

Code = TypeVar("Code", bound=StrEnum)


class Problem(msgspec.Struct, Generic[Code], frozen=True):
    """A blocking problem."""

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
