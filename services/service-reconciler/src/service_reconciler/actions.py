"""What a plan may ask for. `apply.py` carries these out, in order, and is the only module that writes.

An action brings the Events that tell of it: `done` after success, `failed` after a failure, with the error's text added.
"""

import msgspec

from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayServiceStatus
from common.kube.actions import SILENT, Change, Create, Delete, Tell, Told
from common.ray.revision import Given

__all__ = [
    "SILENT",
    "Action",
    "Change",
    "Create",
    "Delete",
    "SetFinalizers",
    "Submit",
    "Tell",
    "Told",
    "WriteStatus",
    "describe",
]


class WriteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the RayService's status; refused when the RayService changed since it was observed."""

    status: RayServiceStatus


class SetFinalizers(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the RayService's finalizers, and nothing else of it."""

    finalizers: tuple[str, ...]


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """Send a Serve config to a cluster and, once it is accepted, record that."""

    cluster: RayCluster
    given: Given
    told: Told = SILENT


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
