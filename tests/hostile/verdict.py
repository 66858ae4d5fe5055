"""What a run showed, and which of its rules are broken: pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
from rich.table import Table

from support.audit_log import ACCOUNT, Line

LONGEST_LAG: Final = 0.25
"""Seconds that no event loop may be blocked; a bucket of `raybus_event_loop_lag_seconds`."""
MOST_MEMORY: Final = 1024.0
"""MiB: the limit of each service in deploy/overlays/production."""
SLOWEST: Final = 2.0
"""The victim's reactions beside hostile tenants, of its calm ones."""
SHARED: Final = frozenset({("get", "gateways"), ("get", "namespaces")})
"""What is read in any namespace: a Gateway of the platform on which a route hangs, and the uid of `kube-system`, which tells clusters apart."""
SHOWN: Final = 20
OWN: Final = "raybus"
"""Where the services keep their Leases."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What one service went through."""

    name: str
    restarts: int
    late: int
    """How often its event loop was blocked for longer than `LONGEST_LAG`."""
    peak_mib: float
    faults: int
    """Reconciles that met a bug of ours."""


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a change of the victim's to what comes of it."""

    change: str
    calm: list[float]
    beside: list[float]
    """Beside hostile tenants."""

    @property
    def ratio(self) -> float:
        """Return by how much the slowest hundredth became slower."""
        return p99(self.beside) / p99(self.calm) if self.calm and self.beside else 1.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    attacks: int
    refused: int
    """Of their objects, refused by the API server."""
    stored: int
    seconds: float
    unexplained: list[str]
    """Objects that were stored, and have neither a condition nor an Event."""
    outside: list[str]
    """Requests about what belongs to somebody else."""
    requests: int
    """Requests of the services that were judged."""
    services: list[Service]
    reactions: list[Reaction]
    is_timed: bool = True
    """Whether lag and reactions are judged: not where other work takes the processors."""

    @property
    def broken(self) -> list[str]:
        """Name the rules that are broken."""
        return [*_of_services(self), *_of_times(self), *_of_objects(self)]


def p99(taken: Iterable[float]) -> float:
    """Return the value that one in a hundred exceeds."""
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def outside(lines: Iterable[Line], owners: Mapping[str, tuple[str, ...] | None]) -> Iterator[Line]:
    """Yield the requests of the services that no object in their namespace asks for.

    `owners` names, by namespace, how the objects begin that may be asked for there; None stands for any object: hostile tenants have
    that namespace for themselves. What is not listed belongs to nobody whose objects are looked after.
    """
    for line in lines:
        what = line.object_ref
        if not line.user.username.startswith(ACCOUNT) or what.namespace in {"", OWN}:
            continue
        if (line.verb, what.resource) in SHARED:
            continue
        begins = owners.get(what.namespace, ())
        is_named = bool(what.name) and line.verb not in {"list", "watch", "deletecollection"}
        if begins is None or (begins and (not is_named or what.name.startswith(begins))):
            continue
        yield line


def _of_services(found: Figures) -> Iterator[str]:
    for each in found.services:
        if each.restarts:
            yield f"{each.name} restarted {each.restarts} times"
        if each.faults:
            yield f"{each.name} met {each.faults} bugs of ours"
        if each.peak_mib > MOST_MEMORY:
            yield f"{each.name} took {each.peak_mib:.0f} MiB, more than {MOST_MEMORY:.0f}"


def _of_times(found: Figures) -> Iterator[str]:
    if not found.is_timed:
        return
    for each in found.services:
        if each.late:
            yield f"{each.name}: its event loop was blocked {each.late} times for more than {LONGEST_LAG:g} s"
    for each in found.reactions:
        if each.ratio > SLOWEST:
            yield f"the victim, {each.change}: p99 is {each.ratio:.1f} times the calm one, more than {SLOWEST:g}"


def _of_objects(found: Figures) -> Iterator[str]:
    yield from (f"accessed outside its namespace: {each}" for each in found.outside[:SHOWN])
    yield from (f"neither condition nor Event: {each}" for each in found.unexplained[:SHOWN])
    if not found.requests:
        yield "the audit log tells of no request: nothing was judged"


def table(found: Figures) -> Table:
    """Return the figures as people read them."""
    shown = Table(
        "figure", "value", "limit", title=f"{found.attacks} hostile attacks, seed {found.seed}", title_justify="left"
    )
    shown.add_row("objects that the API server refused", str(found.refused), "")
    shown.add_row("objects that it stored", str(found.stored), "")
    shown.add_row("  of them without condition or Event", str(len(found.unexplained)), "0")
    shown.add_row("requests of the services", str(found.requests), "")
    shown.add_row("  of them outside the namespace of their object", str(len(found.outside)), "0")
    for each in found.services:
        shown.add_row(f"{each.name}: restarts", str(each.restarts), "0")
        shown.add_row("  event loop blocked for more than 250 ms", f"{each.late} times", "0")
        shown.add_row("  memory, peak", f"{each.peak_mib:.0f} MiB", f"{MOST_MEMORY:.0f} MiB")
    for each in found.reactions:
        times = (
            f"{p99(each.calm):.2f} → {p99(each.beside):.2f} s, {each.ratio:.2f} times"
            if each.calm and each.beside
            else "none"
        )
        shown.add_row(f"the victim, {each.change}: p99 calm → beside", times, f"{SLOWEST:g} times")
    shown.add_row("seconds", f"{found.seconds:.0f}", "")
    return shown  # fmt: skip
