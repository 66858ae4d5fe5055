"""The poll interval for sources without change messages: short after a change, then growing.

A change after a long time is detected with a delay of at most a fortieth of that time. RayServices
that have not changed for a long time are called at rest. They share a fixed number of polls per
second and replica, so that thousands of them cost no more than a hundred. Specs, pods and endpoints
are never polled, because NATS delivers their changes.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from common.ray.view import ServeView

MIN_INTERVAL: Final = timedelta(seconds=0.25)
MAX_INTERVAL: Final = timedelta(seconds=5)
QUIET_DIVISOR: Final = 40
"""The poll interval is the time since the last change, divided by this number."""
MAX_POLLS_PER_SECOND: Final = 5
"""Polls per second by one replica, shared by all RayServices that are at rest."""
MAX_COMMON_INTERVAL: Final = timedelta(seconds=2)
"""Maximum time between the common moments at which RayServices at rest are polled.

They are polled together, because waking a sleeping process costs as much as a poll."""
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


def interval(quiet: timedelta) -> timedelta:
    """Return the poll interval if the last change was `quiet` ago."""
    return min(MAX_INTERVAL, max(MIN_INTERVAL, quiet / QUIET_DIVISOR))


def at_rest(services: int, *, now: datetime) -> timedelta:
    """Return the time until the next poll of a RayService that has not changed for a long time.

    The time grows with `services`, the number of such services of the replica. It is rounded up so
    that several of these services are polled at the same moment.
    """
    pause = max(MAX_INTERVAL, timedelta(seconds=services / MAX_POLLS_PER_SECOND))
    common_interval = min(MAX_COMMON_INTERVAL, pause / 10)
    return pause + (_NEVER - now - pause) % common_interval


def last_changed_at(view: ServeView) -> datetime:
    """Return when a cluster or one of its known pods last changed, or a config was last sent."""
    meta, status = view.cluster.metadata, view.cluster.status
    conditions = (
        *status.conditions,
        *(condition for pod in view.pods for condition in pod.status.conditions),
    )
    moments = (meta.creation_timestamp, status.last_update_time, view.put_at)
    known = (*moments, *(condition.last_transition_time for condition in conditions))
    return max((moment for moment in known if moment is not None), default=_NEVER)
