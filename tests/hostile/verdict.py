"""What a run showed, and which of its rules are broken: pure."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Final

import msgspec
from rich.table import Table

from hostile.shares import Shares
from support.audit_log import ACCOUNT, Line

MAX_LAG: Final = 0.25
"""Seconds that no event loop may be blocked; a bucket of `raybus_event_loop_lag_seconds`."""
MAX_MEMORY: Final = 1024.0
"""MiB: the limit of each service in deploy/overlays/production."""
SLOWEST: Final = 2.0
"""The victim's reactions beside hostile tenants, of its calm ones."""
ENOUGH: Final = 200
"""Reactions from which a p99 is taken: of fewer, the slowest hundredth is a single one."""
CALM: Final = "calm"
CONTROL: Final = "control"
"""The tenants write as much, and nothing of it is for raybus to reconcile."""
BESIDE: Final = "beside"
"""Beside hostile tenants."""
SHARED: Final = frozenset({("get", "gateways"), ("get", "namespaces")})
"""What is read in any namespace: a Gateway of the platform on which a route hangs, and the uid of `kube-system`, which identifies the cluster."""
SHOWN: Final = 20
OWN: Final = "raybus"
"""Where the services keep their Leases."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What one service went through."""

    name: str
    restarts: int
    late: int
    """How often its event loop was blocked for longer than `MAX_LAG`."""
    peak_mib: float
    faults: int
    """Reconciles that met a bug of ours."""


class Reaction(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds from a change of the victim's until its goal is reached, by phase."""

    change: str
    taken: dict[str, list[float]]
    shares: dict[str, Shares] = {}
    """What the reactions waited for."""

    @property
    def ratio(self) -> float:
        """Return by how much the slowest hundredth became slower than in calm."""
        return self.slower_than(CALM)

    def slower_than(self, phase: str) -> float:
        """Return the p99 beside hostile tenants as a multiple of that of another phase; 1 where one of the two has no reactions."""
        calm, beside = self.taken.get(phase), self.taken.get(BESIDE)
        return p99(beside) / p99(calm) if calm and beside else 1.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    attacks: int
    refused: int
    """Of their objects, refused by the API server."""
    stored: int
    seconds: float
    unexplained: list[str]
    """Objects that were stored, with conditions and Events that do not give the reason."""
    crossed: list[str] = []
    """What a tenant, a subscriber or a service could do and must not."""
    outside: list[str]
    """Requests about what belongs to somebody else."""
    requests: int
    """Requests of the services that were judged."""
    services: list[Service]
    reactions: list[Reaction]
    busy: dict[str, float] = {}
    """How much of the machine's processors was busy, by phase."""
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
    that namespace for themselves. What is not listed belongs to nobody with objects that are reconciled.
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
        if each.peak_mib > MAX_MEMORY:
            yield f"{each.name} took {each.peak_mib:.0f} MiB, more than {MAX_MEMORY:.0f}"


def _of_times(found: Figures) -> Iterator[str]:
    if not found.is_timed:
        return
    for each in found.services:
        if each.late:
            yield f"{each.name}: its event loop was blocked {each.late} times for more than {MAX_LAG:g} s"
    for each in found.reactions:
        if each.ratio > SLOWEST:
            yield f"the victim, {each.change}: p99 is {each.ratio:.1f} times the calm one, more than {SLOWEST:g}"
        for phase in (CALM, BESIDE):
            if (count := len(each.taken.get(phase, []))) < ENOUGH:
                yield f"the victim, {each.change}: {count} reactions ({phase}), a p99 needs {ENOUGH}: take more attacks"


def _of_objects(found: Figures) -> Iterator[str]:
    yield from (f"accessed outside its namespace: {each}" for each in found.outside[:SHOWN])
    yield from (f"a border is crossed: {each}" for each in found.crossed)
    yield from (f"no reason: {each}" for each in found.unexplained[:SHOWN])
    if not found.requests:
        yield "the audit log has no request: nothing was judged"


def table(found: Figures) -> Table:
    """Return the figures as people read them."""
    shown = Table(
        "figure",
        "value",
        "limit",
        title=f"{found.attacks} hostile attacks, seed {found.seed}",
        title_justify="left",
    )
    shown.add_row("objects that the API server refused", str(found.refused), "")
    shown.add_row("objects that it stored", str(found.stored), "")
    shown.add_row(
        "  of them without a condition or an Event that gives the reason",
        str(len(found.unexplained)),
        "0",
    )
    shown.add_row("borders that are crossed", str(len(found.crossed)), "0")
    shown.add_row("requests of the services", str(found.requests), "")
    shown.add_row("  of them outside the namespace of their object", str(len(found.outside)), "0")
    for each in found.services:
        shown.add_row(f"{each.name}: restarts", str(each.restarts), "0")
        shown.add_row("  event loop blocked for more than 250 ms", f"{each.late} times", "0")
        shown.add_row("  memory, peak", f"{each.peak_mib:.0f} MiB", f"{MAX_MEMORY:.0f} MiB")
    for each in found.reactions:
        shown.add_row(
            f"the victim, {each.change}: p99 beside / calm", f"{each.ratio:.2f}", f"{SLOWEST:g}"
        )
        shown.add_row("  p99 beside / control", f"{each.slower_than(CONTROL):.2f}", "")
        for phase, taken in each.taken.items():
            shown.add_row(f"  {phase}: reactions; p50, p99", _times(taken), "")
            if phase in each.shares:
                shown.add_row(
                    "    API server, nodes, raybus and NATS: mean (slowest hundredth)",
                    _parts(each.shares[phase]),
                    "",
                )
    shown.add_row(
        "processors busy",
        ", ".join(f"{phase} {busy:.0%}" for phase, busy in found.busy.items()),
        "",
    )
    shown.add_row("seconds", f"{found.seconds:.0f}", "")
    return shown  # fmt: skip


def _times(taken: list[float]) -> str:
    return f"{len(taken)}; {median(taken):.2f}, {p99(taken):.2f} s" if taken else "none"


def _parts(shares: Shares) -> str:
    means = zip(
        (shares.api_server, shares.nodes, shares.rest), shares.slowest_hundredth, strict=False
    )
    return ", ".join(f"{mean:.2f} ({slowest:.2f})" for mean, slowest in means) + " s"
