"""The conditions of a RayService except Suspending and Suspended.

UpgradePaused, UpgradeStalled, UpgradeAborted and InvalidAnnotations exist only while they are
needed, and RollbackInProgress only during a rollback or after a suspend. UpgradePaused stays with
status False after a pause until the upgrade ends, because the progress deadline counts from the end
of the pause. Spec rayservice §8.8, §13.2, §13.3, §15; acceptance 14, 15, 77, 83.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import conditions, durations
from common.api.meta import SKEW, Condition, whole_seconds
from common.conditions import ConditionUpdate
from common.upgrade import gate_record, traffic_record
from common.upgrade.gates import GateOutcome
from common.upgrade.service_conditions import ConditionType, Reason
from common.upgrade.traffic_record import RecordedUpgrade
from service_reconciler.observed import Names, Observed
from service_reconciler.problems import ServiceProblem
from service_reconciler.promotion import rollback
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.rollback import PendingChange, RollbackDecision
from service_reconciler.reasons import RAY_SERVICE_INITIALIZING, caused
from service_reconciler.resources import ray_cluster
from service_reconciler.resources.ray_cluster import Match

INITIALIZING_AGAIN: Final = "RayService is initializing after resuming from suspend."
HAS_ENDPOINTS = "Number of serve endpoints is greater than 0"
NO_ENDPOINTS = "Number of serve endpoints dropped to 0"
BOTH: Final = "Both active and pending Ray clusters exist"
ACTIVE_ONLY: Final = "Active Ray cluster exists and no pending Ray cluster"
NO_ACTIVE: Final = (
    "No active Ray cluster exists, and the RayService is not initializing. "
    "Please open a GitHub issue in the KubeRay repository."
)
CONTROLS = (
    ConditionType.UPGRADE_PAUSED,
    ConditionType.UPGRADE_STALLED,
    ConditionType.UPGRADE_ABORTED,
    ConditionType.UPGRADE_GATES_PASSED,
    ConditionType.INVALID_ANNOTATIONS,
    ConditionType.CLUSTER_SPEC_IGNORED,
)
PAUSE_OVER = "The upgrade goes on."
_GATES: Final = {
    GateOutcome.PASS: ("True", Reason.GATES_PASSED),
    GateOutcome.FAIL: ("False", Reason.GATE_FAILED),
    GateOutcome.INCONCLUSIVE: ("Unknown", Reason.GATE_INCONCLUSIVE),
}
SECOND: Final = timedelta(seconds=1)


class Assessment(msgspec.Struct, frozen=True, kw_only=True):
    """The findings and decisions of one reconcile, from which status and Events follow."""

    observed: Observed
    now: datetime
    control: Control
    decision: RollbackDecision
    names: Names
    """The cluster names after the Services have been switched."""
    problem: ServiceProblem | None

    @property
    def cause(self) -> str | None:
        """Why the service or its upgrade makes no progress; None if nothing holds it up."""
        return (
            "; ".join(
                problem.message
                for problem in (self.control.pause, self.problem)
                if problem is not None
            )
            or None
        )


def compute_conditions(assessment: Assessment) -> list[Condition]:
    """Return the conditions of the RayService after the plan is executed."""
    observed, now = assessment.observed, assessment.now
    generation, before = observed.service.metadata.generation, observed.service.status.conditions
    now_ready = ready(assessment)
    base = conditions.without(before, ConditionType.READY) if starts_anew(assessment) else before
    if now_ready.reason is Reason.INITIALIZING_TIMEOUT:
        return conditions.updated(base, now_ready, generation=generation, now=now)
    updates, back = [now_ready], assessment.decision.rollback
    if (upgrade := upgrade_in_progress(assessment)) is not None:
        updates.append(upgrade)
    was_on = conditions.is_true(before, ConditionType.ROLLBACK_IN_PROGRESS)
    if back is None and was_on:
        base = conditions.without(base, ConditionType.ROLLBACK_IN_PROGRESS)
    elif back is not None and not was_on:
        reason = Reason.DESIRED_CLUSTER_SPEC_CHANGED
        updates.append(ConditionUpdate(ConditionType.ROLLBACK_IN_PROGRESS, "True", reason, back))
    wanted = {update.type: update for update in _build_control_updates(assessment)}
    kept = conditions.updated(base, *updates, generation=generation, now=now)
    kept = conditions.without(kept, *(kind for kind in CONTROLS if kind not in wanted))
    for update in wanted.values():
        kept = conditions.updated(
            kept, update, generation=generation, now=_get_transition_time(kept, update, now=now)
        )
    return kept


def ready(assessment: Assessment) -> ConditionUpdate:
    """Return condition Ready, which says whether the service has endpoints."""
    observed, names, kind = assessment.observed, assessment.names, ConditionType.READY
    old, limit = (
        conditions.find(observed.service.status.conditions, kind),
        observed.initializing_limit,
    )
    cause = None if names.active and names.pending else assessment.cause
    if observed.endpoints > 0:
        return ConditionUpdate(
            kind, "True", Reason.NON_ZERO_SERVE_ENDPOINTS, caused(HAS_ENDPOINTS, cause)
        )
    if old is None or _started_invalid(old, names):
        return ConditionUpdate(
            kind, "False", Reason.INITIALIZING, caused(RAY_SERVICE_INITIALIZING, cause)
        )
    if old.reason != Reason.INITIALIZING:
        return ConditionUpdate(
            kind, "False", Reason.ZERO_SERVE_ENDPOINTS, caused(NO_ENDPOINTS, cause)
        )
    spent = assessment.now - old.last_transition_time
    if limit is not None and spent >= limit:
        text = (
            "RayService failed to become ready within the configured timeout of "
            f"{durations.text(limit)}. "
            f"Time spent initializing: {durations.text(spent)}"
        )
        return ConditionUpdate(kind, "False", Reason.INITIALIZING_TIMEOUT, text)
    text = INITIALIZING_AGAIN if _began_with_resume(assessment, old) else RAY_SERVICE_INITIALIZING
    text = caused(text, cause)
    return ConditionUpdate(kind, "False", Reason.INITIALIZING, text)


def _began_with_resume(assessment: Assessment, ready: Condition) -> bool:
    """Return whether condition Ready was written when the suspended service was resumed.

    The resume changes conditions Ready and Suspended at the same time.
    """
    before = assessment.observed.service.status.conditions
    suspended = conditions.find(before, ConditionType.SUSPENDED)
    return (
        suspended is not None
        and suspended.reason == Reason.RESUMED
        and suspended.last_transition_time == ready.last_transition_time
    )


def starts_anew(assessment: Assessment) -> bool:
    """Return whether the initializing timeout starts now.

    The timeout starts after an invalid spec was corrected, or after the clock was set back.
    """
    observed, limit = assessment.observed, assessment.observed.initializing_limit
    old = conditions.find(observed.service.status.conditions, ConditionType.READY)
    if old is None or observed.endpoints > 0:
        return False
    is_ahead = limit is not None and old.last_transition_time - assessment.now > limit
    return _started_invalid(old, assessment.names) or (
        old.reason == Reason.INITIALIZING and is_ahead
    )


def is_timed_out(before: list[Condition]) -> bool:
    """Return whether the initializing timeout expired; only suspend and resume clear this state."""
    old = conditions.find(before, ConditionType.READY)
    return old is not None and old.reason == Reason.INITIALIZING_TIMEOUT


def _started_invalid(old: Condition, names: Names) -> bool:
    return old.reason == Reason.VALIDATION_FAILED and not names.active


def upgrade_in_progress(assessment: Assessment) -> ConditionUpdate | None:
    """Return condition UpgradeInProgress; None if the condition does not change."""
    names, kind = assessment.names, ConditionType.UPGRADE_IN_PROGRESS
    old = conditions.find(assessment.observed.service.status.conditions, kind)
    if names.active and names.pending:
        return ConditionUpdate(
            kind, "True", Reason.BOTH_CLUSTERS_EXIST, caused(BOTH, assessment.cause)
        )
    if names.active:
        return ConditionUpdate(kind, "False", Reason.NO_PENDING_CLUSTER, ACTIVE_ONLY)
    if old is None:
        return ConditionUpdate(kind, "False", Reason.INITIALIZING, RAY_SERVICE_INITIALIZING)
    is_starting = old.reason in {Reason.INITIALIZING, Reason.INITIALIZING_TIMEOUT}
    return (
        None
        if is_starting
        else ConditionUpdate(kind, "Unknown", Reason.NO_ACTIVE_CLUSTER, NO_ACTIVE)
    )


def gates_passed(upgrade: RecordedUpgrade | None) -> ConditionUpdate | None:
    """Return condition UpgradeGatesPassed for the present weight; None if no gate is evaluated."""
    kind, current = ConditionType.UPGRADE_GATES_PASSED, traffic_record.gates_of(upgrade)
    if upgrade is not None and upgrade.failed:
        return ConditionUpdate(kind, "False", Reason.GATE_FAILED, f"The gate {upgrade.failed}")
    if current is None:
        return None
    status, reason = _GATES[gate_record.overall(current.gates)]
    return ConditionUpdate(kind, status, reason, gate_record.sentence(current))


def cluster_spec_ignored(assessment: Assessment) -> ConditionUpdate | None:
    """Return condition ClusterSpecIgnored; None if no changed cluster spec is ignored.

    A changed cluster spec is ignored if the upgrade strategy is None.
    """
    observed, decision = assessment.observed, assessment.decision
    view = observed.pending or observed.active
    if (
        view is None
        or decision.change is not PendingChange.KEEP
        or assessment.control.abort is not None
    ):
        return None
    if rollback.replaces_clusters(observed) or observed.match(view) is not Match.DIFFERENT:
        return None
    fields = ray_cluster.differences(view.cluster, observed.service)
    strategy = "spec.upgradeStrategy.type is None"
    if not observed.service.raw_upgrade_strategy.get("type"):
        strategy = "spec.upgradeStrategy is absent and ENABLE_ZERO_DOWNTIME is false"
    text = (
        f"The change of spec.rayClusterConfig ({', '.join(fields) or 'unknown fields'}) is not "
        f"applied to RayCluster {view.cluster.metadata.namespaced_name}, because {strategy}. "
        "To apply it, set spec.upgradeStrategy.type to NewCluster; to drop it, revert it."
    )
    kind = ConditionType.CLUSTER_SPEC_IGNORED
    return ConditionUpdate(kind, "True", Reason.STRATEGY_IS_NONE, text)


def _get_transition_time(
    before: list[Condition], update: ConditionUpdate, *, now: datetime
) -> datetime:
    """Return the transition time of the condition `update`.

    It is at least one second after the previous transition of the condition, so that the upgrade
    events of the two transitions differ.
    """
    old = conditions.find(before, update.type)
    if old is None or old.status == update.status:
        return now
    ahead = old.last_transition_time - whole_seconds(now)
    # A time further ahead was written before the clock was set back.
    is_soon = timedelta(0) <= ahead < SKEW
    return old.last_transition_time + SECOND if is_soon else now


def _build_control_updates(assessment: Assessment) -> Iterator[ConditionUpdate]:
    control, before = assessment.control, assessment.observed.service.status.conditions
    is_upgrading = assessment.names.active and assessment.names.pending
    if is_upgrading and control.pause is not None:
        text = control.pause.message
        text = f"{text[0].upper()}{text[1:]}."
        yield ConditionUpdate(ConditionType.UPGRADE_PAUSED, "True", control.pause.code, text)
    elif is_upgrading and conditions.find(before, ConditionType.UPGRADE_PAUSED) is not None:
        yield ConditionUpdate(ConditionType.UPGRADE_PAUSED, "False", Reason.PAUSE_OVER, PAUSE_OVER)
    if is_upgrading and control.stall is not None:
        yield ConditionUpdate(
            ConditionType.UPGRADE_STALLED, "True", control.stall.code, control.stall.message
        )
    if control.abort is not None:
        yield ConditionUpdate(
            ConditionType.UPGRADE_ABORTED, "True", control.abort.code, control.abort.message
        )
    if assessment.observed.controls.problems:
        text = "; ".join(assessment.observed.controls.problems)
        yield ConditionUpdate(ConditionType.INVALID_ANNOTATIONS, "True", Reason.INVALID_VALUE, text)
    if (ignored := cluster_spec_ignored(assessment)) is not None:
        yield ignored
    if is_upgrading and (gated := gates_passed(assessment.observed.upgrade)) is not None:
        yield gated
