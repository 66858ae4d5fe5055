"""The UpgradePolicy that an upgrade would follow. Does no I/O.

A RayService follows the policy that it names, or the default of its namespace.
"""

from datetime import timedelta
from typing import Final

import msgspec

from common import labels
from common.upgrade import policy as upgrade_policy
from common.upgrade.gate_types import AnyGate, Gate, Metric, PrometheusGate, WebhookGate
from common.upgrade.gates import lowest_found
from common.upgrade.policy import PolicyError, Stored, UpgradePolicy

NO_REQUESTS: Final = "no request reaches the new cluster before; add warmUp or preview.service"


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A step of an upgrade: a traffic weight in percent, and how long it is held."""

    weight: int
    hold_seconds: int
    is_pause: bool
    """Whether the upgrade pauses at this step until the user resumes it."""


class PolicyPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What an UpgradePolicy means for an upgrade."""

    name: str
    steps: list[StepPlan] = []
    gates: list[str] = []
    shortest_seconds: int = 0
    """Minimum seconds until a ready new cluster is promoted, without pauses."""
    summary: str = ""
    problem: str | None = None
    """Why the upgrade cannot start with this policy; None if it can."""
    unused: list[str] = []
    """Parts of the policy that do not apply, because all traffic moves at once."""


def choose_policy(name: str, policies: list[Stored], *, in_steps: bool = True) -> PolicyPlan | None:
    """Describe the policy called `name`, or the default policy if `name` is empty.

    The result is None if `name` is empty and there is no default policy. `in_steps` says whether
    the traffic moves in steps or at once.
    """
    if name:
        matching = [policy for policy in policies if policy.metadata.name == name]
        if not matching:
            return PolicyPlan(
                name=name, problem="it does not exist; create it, or remove the annotation"
            )
        return describe_policy(matching[0], in_steps=in_steps)
    defaults = [policy for policy in policies if policy.is_default]
    if len(defaults) > 1:
        names = ", ".join(sorted(policy.metadata.name for policy in defaults))
        return PolicyPlan(name=names, problem=f"leave {labels.DEFAULT_POLICY} on one of them")
    return describe_policy(defaults[0], in_steps=in_steps) if defaults else None


def describe_policy(stored: Stored, *, in_steps: bool = True) -> PolicyPlan:
    """Describe a stored policy for traffic that moves in steps or, without `in_steps`, at once.

    The description of an invalid policy has a `problem`.
    """
    try:
        policy = upgrade_policy.read(stored.metadata.name, stored.spec)
    except PolicyError as problem:
        return PolicyPlan(name=stored.metadata.name, problem=str(problem))
    return PolicyPlan(
        name=policy.name,
        steps=[
            StepPlan(
                weight=step.weight,
                hold_seconds=round(step.hold.total_seconds()),
                is_pause=step.pauses,
            )
            for step in policy.steps
        ],
        gates=[describe_gate(policy_gate, policy) for policy_gate in policy.gates],
        shortest_seconds=round(compute_min_duration(policy).total_seconds()),
        summary=summarize_policy(policy),
        unused=[] if in_steps else [*find_unused_parts(policy).values()],
    )


def describe_gate(gate: AnyGate, policy: UpgradePolicy) -> str:
    """Format a gate as a sentence."""
    if isinstance(gate, WebhookGate):
        return (
            f"{gate.title}: {gate.host} answers Pass, before the first traffic and at each step; "
            f"else {policy.on_failure.lower()}"
        )
    if isinstance(gate, PrometheusGate):
        limit = f"{'at least' if gate.max is None else 'at most'} {gate.limit:g}"
        return (
            f"{gate.title}: {limit} by a query of {gate.host} at each step; else "
            f"{policy.on_failure.lower()}"
        )
    if gate.max_increase is not None:
        limit = f"at most {100 * gate.max_increase:g} % above the active cluster"
    elif gate.metric is Metric.ERROR_RATE:
        limit = f"at most {100 * (gate.max or 0):g} %"
    else:
        limit = f"at most {gate.max or 0:g} s"
    return (
        f"{gate.title}: {limit}, from {gate.min_requests} requests; else "
        f"{policy.on_failure.lower()}"
    )


