"""Effect of an UpgradePolicy on an upgrade: its next weight, its holds and its failed gate.

A step lasts for its `hold` and until every gate has passed since the step began. The step waits for
gates without a verdict. A failed gate counts against the new cluster like bad health (ADR 41): with
`onFailure: Rollback` all traffic leaves the new cluster in one write. The same write records the
failure, because a restart of this process loses its observations.

If capacity is lacking, a move of traffic may stop below the weight of the next step. No hold or
gate applies there. The user may also edit the policy meanwhile. The traffic record therefore has
the target weight of the last move (ADR 28). If an edit removes the step at the current weight, the
weight still counts as a step: the gates must pass there, and no edit takes traffic back.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec
from msgspec import UNSET

from common import untrusted
from common.annotation_record import MAX_TEXT_LENGTH
from common.api.gateway import mirror_problem
from common.upgrade import gate_types, gates, weighted_route
from common.upgrade import policy as upgrade_policy
from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from common.upgrade.gate_types import AnyGate, Gate, WebhookGate
from common.upgrade.gates import GateOutcome, GateResult, Window
from common.upgrade.policy import OnFailure, UpgradePolicy
from traffic_manager.migration.state import ClusterState, Standing
from traffic_manager.observed import Observed
from traffic_manager.resources import gateway_api


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The gate results of an upgrade so far.

    All fields except `note` go into the traffic record.
    """

    failed: str | None = None
    """The failed gate with its figures; None if none failed."""
    lacking: str | None = None
    """Gates for which the step waits; None if the step waits for something else or for nothing."""
    has_mirrored: bool = False
    """Whether requests were mirrored for as long as the policy asks."""
    aim: int | None = None
    """Target weight of the next move of traffic; None if the policy has no steps."""
    note: str | None = None
    """Why the step waits for its gates, with the counts and values measured so far."""
    results: tuple[GateResult, ...] = ()
    """Results of the evaluated gates, in the policy's order."""


class Progression(msgspec.Struct, frozen=True, kw_only=True):
    """How far an UpgradePolicy lets an upgrade go now."""

    policy: Policy
    hold: str | None = None
    """Why the upgrade may not go forward; None if it may."""
    judged: Judgement | None = None
    """Gate results to write to the traffic record; None without an UpgradePolicy."""
    leaves: bool = False
    """Whether all traffic leaves the pending cluster, because a gate failed."""
    mirrors: bool = False
    """Whether requests are to be mirrored to the pending cluster now."""


def decide_progression(
    observed: Observed,
    user_policy: UpgradePolicy,
    policy: Policy,
    pending: ClusterState,
    *,
    now: datetime,
) -> Progression:
    """Return how far `user_policy`, the UpgradePolicy, lets an upgrade go now.

    `policy` is the speed of the upgrade without an UpgradePolicy, and `pending` the state of the
    pending cluster.
    """
    upgrade = observed.upgrade
    weight, step = pending.weight, upgrade_policy.step_at(user_policy, pending.weight)
    aim = None if upgrade is None else upgrade.aim or None
    is_between = not upgrade_policy.is_stop(user_policy, weight, aim)
    failed = None if upgrade is None else upgrade.failed or None
    if (
        failed is None
        and weight == 0
        and observed.warm_up is not None
        and observed.warm_up.problem is not None
    ):
        # the text comes from a pod, so its length is limited before it is recorded
        failed = untrusted.clipped(f"warm-up: {observed.warm_up.problem}", MAX_TEXT_LENGTH)
    judged = (
        Judgement(failed=failed)
        if failed is not None or observed.candidate is None
        else judge(user_policy, observed.window, weight, observed.answers, is_between=is_between)
    )
    has_mirrored, mirroring = _check_mirroring(
        observed, user_policy, is_over=upgrade is not None and bool(upgrade.mirrored), now=now
    )
    following = upgrade_policy.next_weight(user_policy, weight, aim) if user_policy.steps else None
    judged = msgspec.structs.replace(judged, has_mirrored=has_mirrored, aim=following)
    if following is not None:
        interval = (
            step.hold if step is not None and (not is_between or pending.was_shed) else timedelta(0)
        )
        policy = msgspec.structs.replace(policy, step=following - weight, interval=interval)
    is_before = weight == 0 and pending.proven > 0
    warm_up = observed.warm_up.lacking if is_before and observed.warm_up is not None else None
    unasked = [
        gate.title
        for gate in gate_types.asking(user_policy.gates, is_before=True)
        if gate not in observed.answers
    ]
    changing = f"RayCluster {observed.pending_name} does not run its Serve config yet"
    holds = (
        judged.failed,
        changing if observed.candidate is None and weight > 0 else None,
        None
        if observed.pending is None
        else upgrade_policy.pause(
            user_policy, observed.pending, weight, observed.controls.approved
        ),
        warm_up,
        mirroring if is_before else None,
        f"{unasked[0]} is asked once the cluster can serve" if is_before and unasked else None,
    )
    hold = next((hold for hold in holds if hold is not None), None)
    if hold is not None or (
        pending.moved_at is not None and now < pending.moved_at + policy.interval
    ):
        judged = msgspec.structs.replace(judged, lacking=None)
    note = judged.note if is_before or weight > 0 else None
    return Progression(
        policy=msgspec.structs.replace(policy, bake=user_policy.bake),
        hold=note if hold is None else hold,
        judged=judged,
        leaves=judged.failed is not None and user_policy.on_failure is OnFailure.ROLLBACK,
        mirrors=is_before
        and mirroring is not None
        and not has_mirrored
        and judged.failed is None
        and warm_up is None,
    )


