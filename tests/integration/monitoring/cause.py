"""What an alert is for, as something that can be done to a running stack and undone."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from integration.monitoring.ground import Ground
from integration.monitoring.objects import Demo


class AlarmSetup(msgspec.Struct, frozen=True, kw_only=True):
    """Where causes are provoked."""

    ground: Ground
    demo: Demo
    """A RayService that is upgraded in steps."""
    silent: str
    """A RayService that is left alone but for its dashboard."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of some alerts."""

    text: str
    alerts: frozenset[str]
    """What must fire, and be silent again afterwards."""
    provoked: Callable[[AlarmSetup], AbstractAsyncContextManager[None]]
    """Does it on entry, and undoes it on exit."""
