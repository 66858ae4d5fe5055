"""Decide on pause, abort and stall of an upgrade from the user's controls and the deadline.

The controls are in `common.upgrade.controls`. An abort makes the spec of the active cluster the
goal, whatever the RayService asks for. An abort at the deadline is recorded in condition
UpgradeAborted with the generation of the spec. The control `promote` overrides the abort.

An upgrade is stalled if it makes no progress until its deadline (`raybus.io/progress-deadline`).
Progress is a change of a weight or a capacity, a replica or a pod that becomes ready, and a step in
the start of the growing cluster. Only durable facts count, so that a restart of the controller
forgets none. Delays that the upgrade did not cause are excluded: the interval between two steps, a
pause, and a change of the clock. A restarted pod that becomes ready again is no progress.

A cluster may lose traffic for its health once by chance. If it happens a second time, the upgrade
flaps: the deadline then counts from the first loss, until the new cluster gets more traffic than it
ever had (ADR 41).

The cause of a stall is found from the current state. The first cause stays until a more specific
cause is found, so that the condition does not flicker.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import UnsetType

from common import durations, labels
from common.api.meta import SKEW
from common.errors import Problem
from common.ray.view import head_is_ready
from common.upgrade import controls as upgrade_controls
from common.upgrade import policy as upgrade_policy
from common.upgrade.controls import OnDeadline
from common.upgrade.fields import NO_TIME
from common.upgrade.gates import GateOutcome
from common.upgrade.policy import OnFailure
from common.upgrade.service_conditions import ConditionType, Reason
from common.upgrade.traffic_record import WHOLE, Record
from service_reconciler import problems, recorded_decisions
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import promote
from service_reconciler.resources.ray_cluster import Match

MIN_FLAPS: Final = 2
"""An upgrade flaps once its clusters have lost traffic this many times because of their health.

While an upgrade flaps, its progress deadline counts from the first loss.
"""


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """What the user's controls and the deadline demand of an upgrade now."""

    abort: Problem[Reason] | None = None
    """Why the service stays on its active cluster or rolls back to it; None without an abort."""
    pause: Problem[Reason] | None = None
    """Why the upgrade must not go forward now; None without a pause."""
    stall: Problem[Reason] | None = None
    requeue_at: datetime | None = None
    """When the progress deadline is reached; None if it is not running."""


def decide(observed: Observed, *, now: datetime) -> Control:
    """Return what the user's controls and the deadline demand of a RayService's upgrade."""
    controls, is_back = observed.controls, recorded_decisions.is_rolling_back(observed.service)
    may_pause = not is_back and not controls.promotes
    pause = _find_pause(observed) if may_pause else None
    stall, due = find_stall(observed, now=now) if pause is None else (None, None)
    abort = _find_abort(observed, None if is_back else stall)
    if (
        stall is not None
        and may_pause
        and abort is None
        and controls.on_deadline is OnDeadline.PAUSE
    ):
        text = f"paused at the deadline ({labels.ON_DEADLINE}: {OnDeadline.PAUSE})"
        pause = Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, text)
    return Control(abort=abort, pause=pause, stall=stall, requeue_at=due)


def _find_pause(observed: Observed) -> Problem[Reason] | None:
    """Return why the upgrade is paused; None if it is not paused."""
    names, policy, pending = observed.names, observed.policy, observed.pending
    if not names.pending or not names.active:
        return None
    failed = failed_gate(observed)
    if failed is not None and policy is not None and policy.on_failure is OnFailure.PAUSE:
        return Problem(Reason.GATE_FAILED, f"{recorded_decisions.PAUSED_BY_GATE}{failed}")
    if observed.controls.pauses:
        return Problem(Reason.PAUSE_REQUESTED, f"paused by {labels.PAUSE}")
    if observed.next_policy is not None and (refusal := observed.next_policy.problem) is not None:
        return Problem(refusal.code, f"the upgrade waits: {refusal.message}")
    if policy is None or pending is None:
        return None
    share = observed.record.clusters.get(pending.name)
    weight = 0 if share is None else share.weight
    # All traffic moves at once, when the cluster can take it.
    if not observed.is_incremental:
        weight = WHOLE if promote.explain_not_ready(observed, pending) is None else 0
    text = upgrade_policy.pause(policy, pending, weight, observed.controls.approved)
    return None if text is None else Problem(Reason.PAUSED_BY_POLICY, text)


