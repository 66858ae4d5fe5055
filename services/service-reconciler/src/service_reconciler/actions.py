"""What a plan may ask for. `apply.py` carries these out, in order, and is the only module that writes.

An action brings the Events that tell of it: `done` after success, `failed` after a failure, with the error's text added.
"""

from typing import Final

import msgspec

from common.api.event import Event
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayServiceStatus
from common.kube.resources import Resource
from common.ray.revision import Given


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What users hear of an action."""

    done: Event | None = None
    failed: Event | None = None


SILENT: Final = Told()


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the RayService's status; refused when the RayService changed since it was observed."""

    status: RayServiceStatus


class SetFinalizers(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the RayService's finalizers, and nothing else of it."""

    finalizers: tuple[str, ...]


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


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """Send a Serve config to a cluster and, once it is accepted, record that."""

    cluster: RayCluster
    given: Given
    told: Told = SILENT


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell an Event that belongs to no write."""

    event: Event


Action = WriteStatus | SetFinalizers | Create | Change | Delete | Submit | Tell


def describe(action: Action) -> str:
    """Return an action in a few words, for the log."""
    match action:
        case WriteStatus(status=status):
            active, pending = status.active_service_status, status.pending_service_status
            text = f"write status: active {active.ray_cluster_name or '-'}, pending {pending.ray_cluster_name or '-'}"
        case SetFinalizers(finalizers=finalizers):
            text = f"set finalizers: {', '.join(finalizers) or '-'}"
        case Create(resource=resource, body=body):
            text = f"create {resource.kind} {body['metadata']['name']}"
        case Change(resource=resource, name=name):
            text = f"change {resource.kind} {name}"
        case Delete(resource=resource, name=name):
            text = f"delete {resource.kind} {name}"
        case Submit(cluster=cluster):
            text = f"send the Serve config to {cluster.metadata.name}"
        case Tell(event=event):
            text = f"tell {event.reason}"
    return text
