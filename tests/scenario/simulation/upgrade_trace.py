"""The trace of a simulated upgrade: what changed, by which service, and why."""

from typing import Any

from support.laws.upgrade_moments import Moment
from support.simulator.simulator import Simulator, trace_of_writes


class UpgradeTrace:
    """Lines of text, each with its moment."""

    def __init__(self, sim: Simulator, *, is_traced: bool) -> None:
        self._sim = sim
        self.is_traced = is_traced
        """Whether every change of the state becomes a line."""
        self.lines: list[tuple[float, str]] = []
        self.notes: list[Any] = []
        """The log of the services since the clock last moved, newest last."""
        self._logged_state = ""
        self._logged_conditions: dict[str, str] = {}

    def log(self, what: str) -> None:
        """Put a line into the trace."""
        self.lines.append((self._sim.clock.monotonic(), what))

    def forget(self) -> None:
        """Begin the trace here."""
        self.lines.clear()
        self._sim.writes.lines.clear()

    def rendered(self) -> str:
        """Return the trace, without the random parts of names."""
        text = trace_of_writes(self._sim, self.lines)
        lines = [line.partition("\t") for line in text.splitlines()]
        return "".join(f"{what:<58}{why}".rstrip() + "\n" for what, _, why in lines)

    def log_state(self, m: Moment, actor: str) -> None:
        """Put the state after a change into the trace, with the plan of the service that acted."""
        if not self.is_traced:
            return
        shares = [
            f"{name} {m.capacities.get(name, 0)}/{(m.weights or {}).get(name, '-')}"
            for name in (m.active, m.pending)
            if name
        ]
        state = ", ".join(shares) or "no cluster"
        if m.weights is None and m.selected:
            state += f", selected {m.selected}"
        if state != self._logged_state:
            self._logged_state = state
            plans = (each["note"] for each in reversed(self.notes) if each["event"] == "planned")
            note = next(plans, "") if actor in self._sim.services else ""
            note = "; ".join(dict.fromkeys(note.split("; ")))
            self.log(f"{state}\t{actor}: {note}".rstrip(" :"))
        self._log_conditions()

    def _log_conditions(self) -> None:
        if not self._sim.has_service:
            return
        conditions = {
            each["type"]: f"{each['status']}, {each['message']}"
            for each in self._sim.status.get("conditions", [])
        }
        for kind in sorted(conditions.keys() | self._logged_conditions.keys()):
            if conditions.get(kind) != self._logged_conditions.get(kind):
                self.log(f"  {kind}: {conditions.get(kind, 'is not there any more')}")
        self._logged_conditions = conditions