def failed_gate(observed: Observed) -> str | None:
    """Return the gate that the upgrade failed, with its figures; None if none failed.

    In a stepwise upgrade traffic-manager recorded the failure. Otherwise the first of these counts:
    the failure that this service recorded in condition UpgradePaused for this generation, a failed
    warm-up, a failed gate.
    """
    if observed.is_incremental:
        return None if observed.upgrade is None else observed.upgrade.failed or None
    recorded = recorded_decisions.failed_gate(observed.service)
    if recorded is not None and observed.pending is not None:
        return recorded
    if observed.warm_up is not None and observed.warm_up.problem:
        return f"warm-up: {observed.warm_up.problem}"
    return next(
        (result.text for result in observed.answers.values() if result.outcome is GateOutcome.FAIL),
        None,
    )


def _find_abort(observed: Observed, stall: Problem[Reason] | None) -> Problem[Reason] | None:
    """Return why the upgrade is aborted; None if it is not aborted.

    Nothing is aborted if the active cluster already matches the spec.
    """
    active, controls = observed.active, observed.controls
    if (
        active is None
        or observed.match(active) is Match.FULL
        or observed.serving in {observed.names.pending} - {""}
    ):
        return None
    generation = observed.service.metadata.generation
    where = f"RayCluster {active.name}"
    if controls.aborts:
        text = (
            f"Generation {generation} is aborted by {labels.ABORT}; the service stays on {where}."
        )
        return Problem(Reason.ABORT_REQUESTED, text)
    if controls.promotes:
        return None
    text = f"The upgrade to generation {generation} is aborted; the service stays on {where}."
    recorded = recorded_decisions.problem_of(observed.service, ConditionType.UPGRADE_ABORTED)
    is_final = recorded is not None and recorded.code in {
        Reason.PROGRESS_DEADLINE_EXCEEDED,
        Reason.GATE_FAILED,
    }
    if (abort := recorded if is_final else _build_gate_abort(observed, text)) is not None:
        return abort
    # A cluster that does not serve is no target for a rollback.
    if (
        stall is None
        or controls.on_deadline is not OnDeadline.ROLLBACK
        or not head_is_ready(active.cluster)
    ):
        return None
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, f"{text} {stall.message}")


def _build_gate_abort(observed: Observed, text: str) -> Problem[Reason] | None:
    """Return the abort of an upgrade whose gate failed.

    None if the policy does not say rollback. None also if `rayClusterConfig` has changed since the
    gate failed, because the gate then failed for an earlier spec. If another part of the spec has
    changed, such as the Serve config, the reason is EarlierGateFailed: the failed cluster is
    deleted, and a new cluster is tried with the new spec. Otherwise the reason is GateFailed, and
    the message begins with `text`.
    """
    policy, pending, failed = observed.policy, observed.pending, failed_gate(observed)
    if (
        policy is None
        or pending is None
        or failed is None
        or policy.on_failure is not OnFailure.ROLLBACK
    ):
        return None
    if observed.match(pending) is Match.DIFFERENT:
        return None
    has_goal = pending.given in {None, observed.service.spec.serve_config_v2}
    if recorded_decisions.prior_gate_failed(observed.service) or not has_goal:
        text = (
            f"RayCluster {pending.name} failed with an earlier spec; a new one starts when it is "
            "gone."
        )
        return Problem(Reason.EARLIER_GATE_FAILED, f"{text} The gate {failed}")
    return Problem(Reason.GATE_FAILED, f"{text} The gate {failed}")