def find_unused_parts(policy: UpgradePolicy) -> dict[str, str]:
    """Return the parts of a policy that do not apply if all traffic moves at once, by field.

    Such an upgrade has no traffic weights, and the new cluster may get no requests before it is
    promoted.
    """
    measured = {
        f"spec.gates[{position}]": f"gate {gate.title} ({NO_REQUESTS})"
        for position, gate in enumerate(policy.gates)
        if gate not in upgrade_policy.decide_before(policy)
    }
    return {
        **({"spec.steps": "steps"} if policy.steps else {}),
        **measured,
        **({"spec.mirror": "mirror"} if policy.mirror is not None else {}),
        **(
            {"spec.preview.header": "preview.header"}
            if policy.preview.header_name is not None
            else {}
        ),
    }


def format_plan(plan: PolicyPlan) -> list[str]:
    """Format the policy as lines of text."""
    if plan.problem is not None:
        return [f"UpgradePolicy {plan.name}: the upgrade waits: {plan.problem}"]
    unused = (
        [f"  does not apply, all traffic moves at once: {', '.join(plan.unused)}"]
        if plan.unused
        else []
    )
    return [
        f"UpgradePolicy {plan.name}: {plan.summary}",
        *(f"  {gate}" for gate in plan.gates),
        *unused,
    ]


def summarize_policy(policy: UpgradePolicy) -> str:
    """Format steps, gates and minimum duration of a policy as one line."""
    pauses = sum(step.pauses for step in policy.steps)
    if not policy.auto_promote and not (policy.steps and policy.steps[-1].pauses):
        pauses += 1  # before the promotion
    waits = [
        format_duration(compute_min_duration(policy).total_seconds()),
        *([f"{pauses} pause{'s' if pauses > 1 else ''}"] if pauses else []),
    ]
    edits = "; edits apply at once" if policy.applies_edits_at_once else ""
    return f"{format_steps(policy)}; {format_gates(policy)}; at least {' and '.join(waits)}{edits}"


def describe_power(policy: UpgradePolicy) -> list[str]:
    """Return the smallest error rates that the policy's gates detect, one line per gate.

    Only gates on the error rate have a line. A line has two rates that are detected with a
    probability of 90 %: one for `minRequests` requests, and one for ten times as many.
    """
    lines = list[str]()
    for gate in policy.gates:
        counts = (gate.min_requests, 10 * gate.min_requests) if isinstance(gate, Gate) else ()
        rates = [
            (count, lowest_found(gate, count, steps=policy.stages))
            for count in counts
            if isinstance(gate, Gate)
        ]
        texts = [
            f"{100 * rate:.2g} % errors in {count:,} requests"
            for count, rate in rates
            if rate is not None
        ]
        lines += (
            [f"{gate.title} finds {', '.join(texts)}, with a probability of 90 %"] if texts else []
        )
    return lines


def format_steps(policy: UpgradePolicy) -> str:
    """Format the steps of a policy as part of a sentence."""
    weights = ", ".join(str(step.weight) for step in policy.steps)
    return f"steps of {weights} %" if weights else "steps of clusterUpgradeOptions"


def format_gates(policy: UpgradePolicy) -> str:
    """Format the gates of a policy as part of a sentence."""
    return f"gates {', '.join(gate.title for gate in policy.gates)}" if policy.gates else "no gates"


def compute_min_duration(policy: UpgradePolicy) -> timedelta:
    """Return the minimum time until a ready new cluster is promoted, without pauses."""
    mirrored = policy.mirror.duration if policy.mirror is not None else timedelta(0)
    return sum((step.hold for step in policy.steps), mirrored)


def format_duration(seconds: float) -> str:
    """Format a duration as `5 min 30 s`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"
