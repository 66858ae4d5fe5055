"""A cause of alerts that can be provoked on a running stack and removed again."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from integration.monitoring.ground import Ground
from integration.monitoring.objects import Demo


class AlarmSetup(msgspec.Struct, frozen=True, kw_only=True):
    """The stack on which causes are provoked."""

    ground: Ground
    demo: Demo
    """A RayService that is upgraded in steps."""
    silent: str
    """Name of a RayService of which only the dashboard is changed."""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of some alerts."""

    text: str
    alerts: frozenset[str]
    """Alerts that must fire, and be silent again afterwards."""
    provoked: Callable[[AlarmSetup], AbstractAsyncContextManager[None]]
    """Provokes the cause on entry, and removes it on exit."""
