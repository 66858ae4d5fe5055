"""Poll interval of what sends no message: short while something is on its way, ever longer the longer nothing changes.

What is waited for is seen late by a fortieth of the wait at most. Services at rest share what one replica asks per second, so
that thousands of them cost no more than a hundred; whatever sends a message (specs, pods, endpoints) is seen at once anyway.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from common.ray.view import ServeView

FASTEST: Final = timedelta(seconds=0.25)
SLOWEST: Final = timedelta(seconds=5)
GROWS_AFTER: Final = 40
"""Times that an interval passes before it grows."""
QUESTIONS: Final = 5
"""Services at rest that one replica polls in a second, all together."""
BEAT: Final = timedelta(seconds=2)
"""Services at rest are polled at multiples of this, since a poll by a process that sleeps costs twice as much as by one that runs."""
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def interval(quiet: timedelta) -> timedelta:
    """Return when to ask again, after such a time without a change."""
    return min(SLOWEST, max(FASTEST, quiet / GROWS_AFTER))


def at_rest(services: int, *, now: datetime) -> timedelta:
    """Return when to poll a service again that serves, where one replica reconciles so many: at a moment that others share."""
    pause = max(SLOWEST, timedelta(seconds=services / QUESTIONS))
    beat = min(BEAT, pause / 10)
    return pause + (_NEVER - now - pause) % beat


def last_changed_at(view: ServeView) -> datetime:
    """Return when a cluster or one of its known pods was last seen to change, or was sent a config."""
    meta, status = view.cluster.metadata, view.cluster.status
    conditions = (
        *status.conditions,
        *(each for pod in view.pods for each in pod.status.conditions),
    )
    moments = (meta.creation_timestamp, status.last_update_time, view.put_at)
    known = (*moments, *(each.last_transition_time for each in conditions))
    return max((each for each in known if each is not None), default=_NEVER)