def find_stall(
    observed: Observed, *, now: datetime
) -> tuple[Problem[Reason] | None, datetime | None]:
    """Return why the upgrade is stalled and, if it is not, when its deadline is reached.

    A rollback can stall as well. Both results are None if no upgrade is in progress or if the
    pending cluster is about to take over.
    """
    names, pending, controls = observed.names, observed.pending, observed.controls
    is_back = recorded_decisions.is_rolling_back(observed.service)
    is_on = names.pending and observed.active is not None and observed.serving != names.pending
    needs_time = observed.is_incremental or is_back
    if not is_on or not (
        needs_time or pending is None or promote.explain_not_ready(observed, pending) is not None
    ):
        return None, None
    growing = observed.active if is_back else pending
    is_kept = controls.on_deadline is OnDeadline.PAUSE and not controls.promotes and not is_back
    recorded = recorded_decisions.problem_of(observed.service, ConditionType.UPGRADE_STALLED)
    if recorded is not None and is_kept:
        return recorded, None
    due = progress_since(observed, growing, now=now) + controls.deadline
    if now < due:
        return None, due
    cause = _find_stall_cause(observed, growing, now=now)
    if recorded is not None and cause.code in {recorded.code, Reason.PROGRESS_DEADLINE_EXCEEDED}:
        return recorded, None
    text = (
        f"No progress for {durations.text(controls.deadline)} ({labels.PROGRESS_DEADLINE}): "
        f"{cause.message}"
    )
    return Problem(cause.code, text), None


def progress_since(observed: Observed, growing: ClusterView | None, *, now: datetime) -> datetime:
    """Return when the upgrade last made progress; `now` if that is unknown.

    `growing` is the cluster that gets traffic. A timestamp in the future was written before the
    clock was set back, so its real time is unknown.
    """
    service = observed.service
    is_upgrading = recorded_decisions.holds(service, ConditionType.UPGRADE_IN_PROGRESS)
    if not is_upgrading or recorded_decisions.holds(service, ConditionType.UPGRADE_PAUSED):
        return now
    set_at = [observed.clock_set_at] if observed.clock_set_at is not None else []
    kinds = (
        ConditionType.UPGRADE_IN_PROGRESS,
        ConditionType.UPGRADE_PAUSED,
        ConditionType.ROLLBACK_IN_PROGRESS,
    )
    decisions = [
        moment
        for kind in kinds
        if (moment := recorded_decisions.changed_at(service, kind)) is not None
    ]
    wait = _get_hold_time(observed)
    if (flapping := flaps_since(observed)) is not None:
        return max((*decisions, flapping + wait, *set_at))
    record = observed.record if observed.is_incremental else Record()
    moved = [share.same_since for share in record.clusters.values() if share.same_since is not None]
    changed = [record.changed_at] if record.changed_at is not None else []
    moments = [*decisions, *changed, *moved, *_list_progress_times(growing)]
    past = [moment for moment in moments if moment <= now + SKEW]
    if len(past) < len(moments) and not set_at:
        return now
    waited = [moment + wait for moment in moved if moment <= now + SKEW]
    waited += [moment for moment in [_get_mirror_end(observed)] if moment is not None]
    return max((*past, *waited, *set_at))


def _get_mirror_end(observed: Observed) -> datetime | None:
    """Return when the mirroring before the first traffic ends; None without mirroring."""
    policy, route = observed.policy, observed.side_routes.mirror
    if policy is None or policy.mirror is None or route is None:
        return None
    since = route.metadata.creation_timestamp
    return None if since is None else since + policy.mirror.duration


def _get_hold_time(observed: Observed) -> timedelta:
    """Return how long the user's settings keep the traffic at its present weight.

    This is the interval between steps, or the hold or bake of the policy at this weight.
    """
    service, policy = observed.service, observed.policy
    interval = upgrade_controls.interval_of(service)
    if policy is None or recorded_decisions.is_rolling_back(service):
        return interval
    share = observed.record.clusters.get(observed.names.pending)
    weight = 0 if share is None else share.weight
    if weight == WHOLE:
        return policy.bake
    if not policy.steps:
        return interval
    step = upgrade_policy.step_at(policy, weight)
    return NO_TIME if step is None else step.hold


