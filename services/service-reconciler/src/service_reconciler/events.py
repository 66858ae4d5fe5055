"""The Kubernetes Events of service-reconciler (spec rayservice §13.4).

They report writes and state changes. The texts are KubeRay's where KubeRay has the same Event.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from common import conditions, durations, labels, untrusted
from common.api.meta import ObjectMeta
from common.api.ray_service import RayServiceStatus
from common.ray import serve_writer
from common.runtime.actions import EventTemplate, KubeEvent, normal, warning
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler import recorded_decisions
from service_reconciler.observed import Observed
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.rollback import PendingChange
from service_reconciler.reasons import EventReason
from service_reconciler.status import status_size
from service_reconciler.status.conditions import Assessment

MAX_NAME_LENGTH: Final = 253
"""Maximum length at which an Event cuts a cluster name from the status, which users can edit."""

MAX_NAMED: Final = 5
"""Maximum number of RayClusters that an Event lists by name."""

CLUSTER_CREATED: Final = EventTemplate("Create", "RayCluster", "the RayCluster {}")
CLUSTER_UPDATED: Final = EventTemplate("Update", "RayCluster", "the {} RayCluster {}")
CLUSTER_DELETED: Final = EventTemplate("Delete", "RayCluster", "the RayCluster {}")
CLUSTER_SUSPENDED: Final = EventTemplate("Delete", "RayCluster", "the RayCluster {} during suspend")
SERVICE_CREATED: Final = EventTemplate("Create", "Service", "the service {}", end=", ")
SERVICE_UPDATED: Final = EventTemplate("Update", "Service", "the service {}", end=", ")
SERVICE_DELETED: Final = EventTemplate("Delete", "Service", "the Service {}")
SERVICE_SUSPENDED: Final = EventTemplate("Delete", "Service", "the Service {} during suspend")
HEAD_LABELLED: Final = EventTemplate(
    "Update", "HeadPodServeLabel", 'the serve label to "{}" for the Head Pod {}'
)


def transitions(assessment: Assessment, status: RayServiceStatus) -> Iterator[KubeEvent]:
    """Yield the Events about the differences between the stored status and the new `status`."""
    meta, old = assessment.observed.service.metadata, assessment.observed.service.status
    for name in sorted(assessment.observed.foreign_names):
        note = (
            "The status names RayCluster "
            f"{meta.namespace}/{untrusted.clipped(name, MAX_NAME_LENGTH)}, which RayService "
            f"{meta.name} does not own: "
            "the cluster is left alone and the status is corrected; restrict write access to "
            "rayservices/status"
        )
        yield warning(EventReason.INVALID_STATUS, "Reconcile", note)
    yield from _list_upgrade_events(assessment)
    if (problem := assessment.problem) is not None and not problem.is_reported:
        was_reported = recorded_decisions.was_reported(old.conditions, problem)
        if not was_reported and recorded_decisions.was_reported(status.conditions, problem):
            yield warning(problem.event, "Reconcile", problem.message)
    yield from _list_control_events(assessment.control, old, status)
    if status_size.is_cut(status) and not status_size.is_cut(old):
        yield warning(EventReason.STATUS_TRUNCATED, "Reconcile", status_size.TRUNCATED_MESSAGE)


def released_in_quarantine(meta: ObjectMeta, limit: timedelta) -> KubeEvent:
    """Return the Event about the removal of raybus's finalizer although raybus could not clean up.

    An object in quarantine, which raybus cannot read, prevented the clean-up. `limit` is the time
    since the deletion after which raybus removes its finalizer anyway.
    """
    note = (
        f"The finalizer is removed {durations.text(limit)} after the deletion, although an object "
        "in quarantine kept raybus from cleaning up. Check that the RayClusters with the label "
        f"{labels.ORIGIN_NAME}={meta.name} go, and remove the backends of this RayService from "
        "HTTPRoutes and GRPCRoutes of your own"
    )
    return warning(EventReason.FINALIZER_RELEASED, "Delete", note)


def finalizer_released(observed: Observed, limit: timedelta) -> KubeEvent:
    """Return the Event about the removal of raybus's finalizer although RayClusters still exist.

    `limit` is the time since the deletion after which raybus removes its finalizer anyway.
    """
    left = [cluster.metadata for cluster in observed.clusters]
    named = (
        f"{cluster.name} ({', '.join(cluster.finalizers) or 'its deletion is refused'})"
        for cluster in left[:MAX_NAMED]
    )
    more = f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
    note = (
        f"The finalizer is removed {durations.text(limit)} after the deletion, although "
        f"RayClusters with finalizers still exist: {', '.join(named)}{more}. Check the controllers "
        "of these finalizers, or delete the RayClusters by hand"
    )
    return warning(EventReason.FINALIZER_RELEASED, "Delete", note)


def timeout(observed: Observed, *, now: datetime) -> KubeEvent:
    """Return the Event for a RayService that was not ready within its initializing timeout."""
    limit = observed.initializing_limit or timedelta(0)
    condition = conditions.find(observed.service.status.conditions, ConditionType.READY)
    spent = now - condition.last_transition_time if condition is not None else limit
    note = f"exceeded after {durations.text(spent)} (configured timeout: {durations.text(limit)})"
    return warning(EventReason.TIMED_OUT, "Reconcile", f"RayService initializing timeout {note}")


def _list_upgrade_events(assessment: Assessment) -> Iterator[KubeEvent]:
    observed, decision, names, names_before = (
        assessment.observed,
        assessment.decision,
        assessment.names,
        assessment.observed.names,
    )
    namespace = observed.service.metadata.namespace
    if (
        decision.change is PendingChange.NEW
        and serve_writer.asks_for_steps(observed.service)
        and not observed.is_incremental
    ):
        why = "the feature gate RayServiceIncrementalUpgrade is off"
        note = f"The upgrade runs as NewCluster, with one switch of all traffic: {why}"
        yield warning(EventReason.INCREMENTAL_UPGRADE_DISABLED, "Upgrade", note)
    if decision.change is PendingChange.NEW and names_before.active:
        note = f"Preparing RayCluster {namespace}/{names.pending}: {decision.note}"
        yield normal(EventReason.UPGRADE_STARTED, "Upgrade", note)
    if decision.change is PendingChange.DROP:
        note = (
            f"The upgrade to RayCluster {namespace}/{names_before.pending} is cancelled: "
            f"{decision.note}"
        )
        yield normal(EventReason.UPGRADE_CANCELLED, "Upgrade", note)
    was_back = recorded_decisions.is_rolling_back(observed.service)
    if decision.rollback is not None and not was_back:
        note = f"Traffic rolls back to {names_before.active}: {decision.rollback}"
        yield normal(EventReason.ROLLBACK_STARTED, "Upgrade", note)
    elif decision.rollback is None and was_back:
        reason, note = (
            EventReason.ROLLBACK_CANCELLED,
            f"Traffic goes on to RayCluster {namespace}/{names_before.pending}",
        )
        if decision.change in {PendingChange.DROP, PendingChange.NEW}:
            reason, note = (
                EventReason.ROLLBACK_COMPLETED,
                f"All traffic is back on RayCluster {namespace}/{names_before.active}",
            )
        yield normal(reason, "Upgrade", note)
    if names_before.active and observed.is_incremental and observed.active is None:
        note = (
            f"RayCluster {namespace}/{names_before.active} does not exist any more, so there is "
            "nothing to roll back to"
        )
        yield warning(EventReason.ROLLBACK_IMPOSSIBLE, "Upgrade", note)
    if names_before.active and names.active != names_before.active:
        note = f"RayCluster {namespace}/{names.active} serves in place of {names_before.active}"
        yield normal(EventReason.UPGRADE_PROMOTED, "Upgrade", note)


def _list_control_events(
    control: Control, old: RayServiceStatus, new: RayServiceStatus
) -> Iterator[KubeEvent]:
    was, now = (
        {
            condition.type: condition.message
            for condition in status.conditions
            if condition.status == "True"
        }
        for status in (old, new)
    )
    if control.stall is not None and ConditionType.UPGRADE_STALLED not in was:
        yield warning(
            EventReason.UPGRADE_STALLED, "Upgrade", f"{control.stall.code}: {control.stall.message}"
        )
    if control.abort is not None and ConditionType.UPGRADE_ABORTED not in was:
        event = normal if control.abort.code is Reason.ABORT_REQUESTED else warning
        yield event(EventReason.UPGRADE_ABORTED, "Upgrade", control.abort.message)
    if ConditionType.UPGRADE_PAUSED in now and ConditionType.UPGRADE_PAUSED not in was:
        yield normal(EventReason.UPGRADE_PAUSED, "Upgrade", now[ConditionType.UPGRADE_PAUSED])
    is_over = ConditionType.UPGRADE_PAUSED in was and ConditionType.UPGRADE_PAUSED not in now
    if is_over and new.pending_service_status.ray_cluster_name:
        yield normal(EventReason.UPGRADE_RESUMED, "Upgrade", "The upgrade is not paused any more")
    ignored = now.get(ConditionType.CLUSTER_SPEC_IGNORED)
    if ignored is not None and ignored != was.get(ConditionType.CLUSTER_SPEC_IGNORED):
        yield warning(EventReason.CLUSTER_SPEC_IGNORED, "Reconcile", ignored)
    odd = now.get(ConditionType.INVALID_ANNOTATIONS)
    if odd is not None and odd != was.get(ConditionType.INVALID_ANNOTATIONS):
        yield warning(EventReason.INVALID_ANNOTATION, "Validate", odd)