def decide_standing(
    observed: Observed, progression: Progression, direction: Direction, weight: int
) -> tuple[Standing, str]:
    """Return whether the pending cluster has passed its UpgradePolicy, and if not, why.

    Without an UpgradePolicy the cluster counts as proven. With an UpgradePolicy it is unproven
    during a rollback, because the upgrade to this cluster was given up.
    """
    policy, upgrade, judged = observed.policy, observed.upgrade, progression.judged
    if policy is None or not (policy.steps or policy.gates) or observed.controls.promotes:
        return Standing.PROVEN, ""
    failed = (None if judged is None else judged.failed) or (
        None if upgrade is None else upgrade.failed
    )
    if failed:
        return Standing.FAILED, f"the pending cluster has failed the gate {failed}"
    if direction is Direction.BACK:
        return Standing.UNPROVEN, "the upgrade to the pending cluster is being rolled back"
    if weight == 0 or progression.hold is not None:
        why = progression.hold or "it has had no traffic"
        return Standing.UNPROVEN, f"the pending cluster has not passed its UpgradePolicy: {why}"
    return Standing.PROVEN, ""


def judge(
    user_policy: UpgradePolicy,
    window: Window | None,
    weight: int,
    answers: Mapping[AnyGate, GateResult] | None = None,
    *,
    is_between: bool = False,
) -> Judgement:
    """Return the results of all gates since the weight of the pending cluster last changed.

    `window` has the metrics, and `answers` the results of gates that send requests. If the weight
    is between two steps (`is_between`), the upgrade waits for no gate. While the weight is 0, the
    upgrade waits only for webhook gates that were called. At weight 0, metrics of mirrored requests
    can fail a gate, but the upgrade does not wait until they pass it.
    """
    results = tuple(
        result
        for gate in user_policy.gates
        if (result := _evaluate_gate(gate, window, weight, answers or {}, steps=user_policy.stages))
        is not None
    )
    failed = next((result.text for result in results if result.outcome is GateOutcome.FAIL), None)
    unknown = [
        result
        for result in results
        if result.outcome is GateOutcome.INCONCLUSIVE
        and (weight > 0 or isinstance(result.gate, WebhookGate))
    ]
    if failed is not None or not unknown or is_between:
        return Judgement(failed=failed, results=results)
    lacking = ", ".join(result.gate.title for result in unknown)
    return Judgement(
        lacking=lacking, note="; ".join(result.text for result in unknown), results=results
    )


def _evaluate_gate(
    gate: AnyGate,
    window: Window | None,
    weight: int,
    answers: Mapping[AnyGate, GateResult],
    *,
    steps: int,
) -> GateResult | None:
    """Return the result of a gate; None if the gate is not evaluated yet."""
    if isinstance(gate, Gate):
        is_early = weight == 0 and window is None
        return None if is_early else gates.within(gate, window or gates.NO_WINDOW, steps)
    return answers.get(gate) or (None if weight == 0 else gates.unanswered(gate))


def _check_mirroring(
    observed: Observed, user_policy: UpgradePolicy, *, is_over: bool, now: datetime
) -> tuple[bool, str | None]:
    """Return whether mirroring is complete, and why the first move of traffic still waits for it.

    `is_over` means that the traffic record shows mirroring as complete.
    """
    asked, route = user_policy.mirror, observed.side_routes.mirror
    if asked is None or weighted_route.is_users(observed.service):
        return False, None
    is_unsupported = mirror_problem(observed.gateway_class, observed.route) is not None
    if is_over or is_unsupported or (route is not None and gateway_api.copies_all(route)):
        return True, None if route is None else "the route of mirrored requests goes first"
    since = None if route is None else route.metadata.creation_timestamp
    if since is None:
        return False, f"{asked.percent} percent of the requests are to be mirrored"
    share = observed.record.clusters.get(observed.pending_name)
    if share is not None and share.config_at is not UNSET:
        since = max(since, share.config_at)
    until = since + asked.duration
    return now >= until, f"requests are mirrored until {until:%H:%M:%S}"
