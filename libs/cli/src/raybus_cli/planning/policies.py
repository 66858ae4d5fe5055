"""The UpgradePolicy that an upgrade would follow. Pure.

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
    """Minimum seconds from a ready new cluster to its promotion, without pauses."""
    summary: str = ""
    problem: str | None = None
    """Why the upgrade cannot start with this policy; None if it can."""
    unused: list[str] = []
    """Parts of the policy that do not apply, because all traffic moves at once."""


def chosen(name: str, policies: list[Stored], *, in_steps: bool = True) -> PolicyPlan | None:
    """Describe the policy called `name`, or the default policy if `name` is empty.

    Returns None without either. `in_steps` says whether the traffic moves in steps or at once.
    """
    if name:
        found = [each for each in policies if each.metadata.name == name]
        if not found:
            return PolicyPlan(
                name=name, problem="it does not exist; create it, or remove the annotation"
            )
        return of(found[0], in_steps=in_steps)
    defaults = [each for each in policies if each.is_default]
    if len(defaults) > 1:
        names = ", ".join(sorted(each.metadata.name for each in defaults))
        return PolicyPlan(name=names, problem=f"leave {labels.DEFAULT_POLICY} on one of them")
    return of(defaults[0], in_steps=in_steps) if defaults else None


def of(stored: Stored, *, in_steps: bool = True) -> PolicyPlan:
    """Describe a stored policy, for traffic that moves in steps or at once.

    An invalid one has a `problem`.
    """
    try:
        found = upgrade_policy.read(stored.metadata.name, stored.spec)
    except PolicyError as problem:
        return PolicyPlan(name=stored.metadata.name, problem=str(problem))
    return PolicyPlan(
        name=found.name,
        steps=[
            StepPlan(
                weight=each.weight,
                hold_seconds=round(each.hold.total_seconds()),
                is_pause=each.pauses,
            )
            for each in found.steps
        ],
        gates=[gate(each, found) for each in found.gates],
        shortest_seconds=round(shortest(found).total_seconds()),
        summary=summary(found),
        unused=[] if in_steps else [*unused(found).values()],
    )


def gate(each: AnyGate, policy: UpgradePolicy) -> str:
    """Format a gate as a sentence."""
    if isinstance(each, WebhookGate):
        return (
            f"{each.title}: {each.host} answers Pass, before the first traffic and at each step; "
            f"else {policy.on_failure.lower()}"
        )
    if isinstance(each, PrometheusGate):
        limit = f"{'at least' if each.max is None else 'at most'} {each.limit:g}"
        return (
            f"{each.title}: {limit} by a query of {each.host} at each step; else "
            f"{policy.on_failure.lower()}"
        )
    if each.max_increase is not None:
        limit = f"at most {100 * each.max_increase:g} % above the active cluster"
    elif each.metric is Metric.ERROR_RATE:
        limit = f"at most {100 * (each.max or 0):g} %"
    else:
        limit = f"at most {each.max or 0:g} s"
    return (
        f"{each.title}: {limit}, from {each.min_requests} requests; else "
        f"{policy.on_failure.lower()}"
    )


def unused(found: UpgradePolicy) -> dict[str, str]:
    """Return the parts of a policy that do not apply if all traffic moves at once, by field.

    Such an upgrade has no weights, and the new cluster may get no requests before it is promoted.
    """
    measured = {
        f"spec.gates[{position}]": f"gate {each.title} ({NO_REQUESTS})"
        for position, each in enumerate(found.gates)
        if each not in upgrade_policy.decide_before(found)
    }
    return {
        **({"spec.steps": "steps"} if found.steps else {}),
        **measured,
        **({"spec.mirror": "mirror"} if found.mirror is not None else {}),
        **(
            {"spec.preview.header": "preview.header"}
            if found.preview.header_name is not None
            else {}
        ),
    }


def lines(plan: PolicyPlan) -> list[str]:
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
        *(f"  {each}" for each in plan.gates),
        *unused,
    ]


def summary(found: UpgradePolicy) -> str:
    """Format steps, gates and minimum duration of a policy as one line."""
    pauses = sum(each.pauses for each in found.steps)
    if not found.auto_promote and not (found.steps and found.steps[-1].pauses):
        pauses += 1  # before the promotion
    waits = [
        duration(shortest(found)),
        *([f"{pauses} pause{'s' if pauses > 1 else ''}"] if pauses else []),
    ]
    edits = "; edits apply at once" if found.applies_edits_at_once else ""
    return f"{steps(found)}; {gates(found)}; at least {' and '.join(waits)}{edits}"


def power(found: UpgradePolicy) -> list[str]:
    """State the smallest error rate that each gate on it detects with 90 % probability.

    The rate is given for `minRequests` requests and for ten times as many.
    """
    lines = list[str]()
    for each in found.gates:
        counts = (each.min_requests, 10 * each.min_requests) if isinstance(each, Gate) else ()
        rates = [
            (count, lowest_found(each, count, steps=found.stages))
            for count in counts
            if isinstance(each, Gate)
        ]
        texts = [
            f"{100 * rate:.2g} % errors in {count:,} requests"
            for count, rate in rates
            if rate is not None
        ]
        lines += (
            [f"{each.title} finds {', '.join(texts)}, with a probability of 90 %"] if texts else []
        )
    return lines


def steps(found: UpgradePolicy) -> str:
    """Format the steps of a policy as part of a sentence."""
    weights = ", ".join(str(each.weight) for each in found.steps)
    return f"steps of {weights} %" if weights else "steps of clusterUpgradeOptions"


def gates(found: UpgradePolicy) -> str:
    """Format the gates of a policy as part of a sentence."""
    return f"gates {', '.join(each.title for each in found.gates)}" if found.gates else "no gates"


def shortest(found: UpgradePolicy) -> timedelta:
    """Return the minimum time from a ready new cluster to its promotion, without pauses."""
    mirrored = found.mirror.duration if found.mirror is not None else timedelta(0)
    return sum((each.hold for each in found.steps), mirrored)


def duration(length: timedelta) -> str:
    """Format a duration for use in a sentence."""
    seconds = round(length.total_seconds())
    minutes, rest = divmod(seconds, 60)
    return (
        f"{minutes} min {rest} s"
        if minutes and rest
        else f"{minutes} min"
        if minutes
        else f"{rest} s"
    )
