"""What a plan may ask for; `apply.py` carries it out, in order.

An action brings the Events that tell of it: `done` after success, `failed` after a failure, with the error's text added.
"""

import msgspec

from common.api.ray_cluster import RayCluster
from common.kube.actions import SILENT, Change, Create, Delete, Tell, Told
from common.ray.revision import Given

__all__ = ["SILENT", "Action", "Change", "Create", "Delete", "MoveCapacity", "Submit", "Tell", "Told", "describe"]


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    """Send a Serve config with a capacity to a cluster and, once it is accepted, record what was given."""

    cluster: RayCluster
    given: Given
    capacity: int
    told: Told = SILENT


class MoveCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """Tell clusters their capacities and, once all of them accepted, write the record."""

    submits: tuple[Submit, ...]
    record: Change


Action = Create | Change | Delete | Submit | MoveCapacity | Tell


def describe(action: Action) -> str:
    """Return an action in a few words, for the log."""
    match action:
        case Create(resource=resource, body=body):
            text = f"create {resource.kind} {body['metadata']['name']}"
        case Change(resource=resource, name=name):
            text = f"change {resource.kind} {name}"
        case Delete(resource=resource, name=name):
            text = f"delete {resource.kind} {name}"
        case Submit(cluster=cluster, capacity=capacity):
            text = f"send the Serve config to {cluster.metadata.name} with capacity {capacity}"
        case MoveCapacity(submits=submits):
            sent = ", ".join(f"{each.cluster.metadata.name} {each.capacity}" for each in submits)
            text = f"move capacity: {sent or 'only recorded'}"
        case Tell(event=event):
            text = f"tell {event.reason}"
    return text
