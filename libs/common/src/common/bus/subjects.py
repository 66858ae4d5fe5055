"""Partitions and trees of objects, and the only builder of subjects.

A tree is a root object with everything below it. A location is the partition of the root, which is
a hash of its name, and the kind of the tree. All objects of a tree share a location, so one replica
of each service owns a whole tree. A service that needs only one kind of tree reads no other trees.
A RayJob is in the tree of its RayCronJob, if it has one.

    subject                                                   content                stream
    ray.state.<partition>.<tree>.<kind>.<namespace>.<name>    last state of an       RAY_STATE
                                                              object
    ray.state.<partition>.<tree>.synced                       sync marker            RAY_STATE
    ray.events.<namespace>.<name>.<type>                      step of an upgrade or  RAY_EVENTS
                                                              of a job
    ray.members.<service>                                     hint: Leases changed   none
    ray.recovery                                              create no stream for   none
                                                              N seconds

`<tree>` is `service`, `job` or `cluster`. A sync marker counts for all kinds of trees. It is
published as `service` and as `job`, so that a reader of only one of these kinds gets it. A name may
hold dots, which a token of a subject may not, so each dot becomes an underscore; no Kubernetes name
holds an underscore.
"""

from enum import StrEnum
from typing import Final
from zlib import crc32

import msgspec

PARTITIONS: Final = 64
"""Number of partitions.

It never changes in an installation, because every publisher and reader must use the same number."""
STATE_STREAM: Final = "RAY_STATE"
EVENTS_STREAM: Final = "RAY_EVENTS"
ALL_STATE: Final = "ray.state.>"
ALL_EVENTS: Final = "ray.events.>"
RECOVERY: Final = "ray.recovery"
"""Subject on which an administrator tells all keepers to create no stream for some seconds."""


class ObjectRef(msgspec.Struct, frozen=True):
    """A reference to an object by kind, namespace and name.

    Objects form trees of ownership. The root of a tree is a RayService, a RayCronJob, a RayJob that
    no RayCronJob created, or a RayCluster that no other root created.
    """

    kind: str
    namespace: str
    name: str


class TreeKind(StrEnum):
    """The kind of an ownership tree, which depends on its root object.

    `SERVICE` if the root is a RayService, `JOB` if it is a RayJob or a RayCronJob, else `CLUSTER`.
    Objects whose RayCluster is not known yet are in a tree of kind `CLUSTER`.
    """

    SERVICE = "service"
    JOB = "job"
    CLUSTER = "cluster"


MARKED_TREES: Final = (TreeKind.SERVICE, TreeKind.JOB)
"""Kinds of trees that a service may read alone. Each has its own copy of all sync markers."""
_TREE_KINDS: Final = {
    "RayService": TreeKind.SERVICE,
    "RayJob": TreeKind.JOB,
    "RayCronJob": TreeKind.JOB,
}
_TREES: Final = frozenset(TreeKind)


class TreeLocation(msgspec.Struct, frozen=True):
    """A location in the state stream: a partition, and the kind of an ownership tree."""

    partition: int
    tree: TreeKind


def compute_partition(root: ObjectRef) -> int:
    """Return the partition (0 to 63) of a root object, the same in every process and release."""
    return crc32(f"{root.kind}/{root.namespace}/{root.name}".encode()) % PARTITIONS


def locate_tree(root: ObjectRef) -> TreeLocation:
    """Return the location of a root object, which all objects below it share."""
    return TreeLocation(compute_partition(root), _TREE_KINDS.get(root.kind, TreeKind.CLUSTER))


class StateSubject(msgspec.Struct, frozen=True):
    """The parts of the subject of an object's state; `kind` is in lower case."""

    place: TreeLocation
    kind: str
    namespace: str
    name: str


def _encode_name(name: str) -> str:
    return name.replace(".", "_")


def _decode_name(token: str) -> str:
    return token.replace("_", ".")


def build_state_subject(place: TreeLocation, kind: str, namespace: str, name: str) -> str:
    """Return the subject of an object's state."""
    return (
        f"ray.state.{place.partition}.{place.tree}.{kind.lower()}."
        f"{_encode_name(namespace)}.{_encode_name(name)}"
    )


def parse_state(subject: str) -> StateSubject | None:
    """Parse the subject of an object's state; return None for any other subject."""
    match subject.split("."):
        case ["ray", "state", partition, tree, kind, namespace, name]:
            place = parse_location(partition, tree)
            if place is None:
                return None
            return StateSubject(place, kind, _decode_name(namespace), _decode_name(name))
        case _:
            return None


def parse_location(partition: str, tree: str) -> TreeLocation | None:
    """Parse a location from two tokens of a subject; return None if they are not a location."""
    if not partition.isdecimal() or tree not in _TREES:
        return None
    return TreeLocation(int(partition), TreeKind(tree))


def build_marker_subject(partition: int, tree: TreeKind | None = None) -> str:
    """Return the subject of a partition's sync marker, or of its copy for one kind of tree."""
    return f"ray.state.{partition}.{tree or TreeKind.SERVICE}.synced"


def build_partition_filter(partition: int | str, tree: TreeKind | None = None) -> str:
    """Return the subject filter for a partition (`*`: all), optionally for one kind of tree."""
    return f"ray.state.{partition}.>" if tree is None else f"ray.state.{partition}.{tree}.>"


def build_hint_subject(service: str) -> str:
    """Return the subject of the hint that a replica of a service has changed its Lease."""
    return f"ray.members.{service}"


def build_events_filter(namespace: str) -> str:
    """Return the subject filter for the events of a namespace."""
    return f"ray.events.{_encode_name(namespace)}.>"


def build_event_subject(namespace: str, name: str, event_type: str) -> str:
    """Return the subject of an event of a RayService or RayJob; `*` stands for every type."""
    return f"ray.events.{_encode_name(namespace)}.{_encode_name(name)}.{event_type}"
