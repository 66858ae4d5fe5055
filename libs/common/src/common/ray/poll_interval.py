"""The poll interval for sources without change messages: short after a change, then growing.

A change that has been waited for is detected with a delay of at most a fortieth of the wait.
Services at rest share a fixed number of polls a second per replica, so that thousands cost no more
than a hundred. Specs, pods and endpoints send messages and are never polled.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from common.ray.view import ServeView

FASTEST: Final = timedelta(seconds=0.25)
SLOWEST: Final = timedelta(seconds=5)
GROWS_AFTER: Final = 40
"""The interval is the time without change divided by this number."""
QUESTIONS: Final = 5
"""Polls per second of one replica, shared by all services at rest."""
BEAT: Final = timedelta(seconds=2)
"""Services at rest are polled at multiples of this, in batches, since waking a sleeping process
costs as much as a poll.
"""
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def interval(quiet: timedelta) -> timedelta:
    """Return the poll interval after a time without change."""
    return min(SLOWEST, max(FASTEST, quiet / GROWS_AFTER))


def at_rest(services: int, *, now: datetime) -> timedelta:
    """Return the time until the next poll of a service at rest.

    It grows with the number of services of the replica, and ends at a moment that other services
    share.
    """
    pause = max(SLOWEST, timedelta(seconds=services / QUESTIONS))
    beat = min(BEAT, pause / 10)
    return pause + (_NEVER - now - pause) % beat


def last_changed_at(view: ServeView) -> datetime:
    """Return when a cluster or one of its known pods last changed, or was sent a config."""
    meta, status = view.cluster.metadata, view.cluster.status
    conditions = (
        *status.conditions,
        *(each for pod in view.pods for each in pod.status.conditions),
    )
    moments = (meta.creation_timestamp, status.last_update_time, view.put_at)
    known = (*moments, *(each.last_transition_time for each in conditions))
    return max((each for each in known if each is not None), default=_NEVER)
