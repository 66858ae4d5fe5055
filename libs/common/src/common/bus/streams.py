"""The required configuration of the state stream, and what one that exists is and differs in: pure.

RAY_STATE holds the last message of every subject; it can be lost, the watcher fills it again. What creates the streams, and the
configuration of those with events, is in `nats_admin`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.bus import subjects

Config = dict[str, object]
"""A stream's configuration as the JetStream API takes it."""

SECOND: Final = 1_000_000_000
DUPLICATE_WINDOW: Final = 120 * SECOND
UNLIMITED: Final[Config] = {"max_bytes": -1, "max_msgs": -1, "max_age": 0}
"""A limit would let the server drop an object's last state, and its readers take that object for deleted."""
ESSENTIAL: Final = (
    "subjects",
    "max_msgs_per_subject",
    "sealed",
    "allow_direct",
    "allow_msg_ttl",
    *UNLIMITED,
)
"""Unless these are as they must be, the state stream cannot do its work; the others are a matter of safety or speed."""


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
    last_values: Config = {
        "max_msgs_per_subject": 1,
        "allow_msg_ttl": True,
        "duplicate_window": DUPLICATE_WINDOW,
    }
    return (
        on_disk(subjects.STATE_STREAM, replicas)
        | {"subjects": [subjects.ALL_STATE]}
        | last_values
        | UNLIMITED
    )


def on_disk(name: str, replicas: int) -> Config:
    """Return what all streams have of their configuration."""
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
