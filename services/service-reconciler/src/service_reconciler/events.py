"""Every Kubernetes Event of this service: of its writes, with KubeRay's texts where it has them, and of what a reconcile finds begun, ended or wrong.

Spec rayservice §13.4.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common import clipping, conditions, durations, labels
from common.api.event import Event, normal, warning
from common.api.ray_service import RayServiceStatus
from common.runtime.actions import ActionEvents
from service_reconciler import decided, initializing
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion import pending
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.pending import Decision, Step
from service_reconciler.reasons import ConditionType, EventReason, Reason
from service_reconciler.serve.problems import ServiceProblem

LONGEST_NAME: Final = 253
"""Characters of a name in a status that an Event repeats."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a RayService once the plan of a reconcile is executed."""

    names: Names
    problem: ServiceProblem | None
    status: RayServiceStatus


def transitions(observed: Observed, decision: Decision, control: Control, outcome: Outcome) -> Iterator[Event]:
    """Report what differs from the last reconcile, each once."""
    yield from _of_foreign_names(observed)
    yield from _of_clusters(observed, decision, outcome.names)
    yield from _of_rollback(observed, decision)
    yield from _of_roles(observed, outcome.names)
    if (
        (problem := outcome.problem) is not None
        and not problem.is_reported
        and _is_new(observed, problem, outcome.status)
    ):
        yield warning(problem.event, "Reconcile", problem.message)
    yield from _of_control(control, observed.service.status, outcome.status)


def timeout(observed: Observed, *, now: datetime) -> Event:
    """Return the event of a RayService that was not ready within its user's limit."""
    limit = initializing.limit(observed.service.metadata.annotations) or timedelta(0)
    found = conditions.find(observed.service.status.conditions, ConditionType.READY)
    spent = now - found.last_transition_time if found is not None else limit
    note = f"exceeded after {durations.text(spent)} (configured timeout: {durations.text(limit)})"
    return warning(EventReason.TIMED_OUT, "Reconcile", f"RayService initializing timeout {note}")


def _of_foreign_names(observed: Observed) -> Iterator[Event]:
    meta = observed.service.metadata
    for name in sorted(observed.foreign_names):
        note = (
            f"The status names RayCluster {meta.namespace}/{clipping.clipped(name, LONGEST_NAME)}, which RayService {meta.name} does not own: "
            "the cluster is left alone and the status is corrected; restrict write access to rayservices/status"
        )
        yield warning(EventReason.INVALID_STATUS, "Reconcile", note)


def _of_clusters(observed: Observed, decision: Decision, names: Names) -> Iterator[Event]:
    before, namespace = observed.names, observed.service.metadata.namespace
    if decision.step is Step.NEW and pending.falls_back(observed):
        why = "the feature gate RayServiceIncrementalUpgrade is off"
        note = f"The upgrade runs as NewCluster, with one switch of all traffic: {why}"
        yield warning(EventReason.INCREMENTAL_UPGRADE_DISABLED, "Upgrade", note)
    if decision.step is Step.NEW and before.active:
        note = f"Preparing RayCluster {namespace}/{names.pending}: {decision.note}"
        yield normal(EventReason.UPGRADE_STARTED, "Upgrade", note)
    if decision.step is Step.DROP:
        note = f"The upgrade to RayCluster {namespace}/{before.pending} is cancelled: {decision.note}"
        yield normal(EventReason.UPGRADE_CANCELLED, "Upgrade", note)


def _of_rollback(observed: Observed, decision: Decision) -> Iterator[Event]:
    was_on, is_on = decided.is_rolling_back(observed.service), decision.rollback is not None
    if was_on == is_on:
        return
    namespace, held = observed.service.metadata.namespace, observed.names
    if is_on:
        reason, note = EventReason.ROLLBACK_STARTED, f"Traffic rolls back to {held.active}: {decision.rollback}"
    elif decision.step in {Step.DROP, Step.NEW}:
        reason, note = EventReason.ROLLBACK_COMPLETED, f"All traffic is back on RayCluster {namespace}/{held.active}"
    else:
        reason, note = EventReason.ROLLBACK_CANCELLED, f"Traffic goes on to RayCluster {namespace}/{held.pending}"
    yield normal(reason, "Upgrade", note)


