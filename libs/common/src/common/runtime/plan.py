"""What one look leads to; data only."""

from datetime import datetime
from typing import Generic, TypeVar

import msgspec

Action = TypeVar("Action")


class Plan(msgspec.Struct, Generic[Action], frozen=True, kw_only=True):
    """What to do, in order, when to look again, and why."""

    actions: tuple[Action, ...] = ()
    look_again_at: datetime | None = None
    note: str = ""
