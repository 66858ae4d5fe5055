"""The required configuration of RAY_EVENTS and its mirror; `provision` applies it.

RAY_EVENTS is a history: messages are dropped only by age, size or number, and no user can delete or
purge them. The NATS account of external subscribers has a mirror of it under the same name.
"""

from typing import Final

from common.bus import subjects
from common.bus.streams import DUPLICATE_WINDOW, SECOND, Config, build_disk_config

MAX_BYTES: Final = 256 * 1024 * 1024
MAX_AGE: Final = 30 * 24 * 3600 * SECOND
PER_SUBJECT: Final = 1000
"""Maximum number of events of one type of one object.

A RayService that is upgraded endlessly cannot displace the events of other RayServices.
"""
MIRROR_API: Final = "JS.ray"
"""Prefix with which the account of external subscribers calls the services' JetStream API.

Only the mirror uses it.
"""
MIRROR_DELIVER: Final = "mirror.outside"
"""Prefix of the subjects on which events reach the mirror."""


def build_stream_config(*, replicas: int = 1, max_bytes: int = MAX_BYTES) -> Config:
    """Return the configuration of RAY_EVENTS. `replicas` is the number of servers that store it."""
    published: Config = {"subjects": [subjects.ALL_EVENTS], "duplicate_window": DUPLICATE_WINDOW}
    return _build_history_config(replicas, max_bytes) | published


def build_mirror_config(*, replicas: int = 1, max_bytes: int = MAX_BYTES) -> Config:
    """Return the configuration of the mirror of RAY_EVENTS.

    External subscribers may only read it.
    """
    origin = {
        "name": subjects.EVENTS_STREAM,
        "external": {"api": MIRROR_API, "deliver": MIRROR_DELIVER},
    }
    return _build_history_config(replicas, max_bytes) | {"mirror": origin}


def _build_history_config(replicas: int, max_bytes: int) -> Config:
    limits: Config = {
        "max_age": MAX_AGE,
        "max_bytes": max_bytes,
        "max_msgs_per_subject": PER_SUBJECT,
    }
    return (
        build_disk_config(subjects.EVENTS_STREAM, replicas)
        | limits
        | {"deny_delete": True, "deny_purge": True}
    )
