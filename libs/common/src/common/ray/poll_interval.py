"""The poll interval for sources without change messages: short after a change, then growing.

A change after a long wait is detected with a delay of at most a fortieth of the wait. RayServices
that have not changed for a long time are at rest. They share a fixed number of polls a second per
replica, so that thousands of them cost no more than a hundred. Specs, pods and endpoints send
messages and are never polled.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from common.ray.view import ServeView

FASTEST: Final = timedelta(seconds=0.25)
SLOWEST: Final = timedelta(seconds=5)
GROWS_AFTER: Final = 40
"""The poll interval is the time without a change, divided by this number."""
QUESTIONS: Final = 5
"""Polls per second by one replica, shared by all RayServices that are at rest."""
BEAT: Final = timedelta(seconds=2)
"""RayServices at rest are polled together at multiples of this time.

Waking a sleeping process costs as much as a poll."""
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def interval(quiet: timedelta) -> timedelta:
    """Return the poll interval after a time of `quiet` without a change."""
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
        *(condition for pod in view.pods for condition in pod.status.conditions),
    )
    moments = (meta.creation_timestamp, status.last_update_time, view.put_at)
    known = (*moments, *(condition.last_transition_time for condition in conditions))
    return max((moment for moment in known if moment is not None), default=_NEVER)
