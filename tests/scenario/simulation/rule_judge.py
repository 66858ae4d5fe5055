"""Checks every change of a simulated upgrade against the rules."""

from typing import TYPE_CHECKING

from common.kube.resources import RAY_CLUSTER
from scenario.simulation.configs import config_of
from support.fakes.kube import Request
from support.laws import upgrade_moments
from support.laws.upgrade_moments import Moment
from support.simulator.scripted import TICK

if TYPE_CHECKING:
    from scenario.simulation.upgrade_simulator import AnyUpgrade


class RuleJudge:
    """Keeps what the rules need from the past, and the rules that were broken."""

    def __init__(self, sim: "AnyUpgrade") -> None:
        self._sim = sim
        self.broken: list[str] = []
        self.former: dict[str, dict[tuple[int, ...], None]] = {}
        """The steps of the policies that each upgrade followed, by pending cluster."""
        self._gone_for: dict[str, float] = {}
        self._sick_at: dict[str, float] = {}
        self._were_ready: set[str] = set()
        self._moment = Moment(at=0.0)

    def note_put(self, what: str) -> None:
        """Record a PUT to Serve that begins or has ended."""

    def judge_request(self, request: Request) -> None:
        """Check a write to the API server before it is carried out."""

    def moment(self) -> Moment:
        """Return the harness as it is now."""
        now = self._sim.clock.monotonic()
        has_service = self._sim.has_service
        going = {
            each["metadata"]["name"]
            for each in self._sim.kube.all(RAY_CLUSTER)
            if "deletionTimestamp" in each["metadata"]
        }
        clusters = frozenset(self._sim.clusters) - going
        puts = {
            name: self._sim.model(name).puts[-1] for name in clusters if self._sim.model(name).puts
        }
        return Moment(
            at=now,
            active=self._sim.active if has_service else "",
            pending=self._sim.pending if has_service else "",
            clusters=clusters,
            weights=self._sim.weights if self._sim.route is not None else None,
            effective=self._sim.effective,
            capacities={name: put.get("target_capacity", 100) for name, put in puts.items()},
            configs={name: config_of(put) for name, put in puts.items()},
            recorded=self._sim.recorded_capacities(),
            seen_ready={name: self._sim.model(name).seen_ready for name in clusters},
            sick=frozenset(name for name, at in self._sick_at.items() if now - at < 30),
            surge=self._sim.surge,
            is_back=has_service and self._sim.is_rolling_back(),
            may_hurry=self._sim.may_hurry,
            follows=now - self._sim.unfollowed_at > 1,
            steps=self._sim.steps if has_service else (),
            policy=self._sim.policy if has_service else "",
            former=tuple(self.former.get(self._sim.pending, {})) if has_service else (),
            has_failed=has_service and self._sim.has_failed,
            is_aborted=has_service and self._sim.condition("UpgradeAborted")[0] == "True",
            selected=self._sim.selected(),
            is_going=self._sim.is_going or not has_service,
            gone_for=self._gone_for,
        )

    def check(self, actor: str, *, by_hand: bool = False) -> None:
        """Hold the harness against the rules, after a change."""
        after = self.moment()
        if not by_hand:
            violations = list(upgrade_moments.violations(self._moment, after))
            self.broken += [f"t+{after.at:.2f} {violation}" for violation in violations]
            for violation in violations:
                self._sim.trace.log(f"BROKEN: {violation}")
        self._moment = after
        self._sim.trace.log_state(after, actor)

    def let_pass(self) -> None:
        """Count what lasts."""
        now = self._sim.clock.monotonic()
        for name in self._sim.clusters:
            if self._sim.has_ready_head(name):
                self._were_ready.add(name)
            if self._sim.model(name).is_sick or (
                name in self._were_ready and not self._sim.has_ready_head(name)
            ):
                self._sick_at[name] = now
        are_all_up = self._sim.refusal is None and not any(
            each.lag or each.is_down for each in self._sim.services.values()
        )
        for name in self._sim.weights:
            is_gone = name not in self._sim.clusters
            self._gone_for[name] = (
                self._gone_for.get(name, 0.0) + TICK * are_all_up if is_gone else 0.0
            )
        self.check("time passes")
