"""Kubernetes metadata and conditions, as far as we read them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, TypeAlias

import msgspec

from common.api.markers import Api

Time: TypeAlias = Annotated[datetime, Api(go="time")]
Int64: TypeAlias = Annotated[int, Api(go="int64")]


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


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a status; all but observedGeneration are always written."""

    type: str
    status: str
    observed_generation: Annotated[int, Api(go="int64", minimum=0)] = 0
    last_transition_time: datetime
    reason: str
    message: str


Conditions: TypeAlias = Annotated[list[Annotated[Condition, Api(go="meta/v1.Condition")]], Api(keys=("type",))]


SKEW: Final = timedelta(seconds=5)
"""By how much the clocks of two machines may differ: a moment that is further ahead was written before a clock was set back."""


def whole_seconds(moment: datetime) -> datetime:
    """Drop the fraction of a second, as Kubernetes writes times."""
    return moment.replace(microsecond=0)


def rfc3339(moment: datetime) -> str:
    """Return Kubernetes' text form of a time: whole seconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime) -> str:
    """Return Kubernetes' MicroTime, the text form of the times in Leases and Events: microseconds, UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