def flaps_since(observed: Observed) -> datetime | None:
    """Return when a cluster first lost traffic for its health; None if the upgrade does not flap.

    An upgrade flaps if clusters lost traffic at least `MIN_FLAPS` times since the last progress. A
    rollback starts a new count, because an earlier loss is the reason for the rollback.
    """
    if (upgrade := observed.upgrade) is None:
        return None
    since, count = upgrade.shed_at, upgrade.sheds
    if isinstance(since, UnsetType) or isinstance(count, UnsetType) or count < MIN_FLAPS:
        return None
    back = recorded_decisions.changed_at(observed.service, ConditionType.ROLLBACK_IN_PROGRESS)
    return (
        None
        if recorded_decisions.is_rolling_back(observed.service)
        and back is not None
        and back >= since
        else since
    )


def _list_progress_times(view: ClusterView | None) -> Iterator[datetime]:
    """Yield when a cluster was created and when its conditions, pods and replicas became ready.

    Replicas of failed applications do not count.
    """
    if view is None:
        return
    if view.cluster.metadata.creation_timestamp is not None:
        yield view.cluster.metadata.creation_timestamp
    yield from (
        condition.last_transition_time
        for condition in view.cluster.status.conditions
        if condition.status == "True"
    )
    for pod in view.pods:
        is_restarted = any(status.restart_count for status in pod.status.container_statuses)
        ready = pod.condition("Ready")
        if (
            ready is not None
            and ready.status == "True"
            and ready.last_transition_time
            and not is_restarted
        ):
            yield ready.last_transition_time
    details = view.declared
    for app in details.applications.values() if details is not None else ():
        if not app.has_failed:
            started = (
                replica.start_time_s
                for deployment in app.deployments.values()
                for replica in deployment.running
            )
            yield from (
                datetime.fromtimestamp(seconds, UTC) for seconds in started if seconds is not None
            )


def _find_stall_cause(
    observed: Observed, growing: ClusterView | None, *, now: datetime
) -> Problem[Reason]:
    problem = problems.of_cluster(observed, growing, now=now) or problems.of_gateway(
        observed, now=now
    )
    if problem is not None:
        return problem
    if growing is None:
        return _build_unmoved_problem(f"RayCluster {observed.names.pending} is not there yet")
    if not head_is_ready(growing.cluster):
        return _build_unmoved_problem(f"the head pod of RayCluster {growing.name} is not ready")
    if not observed.is_incremental and (waits := problems.of_gates(observed)) is not None:
        return waits
    if (why := promote.explain_not_ready(observed, growing)) is not None:
        return Problem(Reason.APPLICATION_NOT_READY, f"RayCluster {growing.name}: {why}")
    return (
        _find_traffic_cause(observed, growing, now=now)
        if observed.is_incremental
        else _build_unmoved_problem("nothing changes")
    )


def _find_traffic_cause(
    observed: Observed, growing: ClusterView, *, now: datetime
) -> Problem[Reason]:
    is_back = growing is observed.active
    if (
        waits := problems.of_parity(observed, is_back=is_back, now=now)
        or problems.of_gates(observed)
    ) is not None:
        return waits
    if (since := flaps_since(observed)) is not None:
        text = f"traffic left a cluster for its health repeatedly since {since:%H:%M:%S}"
        return Problem(Reason.APPLICATION_NOT_READY, text)
    if (trouble := problems.route_trouble(observed)) is not None:
        return Problem(Reason.GATEWAY_NOT_READY, trouble.message)
    options = observed.service.raw_upgrade_options
    if 0 in {options.get("maxSurgePercent"), options.get("stepSizePercent")}:
        return _build_unmoved_problem(
            "maxSurgePercent and stepSizePercent must both be greater than 0"
        )
    return _build_unmoved_problem("the traffic does not move")


def _build_unmoved_problem(why: str) -> Problem[Reason]:
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, why)