def _of_roles(observed: Observed, names: Names) -> Iterator[Event]:
    active, namespace = observed.names.active, observed.service.metadata.namespace
    if not active:
        return
    if observed.is_incremental and observed.active is None:
        note = f"RayCluster {namespace}/{active} does not exist any more, so there is nothing to roll back to"
        yield warning(EventReason.ROLLBACK_IMPOSSIBLE, "Upgrade", note)
    if names.active != active:
        note = f"RayCluster {namespace}/{names.active} serves in place of {active}"
        yield normal(EventReason.UPGRADE_PROMOTED, "Upgrade", note)


def _is_new(observed: Observed, problem: ServiceProblem, status: RayServiceStatus) -> bool:
    def is_in(status: RayServiceStatus) -> bool:
        return any(problem.message in each.message for each in status.conditions)

    return is_in(status) and not is_in(observed.service.status)


def _of_control(control: Control, old: RayServiceStatus, new: RayServiceStatus) -> Iterator[Event]:
    was, now = _messages(old), _messages(new)
    if control.stall is not None and ConditionType.UPGRADE_STALLED not in was:
        yield warning(EventReason.UPGRADE_STALLED, "Upgrade", f"{control.stall.code}: {control.stall.message}")
    if control.abort is not None and ConditionType.UPGRADE_ABORTED not in was:
        event = normal if control.abort.code is Reason.ABORT_REQUESTED else warning
        yield event(EventReason.UPGRADE_ABORTED, "Upgrade", control.abort.message)
    if ConditionType.UPGRADE_PAUSED in now and ConditionType.UPGRADE_PAUSED not in was:
        yield normal(EventReason.UPGRADE_PAUSED, "Upgrade", now[ConditionType.UPGRADE_PAUSED])
    is_over = ConditionType.UPGRADE_PAUSED in was and ConditionType.UPGRADE_PAUSED not in now
    if is_over and new.pending_service_status.ray_cluster_name:
        yield normal(EventReason.UPGRADE_RESUMED, "Upgrade", "The upgrade is not paused any more")
    odd = now.get(ConditionType.INVALID_ANNOTATIONS)
    if odd is not None and odd != was.get(ConditionType.INVALID_ANNOTATIONS):
        yield warning(EventReason.INVALID_ANNOTATION, "Validate", odd)


def _messages(status: RayServiceStatus) -> dict[str, str]:
    """Return the messages of the conditions that are True."""
    return {each.type: each.message for each in status.conditions if each.status == "True"}


def cluster_created(where: str) -> ActionEvents:
    """Return the events of a new RayCluster; `where` is `<namespace>/<name>`."""
    return ActionEvents(
        success=normal(EventReason.CREATED_CLUSTER, "Create", f"Created the RayCluster {where}"),
        failure=warning(EventReason.FAILED_TO_CREATE_CLUSTER, "Create", f"Failed to create the RayCluster {where}: "),
    )


def cluster_updated(role: str, where: str) -> ActionEvents:
    """Return the events of a change to the active or the pending RayCluster."""
    return ActionEvents(
        success=normal(EventReason.UPDATED_CLUSTER, "Update", f"Updated the {role} RayCluster {where}"),
        failure=warning(
            EventReason.FAILED_TO_UPDATE_CLUSTER, "Update", f"Failed to update the {role} RayCluster {where}: "
        ),
    )


def cluster_update_failed(role: str, where: str) -> ActionEvents:
    """Return the event of a refused change to a RayCluster; a change that succeeds has none."""
    return ActionEvents(failure=cluster_updated(role, where).failure)


def old_cluster_marked(where: str) -> ActionEvents:
    """Return the event of an unneeded RayCluster that cannot be given a deadline, and so is not deleted."""
    return cluster_update_failed("old", where)


