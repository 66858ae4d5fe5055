"""Where an object stands on the bus, and the only builder of subject strings.

A place is that of the root, so that a whole tree has one owner per service: a partition, which is a hash of the root, and whether
the tree is a RayService's. The services that decide about those read nothing of the others, however many clusters and pods there are.

`ray.state.<partition>.<tree>.<kind>.<namespace>.<name>`   the last state of one object      stream RAY_STATE
`ray.state.<partition>.service.synced`                     "this partition is complete"      stream RAY_STATE
`ray.events.<namespace>.<rayservice>.<type>`               one step of an upgrade            stream RAY_EVENTS
`ray.members.<service>`                                    "our Leases have changed"         no stream
`ray.recovery`                                             "make no stream for N seconds"    no stream

`tree` is `service` or `cluster`. A sync marker counts for both, and has a subject that all readers read. A token
of a subject may not hold a dot, a name may, and no Kubernetes name holds an underscore: so a dot is written as an underscore.
"""

from enum import StrEnum
from typing import Final
from zlib import crc32

import msgspec

PARTITIONS: Final = 64
"""Fixed for the life of an installation: every publisher and reader must agree on it."""
STATE_STREAM: Final = "RAY_STATE"
EVENTS_STREAM: Final = "RAY_EVENTS"
ALL_STATE: Final = "ray.state.>"
ALL_EVENTS: Final = "ray.events.>"
RECOVERY: Final = "ray.recovery"
"""An administrator's message to all keepers: make no stream for so many seconds."""


class Ref(msgspec.Struct, frozen=True):
    """An object by its kind and name; the root of a tree is a RayService, or a RayCluster that no RayService made."""

    kind: str
    namespace: str
    name: str


class Tree(StrEnum):
    """The kind of the root of a tree: a RayService; else a RayCluster, or something below one that is not known yet."""

    SERVICE = "service"
    CLUSTER = "cluster"


class Place(msgspec.Struct, frozen=True):
    """Where the objects of one tree stand."""

    partition: int
    tree: Tree


def partition_of(root: Ref) -> int:
    """Return the partition of a root, 0 … 63; the same in every process and release."""
    return crc32(f"{root.kind}/{root.namespace}/{root.name}".encode()) % PARTITIONS


def place_of(root: Ref) -> Place:
    """Return where everything below a root stands, and the root itself."""
    return Place(partition_of(root), Tree.SERVICE if root.kind == "RayService" else Tree.CLUSTER)


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
        case [
            "ray",
            "state",
            partition,
            (Tree.SERVICE | Tree.CLUSTER) as tree,
            kind,
            namespace,
            name,
        ] if partition.isdecimal():
            return StateSubject(
                Place(int(partition), Tree(tree)), kind, _name(namespace), _name(name)
            )
        case _:
            return None


def synced(partition: int) -> str:
    """Return the subject of the sync marker of a partition."""
    return f"ray.state.{partition}.{Tree.SERVICE}.synced"


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
