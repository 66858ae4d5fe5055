"""The required configuration of the streams with events: pure; `provision` applies it.

RAY_EVENTS is history: its messages leave by age, size or number alone; no user can delete or purge them. RAY_EVENTS in the account of
external subscribers is a mirror.
"""

from typing import Final

from common.bus import subjects
from common.bus.streams import DUPLICATE_WINDOW, SECOND, Config, on_disk

MOST_BYTES: Final = 256 * 1024 * 1024
LONGEST_AGE: Final = 30 * 24 * 3600 * SECOND
PER_SUBJECT: Final = 1000
"""Events of one kind of one RayService; so the history of a RayService that is upgraded without end does not push out that of others."""
MIRROR_API: Final = "JS.ray"
"""Prefix under which the external subscribers' account reaches our JetStream API, for the mirror alone."""
MIRROR_DELIVER: Final = "mirror.outside"
"""Prefix of the subjects that events cross the border on."""


def events(*, replicas: int = 1, max_bytes: int = MOST_BYTES) -> Config:
    """Return the configuration of the event stream."""
    published: Config = {"subjects": [subjects.ALL_EVENTS], "duplicate_window": DUPLICATE_WINDOW}
    return _history(replicas, max_bytes) | published


def mirror(*, replicas: int = 1, max_bytes: int = MOST_BYTES) -> Config:
    """Return the configuration of the external subscribers' copy of the event stream, which they may read and nothing else."""
    origin = {
        "name": subjects.EVENTS_STREAM,
        "external": {"api": MIRROR_API, "deliver": MIRROR_DELIVER},
    }
    return _history(replicas, max_bytes) | {"mirror": origin}


def _history(replicas: int, max_bytes: int) -> Config:
    limits: Config = {
        "max_age": LONGEST_AGE,
        "max_bytes": max_bytes,
        "max_msgs_per_subject": PER_SUBJECT,
    }
    return (
        on_disk(subjects.EVENTS_STREAM, replicas)
        | limits
        | {"deny_delete": True, "deny_purge": True}
    )
