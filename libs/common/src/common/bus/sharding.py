"""Where an object stands in the state stream: by its root, so that a whole tree has one owner per service.

The partition is a hash of the root. Beside it stands whether the tree is a RayService's: the services that decide about
those read nothing of the others, however many clusters and pods there are.
"""

from enum import StrEnum
from typing import Final
from zlib import crc32

import msgspec

PARTITIONS: Final = 64
"""Fixed for the life of an installation: every publisher and reader must agree on it."""


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
