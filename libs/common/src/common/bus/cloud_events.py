"""CloudEvents 1.0 in structured JSON, as external consumers read them from the stream of events.

A family has all events about one kind of object, such as a RayService. Only one service publishes a
family, so the events of an object are in order in the stream. Delivery is at least once; a
redelivered event has the same id. New fields have defaults, and readers ignore unknown fields and
kinds.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
import re2
from msgspec import UNSET, Meta, UnsetType

from common.bus import subjects

CONTENT_TYPE: Final = "application/cloudevents+json"
TYPE_SUFFIX: Final = ".v1"


class EventData(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event; each kind of event has its own struct."""

    @property
    def kind(self) -> str:
        """Return the kind, such as `cluster-created` for the struct `ClusterCreated`."""
        return name_kind(type(self))

    @property
    def series(self) -> str:
        """Return the id of the upgrade or job attempt that the event is a step of."""
        raise NotImplementedError


What = TypeVar("What")
DataT = TypeVar("DataT", bound=EventData)


class CloudEvent(msgspec.Struct, Generic[What], frozen=True, kw_only=True):
    """An event in its JSON form: the attributes of CloudEvents 1.0, and the data."""

    specversion: Literal["1.0"] = "1.0"
    id: Annotated[
        str,
        Meta(min_length=1, description="The same when an event is repeated; unique in its source."),
    ]
    source: Annotated[
        str,
        Meta(
            min_length=1,
            description="The RayService or RayJob: "
            "/apis/ray.io/v1/namespaces/<namespace>/<rayservices or rayjobs>/<name>.",
        ),
    ]
    type: Annotated[str, Meta(min_length=1)]
    subject: Annotated[str, Meta(min_length=1, description="The name of the object.")]
    time: Annotated[
        datetime, Meta(tz=True, description="When it happened; order is the stream's, not this.")
    ]
    datacontenttype: Literal["application/json"] = "application/json"
    traceparent: (
        Annotated[str, Meta(description="W3C trace context of the change that led here.")]
        | UnsetType
    ) = UNSET
    data: What


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event about an object, before it is encoded."""

    namespace: str
    name: str
    id: str
    time: datetime
    data: EventData


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """An event as a NATS message."""

    subject: str
    headers: dict[str, str]
    payload: bytes


class EventSource(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an event is about, as in the event's `source`."""

    resource: str
    """The plural of the object's kind: `rayservices` or `rayjobs`."""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"/apis/ray.io/v1/namespaces/{self.namespace}/{self.resource}/{self.name}"


class EventFamily(msgspec.Struct, Generic[DataT], frozen=True, kw_only=True):
    """The events about one kind of object, such as RayService."""

    resource: str
    type_prefix: str
    """Prefix of this family's CloudEvents types."""
    kind_prefix: str = ""
    """Prefix that distinguishes this family's kinds from those of other families.

    It is not repeated in the event types.
    """
    base: type[DataT]
    """The fields that all kinds of the family have; used to decode an event of an unknown kind."""
    kinds: Mapping[str, type[DataT]]

    def type_of(self, kind: str) -> str:
        """Return the CloudEvents type of a kind."""
        return f"{self.type_prefix}{kind.removeprefix(self.kind_prefix)}{TYPE_SUFFIX}"

    def kind_of(self, event_type: str) -> str:
        """Return the kind of a CloudEvents type; a type of another family is returned unchanged."""
        if not self.has_type(event_type):
            return event_type
        kind = event_type.removeprefix(self.type_prefix).removesuffix(TYPE_SUFFIX)
        return f"{self.kind_prefix}{kind}"

    def has_type(self, event_type: str) -> bool:
        """Return whether a CloudEvents type belongs to this family."""
        return event_type.startswith(self.type_prefix)

    def encode(self, event: Event, *, trace: str | None = None) -> Wire:
        """Encode an event as a NATS message; `trace` is a W3C traceparent."""
        source = EventSource(resource=self.resource, namespace=event.namespace, name=event.name)
        written = CloudEvent[EventData](
            id=event.id,
            source=str(source),
            type=self.type_of(event.data.kind),
            subject=event.name,
            time=event.time,
            traceparent=UNSET if trace is None else trace,
            data=event.data,
        )
        subject = subjects.build_event_subject(event.namespace, event.name, event.data.kind)
        headers = {"Content-Type": CONTENT_TYPE} | ({} if trace is None else {"traceparent": trace})
        return Wire(subject=subject, headers=headers, payload=msgspec.json.encode(written))

    def decode(self, payload: bytes) -> CloudEvent[DataT]:
        """Decode an event of this family.

        An event of an unknown kind is decoded to the common fields only. Raises
        `msgspec.DecodeError` if the payload is no event of this family.
        """
        event: CloudEvent[DataT] = msgspec.json.decode(payload, type=CloudEvent[self.base])
        kind = self.kinds.get(self.kind_of(event.type))
        return event if kind is None else msgspec.json.decode(payload, type=CloudEvent[kind])


def parse_source(text: str) -> EventSource | None:
    """Parse the `source` of an event; return None for a text that raybus does not write there."""
    match text.split("/"):
        case ["", "apis", "ray.io", "v1", "namespaces", namespace, resource, name]:
            return EventSource(resource=resource, namespace=namespace, name=name)
        case _:
            return None


@cache
def name_kind(struct: type[EventData]) -> str:
    """Return the kind of event that a struct describes: its name, hyphenated in lower case."""
    return re2.sub("(.)([A-Z])", r"\1-\2", struct.__name__).lower()


def name_kinds(*structs: type[Any]) -> dict[str, type[Any]]:
    """Return a dictionary of the structs by the kind of event that each describes."""
    return {name_kind(struct): struct for struct in structs}


def identity(data: EventData, *facts: object) -> str:
    """Return an event's id, which is the same when the event is published again.

    `facts` are durable values that distinguish the event from others of its kind in the same
    series.
    """
    name = f"{data.series}-{data.kind}"
    return f"{name}-{digest(*facts)[:12]}" if facts else name


def digest(*facts: object) -> str:
    """Return a hash of values, which is the same in every process and release."""
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
