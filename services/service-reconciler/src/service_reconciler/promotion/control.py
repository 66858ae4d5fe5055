"""How the user's controls, and the deadline, bear on an upgrade now (`common.upgrade.controls`).

An abort makes the active cluster's spec the goal, whatever the RayService asks for. One that follows from a deadline is
remembered in the condition UpgradeAborted for the generation that it was decided for; promoting goes on nevertheless.
"""

from datetime import datetime

import msgspec

from common import labels
from common.problem import Problem
from common.ray.view import head_is_ready
from common.upgrade import controls as upgrade_controls
from common.upgrade.controls import Controls, OnDeadline
from service_reconciler import decided
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.promotion import stall
from service_reconciler.reasons import ConditionType, Reason
from service_reconciler.resources.ray_cluster import Match


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """What bears on an upgrade now."""

    abort: Problem[Reason] | None = None
    """The service stays on its active cluster, or rolls back to it."""
    pause: Problem[Reason] | None = None
    """The way forward is closed."""
    stall: Problem[Reason] | None = None
    problems: tuple[str, ...] = ()
    """What is wrong with the annotations."""
    requeue_at: datetime | None = None
    """When the deadline is over."""


NONE = Control()


def decide(observed: Observed, *, now: datetime) -> Control:
    """Return what bears on the upgrade of a RayService now."""
    controls = upgrade_controls.of(observed.service)
    is_back = decided.is_rolling_back(observed.service)
    pause, verdict = None, stall.Verdict()
    if observed.names.pending and observed.names.active and controls.pauses and not controls.promotes:
        pause = Problem(Reason.PAUSE_REQUESTED, f"paused by {labels.PAUSE}")
    else:
        verdict = stall.decide(observed, controls, is_back=is_back, now=now)
    abort = _abort(observed, controls, None if is_back else verdict.stall)
    is_forward = not is_back and abort is None and not controls.promotes
    if verdict.stall is not None and is_forward and controls.on_deadline is OnDeadline.PAUSE:
        text = f"paused at the deadline ({labels.ON_DEADLINE}: {OnDeadline.PAUSE})"
        pause = Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, text)
    return Control(abort=abort, pause=pause, stall=verdict.stall, problems=controls.problems, requeue_at=verdict.due)


def is_goal(observed: Observed, view: ClusterView, control: Control) -> bool:
    """Return whether the active cluster is all that is wanted."""
    return control.abort is not None or observed.match(view) is Match.FULL


def _abort(observed: Observed, controls: Controls, stalled: Problem[Reason] | None) -> Problem[Reason] | None:
    """Return why the service stays where it is; there is nothing to abort where that is what it asks for."""
    active = observed.active
    if active is None or is_goal(observed, active, NONE) or observed.serving in {observed.names.pending} - {""}:
        return None
    generation = observed.service.metadata.generation
    where = f"RayCluster {active.name}"
    if controls.aborts:
        text = f"Generation {generation} is aborted by {labels.ABORT}; the service stays on {where}."
        return Problem(Reason.ABORT_REQUESTED, text)
    if controls.promotes:
        return None
    held = decided.problem_of(observed.service, ConditionType.UPGRADE_ABORTED)
    if held is not None and held.code is Reason.PROGRESS_DEADLINE_EXCEEDED:
        return held
    if stalled is None or controls.on_deadline is not OnDeadline.ROLLBACK or not head_is_ready(active.cluster):
        return None  # a cluster that does not serve is no place to go back to
    text = f"The upgrade to generation {generation} is aborted; the service stays on {where}. {stalled.message}"
    return Problem(Reason.PROGRESS_DEADLINE_EXCEEDED, text)
