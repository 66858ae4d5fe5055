"""How an UpgradePolicy bears on the next step of an upgrade: the weight that is next, what holds it, and which gate failed.

A step lasts for its `hold`, and until each gate was observed to hold since the step began; what cannot be judged yet is waited for. A gate
that fails is evidence like that of health (ADR 11): with `onFailure: Rollback` all traffic leaves the new cluster in one write, and the
failure is recorded in that same write, for what was observed is forgotten with the process.

A weight between two steps, where capacity allowed no more, is no step: nothing is held or judged there.
"""

from datetime import timedelta

import msgspec
from msgspec import UNSET

from common.ray.request_metrics import Sample
from common.upgrade import gates, traffic_record
from common.upgrade import policy as upgrade_policy
from common.upgrade.controls import Controls, Policy
from common.upgrade.gates import Outcome
from common.upgrade.policy import OnFailure, UpgradePolicy
from common.upgrade.traffic_record import Share
from traffic_manager.observed import Observed, Window

class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the gates came to so far."""

    failed: str | None = None
    """The gate that failed, with its figures."""
    lacking: str | None = None
    """The gates that cannot be judged yet, without figures: it is recorded, and the figures change all the time."""
    note: str | None = None
    """The same with figures."""


class Progression(msgspec.Struct, frozen=True, kw_only=True):
    """How far an upgrade may go now."""

    policy: Policy
    hold: str | None = None
    """Why the way forward is closed."""
    judged: Judgement = Judgement()
    leaves: bool = False
    """Whether all traffic leaves the pending cluster."""


def of(observed: Observed, found: UpgradePolicy, policy: Policy, share: Share, controls: Controls) -> Progression:
    """Return how an UpgradePolicy bears on an upgrade with this share of the pending cluster."""
    held = traffic_record.upgrade_of(observed.record, observed.active_name, observed.pending_name)
    noted = None if held is None else held.failed or None
    weight, step = share.weight, upgrade_policy.step_at(found, share.weight)
    warm_up = observed.warm_up if weight == 0 else None
    failed = noted or (f"warm-up: {warm_up.problem}" if warm_up is not None and warm_up.problem else None)
    judged = Judgement(failed=failed) if failed is not None else judge(found, observed.window, weight)
    holds = (
        judged.failed,
        upgrade_policy.pause(found, observed.pending_name, weight, controls.approved),
        None if warm_up is None else warm_up.lacking,
        judged.note,
    )
    if found.steps:
        is_held = step is not None and (step.weight == weight or share.shed_at is not UNSET)
        interval = step.hold if step is not None and is_held else timedelta(0)
        size = upgrade_policy.next_weight(found, weight) - weight
        policy = msgspec.structs.replace(policy, step=size, interval=interval)
    return Progression(
        policy=msgspec.structs.replace(policy, bake=found.bake),
        hold=next((each for each in holds if each is not None), None),
        judged=judged,
        leaves=judged.failed is not None and found.on_failure is OnFailure.ROLLBACK,
    )


def judge(found: UpgradePolicy, window: Window | None, weight: int) -> Judgement:
    """Return what the gates came to since the weight last changed; without traffic there is nothing to judge."""
    if weight == 0 or not found.gates:
        return Judgement()
    none: Sample = {}
    active, pending = (none, none) if window is None else (window.active, window.pending)
    results = [gates.evaluate(each, active, pending) for each in found.gates]
    failed = next((each.text for each in results if each.outcome is Outcome.FAIL), None)
    unknown = [each for each in results if each.outcome is Outcome.INCONCLUSIVE]
    step = upgrade_policy.step_at(found, weight)
    if failed is not None or not unknown or (found.steps and (step is None or step.weight != weight)):
        return Judgement(failed=failed)
    lacking = ", ".join(each.gate.title for each in unknown)
    return Judgement(lacking=lacking, note="; ".join(each.text for each in unknown))
