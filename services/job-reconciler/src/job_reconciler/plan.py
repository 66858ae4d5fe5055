"""The plan of one reconcile of a RayJob, by the state in its status (spec rayjob §5.2, §6).

Each plan writes at most one new state. The write is durable before anything that follows from the
state happens.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from common.api.ray_job import DeploymentState
from common.runtime.actions import Action, EmitEvent, Plan, warning
from job_reconciler import published_events
from job_reconciler.observed import Observed, RuleViolation
from job_reconciler.phases import ending, finished, running, starting
from job_reconciler.status.update import update

ENDED: Final = frozenset({DeploymentState.COMPLETE, DeploymentState.FAILED})
PHASES: Final[Mapping[DeploymentState, Callable[[Observed], Plan[Action]]]] = {
    DeploymentState.NEW: starting.begin,
    DeploymentState.INITIALIZING: starting.initialize,
    DeploymentState.WAITING: starting.wait_for_job,
    DeploymentState.RUNNING: running.run,
    DeploymentState.RETRYING: ending.tear_down,
    DeploymentState.SUSPENDING: ending.tear_down,
    DeploymentState.SUSPENDED: ending.resume,
    DeploymentState.VALIDATION_FAILED: ending.recover,
    DeploymentState.COMPLETE: finished.clean_up,
    DeploymentState.FAILED: finished.clean_up,
}


def make_plan(observed: Observed, now: datetime) -> Plan[Action]:  # noqa: ARG001  (observed.now)
    """Return the plan for one RayJob.

    The events for external consumers about the recorded status are published first, before a write
    can erase what they report.
    """
    plan = _decide(observed)
    return replace(plan, actions=(*published_events.of_status(observed), *plan.actions))


def _decide(observed: Observed) -> Plan[Action]:
    if observed.job.metadata.deletion_timestamp is not None:
        return finished.delete(observed)
    if observed.violation is not None:
        return _refuse(observed, observed.violation)
    state = observed.state
    if state is None:
        return Plan(note=f"unknown state {observed.job.status.job_deployment_status[:40]!r}")
    return PHASES[state](observed)


def _refuse(observed: Observed, violation: RuleViolation) -> Plan[Action]:
    """Return the plan that reports a violation. A RayJob that has ended keeps its outcome.

    The objects of a running attempt stay, and the attempt continues once the RayJob is valid again.
    """
    job = observed.job
    note = f"{job.metadata.namespaced_name}: {violation.message}"
    event = EmitEvent(event=warning(violation.reason, "Validate", note))
    if observed.state in ENDED:
        return Plan(actions=(event,), note="invalid after its end")
    state = DeploymentState.VALIDATION_FAILED.value
    status = replace(
        job.status, job_deployment_status=state, reason=state, message=violation.message
    )
    write = update(observed, status)
    return Plan(actions=(event, *write) if write else (), note="invalid")
