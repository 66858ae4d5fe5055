"""Which place a worker pod takes in its group (spec raycluster §2.1, §9.7)."""

import msgspec


class ReplicaIndex(msgspec.Struct, frozen=True):
    """The replica's index within its group and, for a replica of several hosts, its name and this host's index in it."""

    index: int
    host: int = 0
    replica_name: str | None = None
