"""The measurements of a run, and the rules that they break. Does no I/O."""

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Final

import msgspec
from rich.table import Table

from hostile.shares import Shares
from support.audit_log import ACCOUNT, Line

MAX_LAG: Final = 0.25
"""Maximum seconds for which a service's event loop may be blocked.

It is the bound of a bucket of `raybus_event_loop_lag_seconds`.
"""
MAX_MEMORY: Final = 1024.0
"""Memory limit of each service in deploy/overlays/production, in MiB."""
MAX_SLOWDOWN: Final = 2.0
"""Maximum ratio of the victim's reaction time during attacks to that without attacks."""
MIN_REACTIONS: Final = 200
"""Minimum number of reactions for a 99th percentile.

With fewer reactions, the slowest 1 % is one reaction.
"""
CALM: Final = "calm"
CONTROL: Final = "control"
"""Name of the control phase.

Tenants write as much as in attacks, but raybus has nothing to reconcile.
"""
UNDER_ATTACK: Final = "beside"
"""Name of the phase in which hostile tenants attack while the victim's objects change."""
SHARED_READS: Final = frozenset({("get", "gateways"), ("get", "namespaces")})
"""Pairs of verb and resource: reads that services may do in any namespace.

A route may use a shared Gateway, and the uid of `kube-system` identifies the cluster.
"""
MAX_SHOWN: Final = 20
OWN_NAMESPACE: Final = "raybus"
"""The namespace of the services' Leases."""


