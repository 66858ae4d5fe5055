"""What the plan of a service may ask of the API server, whoever carries it out; data only."""

from typing import Final

import msgspec

from common.api.event import Event
from common.api.opaque import Body
from common.kube.resources import Resource


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What users hear of an action."""

    done: Event | None = None
    failed: Event | None = None


SILENT: Final = Told()


class Create(msgspec.Struct, frozen=True, kw_only=True):
    """Create an object; one that exists already is taken as it is."""

    resource: Resource
    body: Body
    told: Told = SILENT


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """Change some fields of an object; the patch carries the resourceVersion that was observed."""

    resource: Resource
    name: str
    patch: Body
    told: Told = SILENT


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete one object, and no other that got its name."""

    resource: Resource
    name: str
    uid: str
    told: Told = SILENT


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell an Event that belongs to no write."""

    event: Event
