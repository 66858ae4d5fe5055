"""The whole status of a RayService, from scratch (spec rayservice §2.2, §5.4, §13.1)."""

from datetime import datetime, timedelta

import msgspec

from common import conditions
from common.api.meta import Condition, whole_seconds
from common.api.ray_cluster import RayClusterStatus
from common.api.ray_service import AppStatus, ClusterServiceStatus, RayServiceStatus, ServeDeploymentStatus
from common.conditions import ConditionUpdate
from common.ray.serve_status import ServeDetails
from common.ray.view import head_is_ready
from service_reconciler.observed import ClusterView, Names, Observed
from service_reconciler.promotion.control import NONE, Control
from service_reconciler.reasons import ConditionType, Reason
from service_reconciler.status import conditions as of_service
from service_reconciler.status import room, traffic


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a status depends on besides the observation: what the plan decided."""

    names: Names
    cause: str | None = None
    """Why the service, or its upgrade, makes no progress."""
    limit: timedelta | None = None
    rollback: str | None = None
    """The message of the condition RollbackInProgress."""
    control: Control = NONE


def compute(observed: Observed, result: Result, *, now: datetime) -> RayServiceStatus:
    """Return the status that holds once the plan is executed."""
    old = observed.service.status
    updated = _conditions(observed, result, now=now)
    timed_out = of_service.is_timed_out(updated)
    names = Names() if timed_out else result.names
    return RayServiceStatus(
        conditions=updated,
        last_update_time=old.last_update_time,
        service_status="Running" if conditions.is_true(updated, ConditionType.READY) else "",
        active_service_status=traffic.mirrored(observed, _cluster(observed, names.active), names),
        pending_service_status=traffic.mirrored(observed, _cluster(observed, names.pending), names),
        num_serve_endpoints=observed.endpoints,
        observed_generation=observed.service.metadata.generation,
    )


def invalid(observed: Observed, text: str, *, now: datetime) -> RayServiceStatus:
    """Return the status of a RayService that breaks a rule: all stays but the condition Ready."""
    old = observed.service.status
    update = ConditionUpdate(type=ConditionType.READY, status="False", reason=Reason.VALIDATION_FAILED, message=text)
    changed = conditions.updated(old.conditions, update, generation=old.observed_generation, now=now)
    return msgspec.structs.replace(old, conditions=changed)


def differs(old: RayServiceStatus, new: RayServiceStatus) -> bool:
    """Return whether a status is written; copies of cluster statuses and the time of writing alone are not."""
    return _essence(old) != _essence(new)


def stamped(status: RayServiceStatus, *, now: datetime) -> RayServiceStatus:
    """Return the status with the time of its writing."""
    return msgspec.structs.replace(status, last_update_time=whole_seconds(now))


def _conditions(observed: Observed, result: Result, *, now: datetime) -> list[Condition]:
    generation = observed.service.metadata.generation
    is_upgrading = bool(result.names.active and result.names.pending)
    facts = of_service.ReadyFacts(
        endpoints=observed.endpoints,
        has_active=bool(result.names.active),
        cause=None if is_upgrading else result.cause,
        limit=result.limit,
    )
    before = observed.service.status.conditions
    now_ready = of_service.ready(before, facts, now=now)
    base = conditions.without(before, ConditionType.READY) if of_service.starts_anew(before, facts, now=now) else before
    updated = conditions.updated(base, now_ready, generation=generation, now=now)
    if now_ready.reason is Reason.INITIALIZING_TIMEOUT:
        return updated
    upgrade = of_service.upgrade_in_progress(before, result.names, cause=result.cause if is_upgrading else None)
    updated = updated if upgrade is None else conditions.updated(updated, upgrade, generation=generation, now=now)
    updated = of_service.with_rollback(updated, result.rollback, generation=generation, now=now)
    return of_service.with_controls(updated, result.control, is_upgrading=is_upgrading, generation=generation, now=now)


def _cluster(observed: Observed, name: str) -> ClusterServiceStatus:
    views = {view.name: view for view in (observed.active, observed.pending) if view is not None}
    view = views.get(name)
    if not name or view is None:
        return ClusterServiceStatus(ray_cluster_name=name)
    return ClusterServiceStatus(
        applications=_applications(observed, view),
        ray_cluster_name=name,
        ray_cluster_status=view.cluster.status,
    )


def _applications(observed: Observed, view: ClusterView) -> dict[str, AppStatus] | None:
    if not head_is_ready(view.cluster):
        return None
    if view.serve.details is not None:
        return room.fitted(applications(view.serve.details), room.per_cluster(observed.service))
    old = observed.service.status
    known = {
        each.ray_cluster_name: each.applications for each in (old.pending_service_status, old.active_service_status)
    }
    return known.get(view.name)


def applications(details: ServeDetails) -> dict[str, AppStatus] | None:
    """Return the statuses that Serve reports for applications and deployments, unchanged."""
    return {
        name: AppStatus(
            status=app.status,
            message=app.message,
            deployments={
                deployment: ServeDeploymentStatus(status=each.status, message=each.message)
                for deployment, each in app.deployments.items()
            }
            or None,
        )
        for name, app in details.named().items()
    } or None


def _essence(status: RayServiceStatus) -> RayServiceStatus:
    return msgspec.structs.replace(
        status,
        last_update_time=None,
        active_service_status=_bare(status.active_service_status),
        pending_service_status=_bare(status.pending_service_status),
    )


def _bare(cluster: ClusterServiceStatus) -> ClusterServiceStatus:
    return msgspec.structs.replace(cluster, ray_cluster_status=RayClusterStatus())
