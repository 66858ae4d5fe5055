"""The gates of an upgrade at its present traffic weight, as users see them. Does no I/O."""

from datetime import datetime
from typing import Final

import msgspec
from rich.text import Text

from common.upgrade import traffic_record
from common.upgrade.gates import GateOutcome
from raybus_cli.reading.snapshot import Snapshot

_STYLES: Final = {GateOutcome.PASS: "green", GateOutcome.FAIL: "bold red"}


class GateFigures(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A gate and its newest figures."""

    gate: str
    outcome: str
    since: datetime
    """Time at which the outcome last changed."""
    waits: bool
    """Whether the upgrade waits at the present step for this gate."""
    requests: int
    """Number of requests that the new cluster answered at the present traffic weight."""
    value: float | None
    """Value that the gate evaluates: a share of requests, seconds, or the result of a query."""
    limit: float | None
    text: str


class Gates(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All gates of an upgrade at its present traffic weight."""

    weight: int
    since: datetime
    """Time at which the new cluster got its present traffic weight."""
    seen_at: datetime
    """Time at which the measurements of the gates were written."""
    gates: list[GateFigures]


def read_gates(snapshot: Snapshot) -> Gates | None:
    """Return the gates of the upgrade in progress.

    The result is None if there is no upgrade, if its gates are not evaluated, or if the route
    cannot be read.
    """
    if not (snapshot.active and snapshot.pending):
        return None
    upgrade = traffic_record.upgrade_of(snapshot.record, snapshot.active, snapshot.pending)
    current = traffic_record.gates_of(upgrade)
    if current is None:
        return None
    return Gates(
        weight=current.weight,
        since=current.since,
        seen_at=current.written_at,
        gates=[
            GateFigures(
                gate=gate.gate,
                outcome=gate.outcome,
                since=gate.at,
                waits=gate.waits,
                requests=gate.figures.requests,
                value=gate.figures.value,
                limit=gate.figures.limit,
                text=gate.figures.text,
            )
            for gate in current.gates
        ],
    )


def draw(gates: Gates) -> Text:
    """Format the gates, one line each."""
    lines = [
        Text.assemble((f"{format_outcome(gate)}: ", _style(gate)), gate.text)
        for gate in gates.gates
    ]
    return Text("\n").join(lines)


def format_line(gates: Gates) -> str:
    """Format all gates as one plain line."""
    return (
        f"gates at {gates.weight} %: "
        f"{'; '.join(f'{format_outcome(gate)}: {gate.text}' for gate in gates.gates)}"
    )


def format_outcome(gate: GateFigures) -> str:
    """Return the outcome of a gate, and whether the step waits for it."""
    return f"{gate.outcome}, the step waits" if gate.waits else gate.outcome


def _style(gate: GateFigures) -> str:
    return next((style for known, style in _STYLES.items() if known == gate.outcome), "yellow")
