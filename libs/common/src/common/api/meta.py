"""Kubernetes metadata, conditions and times, as far as raybus uses them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Generic, TypeAlias, TypeVar

import msgspec

from common.api.opaque import Api

T = TypeVar("T")
Time: TypeAlias = Annotated[datetime, Api(go="time")]
Int64: TypeAlias = Annotated[int, Api(go="int64")]
MAX_MESSAGE_LENGTH: Final = 8192
"""Maximum characters of a condition's message, or of any other text in a status.

The schema of a condition allows 32,768 characters, and etcd allows objects of 1.5 MiB."""
MARK: Final = " characters left out; the Ray dashboard has them] … "
_MARK_ROOM: Final = 80
SKEW: Final = timedelta(seconds=5)
"""Assumed maximum difference between the clocks of two machines.

A timestamp further in the future was written by a clock that was ahead and has since been set back.
"""


def version_number(version: str) -> int:
    """Return a resourceVersion as a number, 0 if it is not one.

    Newer versions have greater numbers, as the API server promises.
    """
    return int(version) if version.isdecimal() else 0


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of an API object. Absent fields are None or empty; unknown fields are ignored."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """The metadata of an object."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []

    @property
    def namespaced_name(self) -> str:
        """`<namespace>/<name>` of the object."""
        return f"{self.namespace}/{self.name}"

    @property
    def version(self) -> int:
        """The resourceVersion as a number."""
        return version_number(self.resource_version)


class Envelope(msgspec.Struct, frozen=True):
    """Any object, of which only the metadata is decoded."""

    metadata: ObjectMeta


class Items(msgspec.Struct, Generic[T], frozen=True):
    """The list of objects in the answer to a list request."""

    items: list[T] = []
    metadata: ObjectMeta = ObjectMeta()


class Condition(ApiStruct, frozen=True, kw_only=True):
    """A condition of a status. All fields except observedGeneration are always written."""

    type: str
    status: str
    observed_generation: Annotated[int, Api(go="int64", minimum=0)] = 0
    last_transition_time: datetime
    reason: str
    message: str


Conditions: TypeAlias = Annotated[
    list[Annotated[Condition, Api(go="meta/v1.Condition")]], Api(keys=("type",))
]


def whole_seconds(moment: datetime) -> datetime:
    """Return a time without its fraction of a second, which Kubernetes does not store."""
    return moment.replace(microsecond=0)


def rfc3339(moment: datetime) -> str:
    """Format a time as Kubernetes does: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Format a MicroTime, as in Leases and Events: microseconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clipped(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` characters.

    The beginning is kept and, if `limit` allows, the end, because the last lines of a traceback
    matter most.
    """
    if len(text) <= limit:
        return text
    room = limit - _MARK_ROOM
    if room <= 0:
        return text[:limit]
    head, tail = room // 3, room - room // 3
    return f"{text[:head]} … [{len(text) - room}{MARK}{text[-tail:]}"
