"""The required configuration of the streams, and what one that exists is and differs in: pure; `provision` applies it.

RAY_STATE holds the last message of every subject; it can be lost, the watcher fills it again. RAY_EVENTS is history: its
messages leave by age, size or number alone; no user can delete or purge them. RAY_EVENTS in the account of external subscribers is a mirror.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.bus import subjects

Config = dict[str, object]
"""A stream's configuration as the JetStream API takes it."""

SECOND: Final = 1_000_000_000
DAY: Final = 24 * 3600 * SECOND
DUPLICATE_WINDOW: Final = 120 * SECOND
EVENTS_MAX_BYTES: Final = 256 * 1024 * 1024
EVENTS_MAX_AGE: Final = 30 * DAY
EVENTS_PER_SUBJECT: Final = 1000
"""Events of one kind of one RayService; so the history of a RayService that is upgraded without end does not push out that of others."""
UNLIMITED: Final[Config] = {"max_bytes": -1, "max_msgs": -1, "max_age": 0}
"""A limit would let the server drop an object's last state, and its readers take that object for deleted."""
ESSENTIAL: Final = ("subjects", "max_msgs_per_subject", "sealed", "allow_direct", "allow_msg_ttl", *UNLIMITED)
"""Unless these are as they must be, the state stream cannot do its work; the others are a matter of safety or speed."""
MIRROR_API: Final = "JS.ray"
"""Prefix under which the external subscribers' account reaches our JetStream API, for the mirror alone."""
MIRROR_DELIVER: Final = "mirror.outside"
"""Prefix of the subjects that events cross the border on."""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a stream."""

    messages: int = 0
    last_seq: int = 0
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as the server describes it; a recreated one has another `created` and `state.last_seq`."""

    created: str
    state: StreamState
    config: Config = {}


def state(*, replicas: int = 1) -> Config:
    """Return the configuration of the state stream."""
    last_values: Config = {"max_msgs_per_subject": 1, "allow_msg_ttl": True, "duplicate_window": DUPLICATE_WINDOW}
    return _on_disk(subjects.STATE_STREAM, replicas) | {"subjects": [subjects.ALL_STATE]} | last_values | UNLIMITED


def events(*, replicas: int = 1, max_bytes: int = EVENTS_MAX_BYTES) -> Config:
    """Return the configuration of the event stream."""
    published: Config = {"subjects": [subjects.ALL_EVENTS], "duplicate_window": DUPLICATE_WINDOW}
    return _history(replicas, max_bytes) | published


def events_mirror(*, replicas: int = 1, max_bytes: int = EVENTS_MAX_BYTES) -> Config:
    """Return the configuration of the external subscribers' copy of the event stream, which they may read and nothing else."""
    origin = {"name": subjects.EVENTS_STREAM, "external": {"api": MIRROR_API, "deliver": MIRROR_DELIVER}}
    return _history(replicas, max_bytes) | {"mirror": origin}


def _on_disk(name: str, replicas: int) -> Config:
    return {
        "name": name,
        "retention": "limits",
        "storage": "file",
        "compression": "s2",
        "discard": "old",
        "sealed": False,
        "allow_direct": True,
        "num_replicas": replicas,
    }


def _history(replicas: int, max_bytes: int) -> Config:
    """Messages leave by age, size or number alone."""
    limits: Config = {"max_age": EVENTS_MAX_AGE, "max_bytes": max_bytes, "max_msgs_per_subject": EVENTS_PER_SUBJECT}
    return _on_disk(subjects.EVENTS_STREAM, replicas) | limits | {"deny_delete": True, "deny_purge": True}


def unusable(found: Mapping[str, object]) -> list[str]:
    """Return field by field why the state stream cannot do its work."""
    wanted = state()
    return differences({field: wanted[field] for field in ESSENTIAL}, found)


def differences(wanted: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    """Return field by field how a stream differs from what it must be; fields that we do not set are the server's."""
    return [
        f"{field} is {found.get(field)!r}, must be {value!r}"
        for field, value in wanted.items()
        if field != "mirror" and found.get(field) != value
    ]