class VictimService(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one of raybus's services."""

    name: str
    restarts: int
    loop_blockages: int = msgspec.field(name="late")
    """How often the event loop was blocked for longer than `MAX_LAG`."""
    peak_mib: float
    faults: int
    """Number of reconciles that found a violated invariant."""


class VictimReaction(msgspec.Struct, frozen=True, kw_only=True):
    """How soon raybus reacts to one kind of change of the victim's objects.

    `taken` has, for each phase, the seconds from each change until the object has reached its goal.
    """

    change: str
    taken: dict[str, list[float]]
    shares: dict[str, Shares] = {}
    """Mean seconds that a reaction waited, by phase and by cause."""

    @property
    def ratio(self) -> float:
        """Ratio of the 99th percentile of reaction times during attacks to that without attacks."""
        return self.compute_slowdown(CALM)

    def compute_slowdown(self, phase: str) -> float:
        """Return the 99th percentile of reaction times during attacks, divided by that of `phase`.

        Return 1 if one of the two phases has no reactions.
        """
        calm, beside = self.taken.get(phase), self.taken.get(UNDER_ATTACK)
        return p99(beside) / p99(calm) if calm and beside else 1.0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one run."""

    seed: int
    attacks: int
    refused: int
    """Number of objects that the API server refused."""
    stored: int
    seconds: float
    unexplained: list[str]
    """Stored objects whose conditions and Events do not explain their outcome."""
    crossed: list[str] = []
    """Forbidden requests of a tenant, a subscriber or a service that were granted."""
    outside: list[str]
    """Requests of services in namespaces that do not concern the reconciled object."""
    requests: int
    """Number of requests of the services, all of which were judged."""
    services: list[VictimService]
    reactions: list[VictimReaction]
    busy: dict[str, float] = {}
    """Fraction of the machine's processor time that was used, by phase."""
    is_timed: bool = True
    """Whether times are judged: blocked event loops and the victim's reactions.

    They are not judged if other work shares the processors.
    """

    @property
    def violations(self) -> list[str]:
        """The rules that are broken, as sentences."""
        return [
            *_find_service_violations(self),
            *_find_time_violations(self),
            *_find_object_violations(self),
        ]


def p99(taken: Iterable[float]) -> float:
    """Return the 99th percentile of some durations, of which there must be at least one."""
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def outside(lines: Iterable[Line], owners: Mapping[str, tuple[str, ...] | None]) -> Iterator[Line]:
    """Yield the services' requests in namespaces where they have nothing to do.

    `owners` lists, by namespace, the prefixes of names of objects that may be requested there; None
    allows any name, as in a hostile tenant's own namespace. Requests in other namespaces are
    yielded, except those in raybus's own namespace (`OWN_NAMESPACE`) and `SHARED_READS`.
    """
    for line in lines:
        what = line.object_ref
        if not line.user.username.startswith(ACCOUNT) or what.namespace in {"", OWN_NAMESPACE}:
            continue
        if (line.verb, what.resource) in SHARED_READS:
            continue
        begins = owners.get(what.namespace, ())
        is_named = bool(what.name) and line.verb not in {"list", "watch", "deletecollection"}
        if begins is None or (begins and (not is_named or what.name.startswith(begins))):
            continue
        yield line


def _find_service_violations(figures: RunFigures) -> Iterator[str]:
    for service in figures.services:
        if service.restarts:
            yield f"{service.name} restarted {service.restarts} times"
        if service.faults:
            yield f"{service.name} met {service.faults} bugs of ours"
        if service.peak_mib > MAX_MEMORY:
            yield f"{service.name} took {service.peak_mib:.0f} MiB, more than {MAX_MEMORY:.0f}"


def _find_time_violations(figures: RunFigures) -> Iterator[str]:
    if not figures.is_timed:
        return
    for service in figures.services:
        if service.loop_blockages:
            yield (
                f"{service.name}: its event loop was blocked {service.loop_blockages} times for "
                f"more than {MAX_LAG:g} s"
            )
    for reaction in figures.reactions:
        if reaction.ratio > MAX_SLOWDOWN:
            yield (
                f"the victim, {reaction.change}: p99 is {reaction.ratio:.1f} times the calm one, "
                f"more than {MAX_SLOWDOWN:g}"
            )
        for phase in (CALM, UNDER_ATTACK):
            if (count := len(reaction.taken.get(phase, []))) < MIN_REACTIONS:
                yield (
                    f"the victim, {reaction.change}: {count} reactions ({phase}), a p99 needs "
                    f"{MIN_REACTIONS}: take more attacks"
                )


def _find_object_violations(figures: RunFigures) -> Iterator[str]:
    yield from (f"accessed outside its namespace: {name}" for name in figures.outside[:MAX_SHOWN])
    yield from (f"a border is crossed: {violation}" for violation in figures.crossed)
    yield from (f"no reason: {name}" for name in figures.unexplained[:MAX_SHOWN])
    if not figures.requests:
        yield "the audit log has no request: nothing was judged"


def table(figures: RunFigures) -> Table:
    """Build the table of figures and their limits."""
    shown = Table(
        "figure",
        "value",
        "limit",
        title=f"{figures.attacks} hostile attacks, seed {figures.seed}",
        title_justify="left",
    )
    shown.add_row("objects that the API server refused", str(figures.refused), "")
    shown.add_row("objects that it stored", str(figures.stored), "")
    shown.add_row(
        "  of them without a condition or an Event that gives the reason",
        str(len(figures.unexplained)),
        "0",
    )
    shown.add_row("borders that are crossed", str(len(figures.crossed)), "0")
    shown.add_row("requests of the services", str(figures.requests), "")
    shown.add_row("  of them outside the namespace of their object", str(len(figures.outside)), "0")
    for service in figures.services:
        shown.add_row(f"{service.name}: restarts", str(service.restarts), "0")
        shown.add_row(
            "  event loop blocked for more than 250 ms", f"{service.loop_blockages} times", "0"
        )
        shown.add_row("  memory, peak", f"{service.peak_mib:.0f} MiB", f"{MAX_MEMORY:.0f} MiB")
    for reaction in figures.reactions:
        shown.add_row(
            f"the victim, {reaction.change}: p99 beside / calm",
            f"{reaction.ratio:.2f}",
            f"{MAX_SLOWDOWN:g}",
        )
        shown.add_row("  p99 beside / control", f"{reaction.compute_slowdown(CONTROL):.2f}", "")
        for phase, taken in reaction.taken.items():
            shown.add_row(f"  {phase}: reactions; p50, p99", _format_times(taken), "")
            if phase in reaction.shares:
                shown.add_row(
                    "    API server, nodes, raybus and NATS: mean (slowest hundredth)",
                    _format_shares(reaction.shares[phase]),
                    "",
                )
    shown.add_row(
        "processors busy",
        ", ".join(f"{phase} {busy:.0%}" for phase, busy in figures.busy.items()),
        "",
    )
    shown.add_row("seconds", f"{figures.seconds:.0f}", "")
    return shown  # fmt: skip


def _format_times(taken: list[float]) -> str:
    return f"{len(taken)}; {median(taken):.2f}, {p99(taken):.2f} s" if taken else "none"


def _format_shares(shares: Shares) -> str:
    means = zip(
        (shares.api_server, shares.nodes, shares.rest), shares.slowest_hundredth, strict=False
    )
    return ", ".join(f"{mean:.2f} ({slowest:.2f})" for mean, slowest in means) + " s"