def pod_drain_mark(where: str) -> ActionEvents:
    """Return the event of a pod that cannot be marked as draining."""
    note = f"The pod {where} is not marked as draining, so its proxy keeps connections open: "
    return ActionEvents(failure=warning(EventReason.DRAIN_NOT_MARKED, "Drain", note))


def pod_not_labelled(where: str) -> ActionEvents:
    """Return the event of a pod that cannot be labelled for the Serve Service of an upgrade in steps."""
    note = f"The pod {where} is not labelled {labels.SERVES}, so the Serve Service selects it wrongly until the upgrade ends: "
    return ActionEvents(failure=warning(EventReason.FAILED_TO_LABEL_POD, "Update", note))


def status_refused() -> ActionEvents:
    """Return the event of a status that the API server refuses."""
    return ActionEvents(failure=warning(EventReason.STATUS_NOT_WRITTEN, "Reconcile", "The status is not written: "))


def finalizer_refused() -> ActionEvents:
    """Return the event of a finalizer that the API server refuses; nothing is created without it."""
    note = "The finalizer is not set, and nothing is created without it: "
    return ActionEvents(failure=warning(EventReason.FINALIZER_NOT_SET, "Reconcile", note))


def cluster_deleted(where: str, *, suspending: bool = False) -> ActionEvents:
    """Return the events of the deletion of a RayCluster."""
    when = " during suspend" if suspending else ""
    return ActionEvents(
        success=normal(EventReason.DELETED_CLUSTER, "Delete", f"Deleted the RayCluster {where}{when}"),
        failure=warning(
            EventReason.FAILED_TO_DELETE_CLUSTER, "Delete", f"Failed to delete the RayCluster {where}{when}: "
        ),
    )


def service_created(where: str) -> ActionEvents:
    """Return the events of a new Service."""
    return ActionEvents(
        success=normal(EventReason.CREATED_SERVICE, "Create", f"Created the service {where}"),
        failure=warning(EventReason.FAILED_TO_CREATE_SERVICE, "Create", f"Failed to create the service {where}, "),
    )


def service_updated(where: str) -> ActionEvents:
    """Return the events of a Service that selects another cluster."""
    return ActionEvents(
        success=normal(EventReason.UPDATED_SERVICE, "Update", f"Updated the service {where}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_SERVICE, "Update", f"Failed to update the service {where}, "),
    )


def service_deleted(where: str) -> ActionEvents:
    """Return the events of the deletion of a Service."""
    return ActionEvents(
        success=normal(EventReason.DELETED_SERVICE, "Delete", f"Deleted the Service {where} during suspend"),
        failure=warning(
            EventReason.FAILED_TO_DELETE_SERVICE, "Delete", f"Failed to delete the Service {where} during suspend: "
        ),
    )


def config_sent(where: str) -> ActionEvents:
    """Return the events of a Serve config that is sent."""
    return ActionEvents(
        success=normal(
            EventReason.UPDATED_APPLICATIONS, "Update", f"Updated serve applications to the RayCluster {where}"
        ),
        failure=warning(
            EventReason.FAILED_TO_UPDATE_APPLICATIONS,
            "Update",
            f"Failed to update serve applications to the RayCluster {where}: ",
        ),
    )


def config_restored(where: str, difference: str) -> ActionEvents:
    """Return the events of a Serve config that is sent again, because Serve ran another one than the cluster was given."""
    note = f"RayCluster {where} runs another Serve config than the recorded one ({difference}); it gets the recorded one again"
    return ActionEvents(
        success=warning(EventReason.SERVE_CONFIG_DRIFTED, "Update", note),
        failure=config_sent(where).failure,
    )


def head_labelled(value: str, where: str) -> ActionEvents:
    """Return the events of the head pod's changed label; the value is in quotes."""
    text = f'the serve label to "{value}" for the Head Pod {where}'
    return ActionEvents(
        success=normal(EventReason.UPDATED_HEAD_LABEL, "Update", f"Updated {text}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_HEAD_LABEL, "Update", f"Failed to update {text}: "),
    )
