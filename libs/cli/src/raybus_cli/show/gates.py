"""The gates of an upgrade at the present weight, with their figures, as commands and the page show them. Pure."""

from datetime import datetime
from typing import Final

import msgspec
from rich.text import Text

from common.upgrade import traffic_record
from common.upgrade.gates import Outcome
from raybus_cli.reading.snapshot import Snapshot

_STYLES: Final = {Outcome.PASS: "green", Outcome.FAIL: "bold red"}


class Gate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One gate, with its newest figures."""

    gate: str
    outcome: str
    since: datetime
    """When it became the outcome."""
    waits: bool
    """Whether the step waits for it."""
    requests: int
    """Of the new cluster at this weight."""
    value: float | None
    """A fraction of the requests, seconds, or the value of a query; None where there is none."""
    limit: float | None
    text: str


class Gates(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All gates at the present weight."""

    weight: int
    since: datetime
    """When the new cluster got it."""
    seen_at: datetime
    """When the figures were written."""
    gates: list[Gate]


def of(snapshot: Snapshot) -> Gates | None:
    """Return the gates of the upgrade in progress; None where none is evaluated, or the route cannot be read."""
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
            Gate(
                gate=each.gate,
                outcome=each.outcome,
                since=each.at,
                waits=each.waits,
                requests=each.figures.requests,
                value=each.figures.value,
                limit=each.figures.limit,
                text=each.figures.text,
            )
            for each in current.gates
        ],
    )


def drawn(gates: Gates) -> Text:
    """Return a line for each gate."""
    lines = [Text.assemble((f"{outcome(each)}: ", _style(each)), each.text) for each in gates.gates]
    return Text("\n").join(lines)


def line(gates: Gates) -> str:
    """Return all gates as one plain line."""
    return f"gates at {gates.weight} %: {'; '.join(f'{outcome(each)}: {each.text}' for each in gates.gates)}"


def outcome(gate: Gate) -> str:
    """Return the outcome of a gate; that a step waits for it is part of it."""
    return f"{gate.outcome}, the step waits" if gate.waits else gate.outcome


def _style(gate: Gate) -> str:
    return next((style for known, style in _STYLES.items() if known == gate.outcome), "yellow")
