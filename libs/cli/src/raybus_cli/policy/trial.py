"""The gates of a policy, evaluated with what the clusters of a RayService have answered since their nodes began. Pure."""

from collections.abc import Mapping

import msgspec

from common.ray.request_metrics import Sample
from common.upgrade import gates
from common.upgrade.gate_types import AnyGate, PrometheusGate, WebhookGate
from common.upgrade.gates import Outcome, Result
from common.upgrade.policy import UpgradePolicy


class GateResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of one gate."""

    gate: str
    outcome: Outcome
    requests: int
    value: float | None
    """A fraction of the requests, seconds, or what Prometheus answered."""
    limit: float | None
    route: str
    """Empty for all requests."""
    text: str


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A pod without metrics that can be read."""

    pod: str
    problem: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a cluster have answered."""

    cluster: str
    sample: Sample
    unread: tuple[Unread, ...] = ()


class Trial(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The outcome of each gate."""

    namespace: str
    service: str
    policy: str
    active: str
    """The cluster to compare with."""
    pending: str
    """The cluster that is judged; the active one where there is no upgrade."""
    gates: list[GateResult]
    unread: list[Unread]

    @property
    def has_failed(self) -> bool:
        """Return whether a gate fails."""
        return any(each.outcome is Outcome.FAIL for each in self.gates)


def evaluate(
    namespace: str,
    service: str,
    policy: UpgradePolicy,
    active: Measured,
    pending: Measured,
    answers: Mapping[PrometheusGate, Result],
) -> Trial:
    """Return the outcome of each gate; `answers` are those of Prometheus."""
    found = [_evaluated(each, active, pending, answers) for each in policy.gates]
    return Trial(
        namespace=namespace,
        service=service,
        policy=policy.name,
        active=active.cluster,
        pending=pending.cluster,
        gates=[
            GateResult(
                gate=each.gate.title,
                outcome=each.outcome,
                requests=each.requests,
                value=each.value,
                limit=each.limit,
                route=each.route,
                text=each.text,
            )
            for each in found
        ],
        unread=[*active.unread, *(each for each in pending.unread if each not in active.unread)],
    )


def _evaluated(gate: AnyGate, active: Measured, pending: Measured, answers: Mapping[PrometheusGate, Result]) -> Result:
    if isinstance(gate, PrometheusGate):
        return answers[gate]
    if isinstance(gate, WebhookGate):
        text = f"{gate.title}: raybus asks {gate.host} during an upgrade alone"
        return Result(gate=gate, outcome=Outcome.INCONCLUSIVE, text=text)
    return gates.evaluate(gate, active.sample, pending.sample)


def lines(trial: Trial) -> list[str]:
    """Return a trial as text, a line for each gate."""
    compared = (
        f"RayCluster {trial.active} with itself: there is no upgrade"
        if trial.active == trial.pending
        else f"RayCluster {trial.pending} with {trial.active}"
    )
    head = f"UpgradePolicy {trial.policy} compares {compared}"
    return [head, *(f"  {each.outcome}: {each.text}" for each in trial.gates), *([] if trial.gates else ["  no gates"])]
