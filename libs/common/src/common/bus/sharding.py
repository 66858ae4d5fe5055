"""Which partition an object belongs to: a hash of its root, so that a whole tree has one owner per service."""

from typing import Final
from zlib import crc32

import msgspec

PARTITIONS: Final = 64
"""Fixed for the life of an installation: every publisher and reader must agree on it."""


class Root(msgspec.Struct, frozen=True):
    """The object at the top of a tree: a RayService, or a RayCluster that no RayService made."""

    kind: str
    namespace: str
    name: str


def partition_of(root: Root) -> int:
    """Return the partition of a root, 0 … 63; the same in every process and release."""
    return crc32(f"{root.kind}/{root.namespace}/{root.name}".encode()) % PARTITIONS
