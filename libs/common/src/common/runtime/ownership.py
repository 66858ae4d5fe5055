"""Assignment of partitions to replicas: pure.

Every replica has one Lease that names what it holds, and all decide alike from the same list of Leases:

- A partition may be acquired while no other Lease names it. A Lease that was not renewed is deleted first, so that a holder that
  resumes finds that it has lost everything.
- All replicas that take part hold the same number of partitions, plus or minus one. None releases more than that requires.
  Rendezvous hashing assigns the free partitions, so that two replicas that list at the same time do not want the same.
- A Lease is judged by how long *we* have observed it unchanged, as client-go does: clocks may differ. Time without a list counts
  for little, since then others could not renew either.
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
"""A holder that could not renew for this long writes nothing more; well before its Lease can expire."""
DURATION_SECONDS: Final = 7
"""A holder that was silent for this long has lost its partitions: a crash is made up for within 10 s."""
LONGEST_GAP: Final = 2 * RENEW_SECONDS
"""Most seconds between two lists that count."""
LOADED_PER_SECOND: Final = 4000.0
"""Objects that the next owner of a partition loads, on a machine with other work."""
PART_SECONDS: Final = 0.25
"""How long the next owner loads those that are handed over together."""
MOST_PARTS: Final = 16
"""Parts of a hand-over, however many objects there are: the end of a process is bounded."""


class ReplicaLease(msgspec.Struct, frozen=True, kw_only=True):
    """The content of one replica's Lease."""

    name: str
    uid: str
    version: str
    identity: str
    session: str
    """Process that wrote it: one that starts anew in its pod has the same identity."""
    partitions: frozenset[int] = frozenset()
    is_readable: bool
    """Otherwise it was edited by hand, and counts as a claim of everything, so that no replica takes what may be its holder's."""
    takes_part: bool
    """Whether it can hold partitions: a replica that ends, or does not reach NATS, cannot."""
    duration: float = DURATION_SECONDS


class LeaseObservation(msgspec.Struct, frozen=True):
    """A Lease, the seconds for which it was observed unchanged, and the time of the last observation."""

    lease: ReplicaLease
    age: float
    at: float

    @property
    def remaining(self) -> float:
        """Return for how many seconds it is still good; zero or less once it has expired."""
        return self.lease.duration - self.age


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """The next step of one replica."""

    release: frozenset[int] = frozenset()
    acquire: frozenset[int] = frozenset()


class Part(msgspec.Struct, frozen=True):
    """Partitions that are handed over together, and for how long their next owner loads them, in seconds."""

    partitions: frozenset[int]
    seconds: float


LeaseObservations = Mapping[str, LeaseObservation]
"""By the name of the Lease."""


def observe(
    before: LeaseObservations, listed: Iterable[ReplicaLease], *, now: float
) -> dict[str, LeaseObservation]:
    """Return the observations after one more list of all Leases."""
    found: dict[str, LeaseObservation] = {}
    for each in listed:
        last = before.get(each.name)
        is_same = last is not None and (last.lease.uid, last.lease.version) == (
            each.uid,
            each.version,
        )
        age = last.age + min(now - last.at, LONGEST_GAP) if last is not None and is_same else 0.0
        found[each.name] = LeaseObservation(each, age, now)
    return found


def decide(
    me: str, held: frozenset[int], others: LeaseObservations, *, takes_part: bool
) -> Rebalance:
    """Return what a replica with these partitions should release and acquire, as long as it observes these other Leases."""
    heirs = able(others)
    if not takes_part:
        return Rebalance(release=held) if heirs else Rebalance()
    wanted = share({**heirs, me: held})[me]
    return Rebalance(release=held - wanted, acquire=unclaimed(wanted - held, others))


def able(others: LeaseObservations) -> dict[str, frozenset[int]]:
    """Return the living replicas that can hold partitions, by identity, with those that they hold."""
    return {
        each.lease.identity: each.lease.partitions
        for each in others.values()
        if each.remaining > 0 and each.lease.takes_part
    }


def share(holdings: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Divide all partitions among replicas, evenly, with as few moves from what they hold as that allows."""
    least, more = divmod(PARTITIONS, len(holdings))
    shares: dict[str, set[int]] = {}
    quotas: dict[str, int] = {}
    free = set(ALL)
    for rank, member in enumerate(sorted(holdings, key=lambda each: (-len(holdings[each]), each))):
        quotas[member] = least + (rank < more)
        best = sorted(holdings[member] & free, key=lambda each: _score(member, each), reverse=True)
        shares[member] = set(best[: quotas[member]])
        free -= shares[member]
    needy = [member for member in shares if len(shares[member]) < quotas[member]]
    bids = ((_score(member, each), member, each) for member in needy for each in free)
    for _, member, partition in sorted(bids, reverse=True):
        if partition in free and len(shares[member]) < quotas[member]:
            free.discard(partition)
            shares[member].add(partition)
    return {member: frozenset(found) for member, found in shares.items()}


def parts(sizes: Mapping[int, int]) -> list[Part]:
    """Divide partitions, each with the number of its objects, into those that are handed over together.

    Nobody reconciles a partition while its next owner loads it, so no more move at a time than that one loads in a moment.
    """
    enough = max(PART_SECONDS * LOADED_PER_SECOND, sum(sizes.values()) / MOST_PARTS)
    before = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    together = (
        frozenset(some)
        for _, some in itertools.groupby(sizes, key=lambda each: before[each] // enough)
    )
    return [Part(some, sum(sizes[each] for each in some) / LOADED_PER_SECOND) for some in together]


def unclaimed(partitions: frozenset[int], others: LeaseObservations) -> frozenset[int]:
    """Return those partitions that no other Lease names."""
    return partitions.difference(*(each.lease.partitions for each in others.values()))


def is_everything_held(held: frozenset[int], others: LeaseObservations) -> bool:
    """Return whether each partition has an owner that lives."""
    return (
        held.union(*(each.lease.partitions for each in others.values() if each.remaining > 0))
        == ALL
    )


def contested(held: frozenset[int], others: LeaseObservations) -> frozenset[int]:
    """Return what we hold and another Lease names too."""
    readable = [each.lease.partitions for each in others.values() if each.lease.is_readable]
    return held & frozenset[int]().union(*readable)


def spell(partitions: Iterable[int]) -> str:
    """Write partitions as they stand on a Lease: `0,1,2,7`."""
    return ",".join(map(str, sorted(partitions)))


def parse(text: str) -> frozenset[int] | None:
    """Read what `spell` wrote; None for anything else."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) < PARTITIONS for part in parts):
        return None
    return frozenset(map(int, parts))


@lru_cache(maxsize=64 * PARTITIONS)
def _score(member: str, partition: int) -> bytes:
    return blake2b(f"{member}/{partition}".encode(), digest_size=8).digest()
