"""The only builder of subject strings.

`ray.state.<partition>.<tree>.<kind>.<namespace>.<name>`   the last state of one object      stream RAY_STATE
`ray.state.<partition>.service.synced`                     "this partition is complete"      stream RAY_STATE
`ray.events.<namespace>.<rayservice>.<type>`               one step of an upgrade            stream RAY_EVENTS
`ray.members.<service>`                                    "our Leases have changed"         no stream
`ray.recovery`                                             "make no stream for N seconds"    no stream

`tree` is `service` or `cluster`. A sync marker counts for both, and has a subject that all readers read. A token
of a subject may not hold a dot, a name may, and no Kubernetes name holds an underscore: so a dot is written as an underscore.
"""

from typing import Final

import msgspec

from common.bus.sharding import Place, Tree

STATE_STREAM: Final = "RAY_STATE"
EVENTS_STREAM: Final = "RAY_EVENTS"
ALL_STATE: Final = "ray.state.>"
ALL_EVENTS: Final = "ray.events.>"
RECOVERY: Final = "ray.recovery"
"""An administrator's message to all keepers: make no stream for so many seconds."""


class StateSubject(msgspec.Struct, frozen=True):
    """The content of the subject of an object's state; `kind` is in lower case."""

    place: Place
    kind: str
    namespace: str
    name: str


def _token(name: str) -> str:
    return name.replace(".", "_")


def _name(token: str) -> str:
    return token.replace("_", ".")


def state(place: Place, kind: str, namespace: str, name: str) -> str:
    """Return the subject that holds the last state of an object."""
    return f"ray.state.{place.partition}.{place.tree}.{kind.lower()}.{_token(namespace)}.{_token(name)}"


def parse_state(subject: str) -> StateSubject | None:
    """Read the subject of an object's state; None for any other subject."""
    match subject.split("."):
        case ["ray", "state", partition, (Tree.SERVICE | Tree.CLUSTER) as tree, kind, namespace, name] if (
            partition.isdecimal()
        ):
            return StateSubject(Place(int(partition), Tree(tree)), kind, _name(namespace), _name(name))
        case _:
            return None


def synced(partition: int) -> str:
    """Return the subject of the sync marker of a partition."""
    return f"ray.state.{partition}.{Tree.SERVICE}.synced"


def parse_synced(subject: str) -> int | None:
    """Return the partition that a marker is about; None for any other subject."""
    match subject.split("."):
        case ["ray", "state", partition, Tree.SERVICE, "synced"] if partition.isdecimal():
            return int(partition)
        case _:
            return None


def partition_filter(partition: int | str, tree: Tree | None = None) -> str:
    """Return the filter that matches all of one partition, or one kind of its trees; `*` stands for every partition."""
    return f"ray.state.{partition}.>" if tree is None else f"ray.state.{partition}.{tree}.>"


def members(service: str) -> str:
    """Return the subject on which the replicas of a service hint at changes of their Leases."""
    return f"ray.members.{service}"


def events_of(namespace: str) -> str:
    """Return the filter for the events of one namespace."""
    return f"ray.events.{_token(namespace)}.>"


def upgrade_event(namespace: str, rayservice: str, event_type: str) -> str:
    """Return the subject of one step of an upgrade; `*` stands for every step."""
    return f"ray.events.{_token(namespace)}.{_token(rayservice)}.{event_type}"
