"""Kubernetes metadata, conditions and times, as far as we read and write them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Generic, TypeAlias, TypeVar

import msgspec

from common.api.opaque import Api

T = TypeVar("T")
Time: TypeAlias = Annotated[datetime, Api(go="time")]
Int64: TypeAlias = Annotated[int, Api(go="int64")]
LONGEST_MESSAGE: Final = 8192
"""Characters of a condition's message, or of a reason that stands in a status; the schema of a condition takes 32,768, etcd objects of 1.5 MiB."""
MARK: Final = " characters left out; the Ray dashboard has them] … "
_MARK_ROOM: Final = 80
SKEW: Final = timedelta(seconds=5)
"""By how much the clocks of two machines may differ: a moment that is further ahead was written before a clock was set back."""


def version_number(version: str) -> int:
    """Return a resourceVersion as a number; the API server promises that newer ones are greater."""
    return int(version) if version.isdecimal() else 0


class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A part of an API object: absent fields are None or empty, unknown fields are passed over."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The object that another one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """Name, version, labels and life cycle of an object."""

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
        """Return `<namespace>/<name>`."""
        return f"{self.namespace}/{self.name}"

    @property
    def version(self) -> int:
        """Return the resourceVersion as a number."""
        return version_number(self.resource_version)


class Envelope(msgspec.Struct, frozen=True):
    """Any object, of which only the metadata is read."""

    metadata: ObjectMeta


class Items(msgspec.Struct, Generic[T], frozen=True):
    """The answer to a list of objects."""

    items: list[T] = []
    metadata: ObjectMeta = ObjectMeta()


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a status; all but observedGeneration are always written."""

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
    """Drop the fraction of a second, as Kubernetes writes times."""
    return moment.replace(microsecond=0)


def rfc3339(moment: datetime) -> str:
    """Return Kubernetes' text form of a time: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Return Kubernetes' MicroTime, the text form of the times in Leases and Events: microseconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def clipped(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text: its beginning and, with more room, its end, since the last lines of a traceback matter most."""
    if len(text) <= limit:
        return text
    room = limit - _MARK_ROOM
    if room <= 0:
        return text[:limit]
    head, tail = room // 3, room - room // 3
    return f"{text[:head]} … [{len(text) - room}{MARK}{text[-tail:]}"
