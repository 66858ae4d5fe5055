"""Which replica looks after which partitions: pure.

Every replica has one Lease that names what it holds, and all decide alike from the same list of them:

- A partition may be taken while no other Lease names it. A Lease that was not renewed is deleted first, so that its holder,
  should it wake, finds that it has lost everything.
- All replicas that take part hold as many as the others, give or take one. Nobody gives away more than that asks for, and
  whom a free partition goes to is drawn by rendezvous hashing, so that two who look at the same time do not want the same.
- A Lease is judged by how long *we* have seen it unchanged, as client-go does: clocks may differ. Time in which we could not
  look counts for little, since then others could not renew either.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import msgspec

from common.bus.sharding import PARTITIONS

ALL: Final = frozenset(range(PARTITIONS))
RENEW_SECONDS: Final = 2.0
DEADLINE_SECONDS: Final = 5.0
"""A holder that could not renew for this long writes nothing more; well before its Lease can expire."""
DURATION_SECONDS: Final = 7
"""Who was silent for this long has lost its partitions: a crash is made up for within 10 s."""
LONGEST_GAP: Final = 2 * RENEW_SECONDS
"""Seconds between two looks that count at most."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica's Lease says."""

    name: str
    """Of the Lease."""
    uid: str
    version: str
    identity: str
    session: str
    """Which process wrote it: one that starts anew in its pod has the same identity."""
    partitions: frozenset[int] = frozenset()
    is_readable: bool
    """Else somebody has edited it, and it claims everything, so that nobody takes what may be its holder's."""
    takes_part: bool
    """Whether it can look after partitions: one that ends, or does not reach NATS, cannot."""
    duration: float = DURATION_SECONDS


class Sighting(msgspec.Struct, frozen=True):
    """A Lease with the seconds for which we have seen it unchanged, and when we looked last."""

    standing: Standing
    age: float
    at: float

    @property
    def remaining(self) -> float:
        """Return for how many seconds it is still good; zero or less once it has expired."""
        return self.standing.duration - self.age


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """What one replica should do next."""

    give: frozenset[int] = frozenset()
    take: frozenset[int] = frozenset()


Sightings = Mapping[str, Sighting]
"""By the name of the Lease."""


def see(before: Sightings, listed: Iterable[Standing], *, now: float) -> dict[str, Sighting]:
    """Return the sightings after one more look at all Leases."""
    return {each.name: _seen_again(before.get(each.name), each, now=now) for each in listed}


def _seen_again(before: Sighting | None, found: Standing, *, now: float) -> Sighting:
    if before is None or (before.standing.uid, before.standing.version) != (found.uid, found.version):
        return Sighting(found, 0.0, now)
    return Sighting(found, before.age + min(now - before.at, LONGEST_GAP), now)


def decide(me: str, held: frozenset[int], others: Sightings, *, takes_part: bool) -> Move:
    """Return what a replica that holds some partitions should give away and take, as long as it sees these other Leases."""
    living = {
        each.standing.identity: each.standing.partitions
        for each in others.values()
        if each.remaining > 0 and each.standing.takes_part
    }
    if not takes_part:
        return Move(give=held) if living else Move()
    wanted = share({**living, me: held})[me]
    taken = frozenset[int]().union(*(each.standing.partitions for each in others.values()))
    return Move(give=held - wanted, take=wanted - held - taken)


def share(holdings: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Divide all partitions among replicas, evenly, with as few moves from what they hold as that allows."""
    least, more = divmod(PARTITIONS, len(holdings))
    shares: dict[str, set[int]] = {}
    room: dict[str, int] = {}
    free = set(ALL)
    for rank, member in enumerate(sorted(holdings, key=lambda each: (-len(holdings[each]), each))):
        quota = least + (rank < more)
        best = sorted(holdings[member] & free, key=lambda each: _score(member, each), reverse=True)
        shares[member] = set(best[:quota])
        room[member] = quota - len(shares[member])
        free -= shares[member]
    bids = ((_score(member, each), member, each) for member in room if room[member] for each in free)
    for _, member, partition in sorted(bids, reverse=True):
        if room[member] and partition in free:
            free.discard(partition)
            shares[member].add(partition)
            room[member] -= 1
    return {member: frozenset(found) for member, found in shares.items()}


def is_everything_held(held: frozenset[int], others: Sightings) -> bool:
    """Tell whether each partition has an owner that lives."""
    return held.union(*(each.standing.partitions for each in others.values() if each.remaining > 0)) == ALL


def contested(held: frozenset[int], others: Sightings) -> frozenset[int]:
    """Return what we hold and another Lease names too."""
    readable = [each.standing.partitions for each in others.values() if each.standing.is_readable]
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
