"""Assignment of partitions to replicas (no I/O).

Every replica has one Lease, which contains its partitions. All replicas decide from the same list
of Leases, by the same rules:

- A replica may acquire a partition that is in no other Lease. Expired Leases are deleted first, so
  that a holder that resumes finds that it has lost everything.
- All replicas that can hold partitions hold the same number, plus or minus one. None releases more
  partitions than that requires. Rendezvous hashing assigns the free partitions, so that two
  replicas that list at the same time want different ones.
- The age of a Lease is the time for which the deciding replica has observed it unchanged, as in
  client-go, since clocks may differ. A long gap between two lists counts only in part, because
  during the gap others probably could not renew either.
"""

import itertools
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from common.bus.subjects import PARTITIONS

ALL: Final = frozenset(range(PARTITIONS))
RENEW_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 5.0
"""Seconds without a renewal after which a holder stops writing, before its Lease expires."""
DURATION_SECONDS: Final = 7
"""Seconds without a renewal after which a Lease expires and its holder loses its partitions.

With this value, a crash is handled within 10 s.
"""
MAX_RENEWAL_GAP: Final = 2 * RENEW_SECONDS
"""Maximum seconds that the time between two lists may add to the age of a Lease."""
LOADED_PER_SECOND: Final = 4000.0
"""Objects per second that a replica loads from NATS, as measured on a busy machine."""
PART_SECONDS: Final = 0.25
"""Target for the seconds that the next owner needs to load one part of a hand-over."""
MAX_PARTS: Final = 16
"""Maximum number of parts of a hand-over. It limits the time of a shutdown."""


