"""The required configuration of the state stream, and the comparison with an existing one.

RAY_STATE holds the last message of every subject. It may be lost, since the watcher fills it again.
`nats_admin` creates the streams, and has the configuration of the streams with events.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from common.bus import subjects

Config = dict[str, object]
"""Configuration of a stream, as fields of the JetStream API."""

SECOND: Final = 1_000_000_000
DUPLICATE_WINDOW: Final = 120 * SECOND
UNLIMITED: Final[Config] = {"max_bytes": -1, "max_msgs": -1, "max_age": 0}
"""Settings of a stream without limits.

With a limit, the server could drop an object's last state, and readers would think that the object
was deleted."""
ESSENTIAL: Final = (
    "subjects",
    "max_msgs_per_subject",
    "sealed",
    "allow_direct",
    "allow_msg_ttl",
    *UNLIMITED,
)
"""Fields without which the state stream does not work. The other fields concern safety or speed."""


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of messages and bytes in a stream."""

    messages: int = 0
    last_seq: int = 0
    bytes: int = 0


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as the server describes it. If it is recreated, its `created` time changes."""

    created: str
    state: StreamState
    config: Config = {}


def build_state_config(*, replicas: int = 1) -> Config:
    """Return the configuration of the state stream."""
    last_values: Config = {
        "max_msgs_per_subject": 1,
        "allow_msg_ttl": True,
        "duplicate_window": DUPLICATE_WINDOW,
    }
    return (
        build_disk_config(subjects.STATE_STREAM, replicas)
        | {"subjects": [subjects.ALL_STATE]}
        | last_values
        | UNLIMITED
    )


def build_disk_config(name: str, replicas: int) -> Config:
    """Return the part of a stream's configuration that is the same for all streams."""
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


def find_unusable_fields(actual: Mapping[str, object]) -> list[str]:
    """Return one text for each setting that keeps the state stream from working."""
    expected = build_state_config()
    return find_differences({field: expected[field] for field in ESSENTIAL}, actual)


def find_differences(expected: Mapping[str, object], actual: Mapping[str, object]) -> list[str]:
    """Return a text for each field of a stream's configuration that differs from `expected`.

    Only fields with an expected value are compared.
    """
    return [
        f"{field} is {actual.get(field)!r}, must be {value!r}"
        for field, value in expected.items()
        if field != "mirror" and actual.get(field) != value
    ]