class ReplicaLease(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one replica's Lease."""

    name: str
    uid: str
    version: str
    identity: str
    session: str
    """ID of the process that wrote the Lease.

    The identity is not enough, since a restarted container has the same identity.
    """
    partitions: frozenset[int] = frozenset()
    is_readable: bool
    """False if the Lease was edited by hand and cannot be parsed.

    Such a Lease counts as holding every partition, so that nobody takes a partition of its holder.
    """
    takes_part: bool
    """Whether the replica can hold partitions.

    False while the replica shuts down or does not reach NATS.
    """
    duration: float = DURATION_SECONDS


class LeaseObservation(msgspec.Struct, frozen=True):
    """A Lease, and the seconds for which it was observed unchanged (`age`).

    `at` is the time of the last observation, in monotonic seconds.
    """

    lease: ReplicaLease
    age: float
    at: float

    @property
    def remaining(self) -> float:
        """Seconds until the Lease expires; 0 or negative if it has expired."""
        return self.lease.duration - self.age


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that one replica should release and acquire next."""

    release: frozenset[int] = frozenset()
    acquire: frozenset[int] = frozenset()


class Part(msgspec.Struct, frozen=True):
    """Partitions that are handed over together.

    `seconds` is the time that their next owner needs to load them.
    """

    partitions: frozenset[int]
    seconds: float


LeaseObservations = Mapping[str, LeaseObservation]
"""Observations of Leases, by the name of the Lease."""


def observe(
    before: LeaseObservations, listed: Iterable[ReplicaLease], *, now: float
) -> dict[str, LeaseObservation]:
    """Return the observations of all Leases after a new list.

    `before` are the observations after the previous list, `listed` are the Leases in the new list,
    and `now` is the time of the new list in monotonic seconds.
    """
    observations: dict[str, LeaseObservation] = {}
    for lease in listed:
        last = before.get(lease.name)
        is_same = last is not None and (last.lease.uid, last.lease.version) == (
            lease.uid,
            lease.version,
        )
        age = (
            last.age + min(now - last.at, MAX_RENEWAL_GAP) if last is not None and is_same else 0.0
        )
        observations[lease.name] = LeaseObservation(lease, age, now)
    return observations


def decide(
    me: str, own: frozenset[int], others: LeaseObservations, *, takes_part: bool
) -> Rebalance:
    """Return the partitions that replica `me` should release and acquire next.

    `own` are the partitions that it holds. If it does not take part, it releases all of them, but
    only if there is a replica that can take them.
    """
    heirs = find_heirs(others)
    if not takes_part:
        return Rebalance(release=own) if heirs else Rebalance()
    fair_share = divide({**heirs, me: own})[me]
    return Rebalance(release=own - fair_share, acquire=find_unclaimed(fair_share - own, others))


def find_heirs(others: LeaseObservations) -> dict[str, frozenset[int]]:
    """Return the partitions of each living replica that can hold partitions, by its identity."""
    return {
        other.lease.identity: other.lease.partitions
        for other in others.values()
        if other.remaining > 0 and other.lease.takes_part
    }


def divide(holdings: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Divide all partitions evenly among replicas, with as few moves as possible.

    `holdings` has the present partitions of each replica, by the identity of the replica.
    """
    base_quota, remainder = divmod(PARTITIONS, len(holdings))
    shares: dict[str, set[int]] = {}
    quotas: dict[str, int] = {}
    free = set(ALL)
    for rank, member in enumerate(
        sorted(holdings, key=lambda identity: (-len(holdings[identity]), identity))
    ):
        quotas[member] = base_quota + (rank < remainder)
        preferred = sorted(
            holdings[member] & free, key=lambda partition: _score(member, partition), reverse=True
        )
        shares[member] = set(preferred[: quotas[member]])
        free -= shares[member]
    needy = [member for member in shares if len(shares[member]) < quotas[member]]
    bids = (
        (_score(member, partition), member, partition) for member in needy for partition in free
    )
    for _, member, partition in sorted(bids, reverse=True):
        if partition in free and len(shares[member]) < quotas[member]:
            free.discard(partition)
            shares[member].add(partition)
    return {member: frozenset(partitions) for member, partitions in shares.items()}


def split_into_parts(sizes: Mapping[int, int]) -> list[Part]:
    """Divide partitions into parts that are handed over one after the other.

    `sizes` has the number of objects in each partition. Nobody reconciles a partition while its
    next owner loads it. So a part has about as many objects as a replica loads in `PART_SECONDS`,
    or more if there would be more than `MAX_PARTS` parts.
    """
    max_size = max(PART_SECONDS * LOADED_PER_SECOND, sum(sizes.values()) / MAX_PARTS)
    before = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    together = (
        frozenset(group)
        for _, group in itertools.groupby(
            sizes, key=lambda partition: before[partition] // max_size
        )
    )
    return [
        Part(group, sum(sizes[partition] for partition in group) / LOADED_PER_SECOND)
        for group in together
    ]


def find_unclaimed(partitions: frozenset[int], others: LeaseObservations) -> frozenset[int]:
    """Return the `partitions` that are in no other replica's Lease."""
    return partitions.difference(*(other.lease.partitions for other in others.values()))


def is_everything_held(own: frozenset[int], others: LeaseObservations) -> bool:
    """Return whether every partition is in `own` or in an unexpired Lease of `others`."""
    return (
        own.union(*(other.lease.partitions for other in others.values() if other.remaining > 0))
        == ALL
    )


def find_contested(own: frozenset[int], others: LeaseObservations) -> frozenset[int]:
    """Return the partitions of `own` that are also in a readable Lease of another replica."""
    readable = [other.lease.partitions for other in others.values() if other.lease.is_readable]
    return own & frozenset[int]().union(*readable)


def format_partitions(partitions: Iterable[int]) -> str:
    """Format partitions for a Lease, such as `0,1,2,7`."""
    return ",".join(map(str, sorted(partitions)))


def parse_partitions(text: str) -> frozenset[int] | None:
    """Parse a text in the format of `format_partitions`; return None if it is not valid."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) < PARTITIONS for part in parts):
        return None
    return frozenset(map(int, parts))


@lru_cache(maxsize=64 * PARTITIONS)
def _score(member: str, partition: int) -> bytes:
    return blake2b(f"{member}/{partition}".encode(), digest_size=8).digest()
