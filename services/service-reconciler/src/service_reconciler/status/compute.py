"""Compute the status of a RayService (spec rayservice §2.2, §5.4, §13.1).

`targetCapacity`, `trafficRoutedPercent` and `lastTrafficMigratedTime` are copied from the traffic
record (ADR 1). The three fields are absent unless traffic moves in steps; other code recognises a
stepwise upgrade by their presence.
"""

from datetime import datetime

import msgspec

from common import conditions
from common.api.meta import whole_seconds
from common.api.ray_cluster import RayClusterStatus
from common.api.ray_service import ClusterServiceStatus, RayServiceStatus
from common.conditions import ConditionUpdate
from common.ray.view import head_is_ready
from common.upgrade.service_conditions import ConditionType, Reason
from common.upgrade.traffic_record import WHOLE
from service_reconciler.observed import Names, Observed
from service_reconciler.status import conditions as of_service
from service_reconciler.status import status_size
from service_reconciler.status.conditions import Assessment


def compute(assessment: Assessment) -> RayServiceStatus:
    """Return the status that the plan writes; the stored object itself if nothing changes."""
    observed = assessment.observed
    updated = of_service.compute_conditions(assessment)
    names = Names() if of_service.is_timed_out(updated) else assessment.names
    new = RayServiceStatus(
        conditions=updated,
        service_status="Running" if conditions.is_true(updated, ConditionType.READY) else "",
        active_service_status=add_traffic(
            observed, _build_cluster_status(observed, names.active), names
        ),
        pending_service_status=add_traffic(
            observed, _build_cluster_status(observed, names.pending), names
        ),
        num_serve_endpoints=observed.endpoints,
        observed_generation=observed.service.metadata.generation,
    )
    return stored_or_new(observed.service.status, new, now=assessment.now)


def build_invalid_status(observed: Observed, text: str, *, now: datetime) -> RayServiceStatus:
    """Return the status of an invalid RayService: only condition Ready changes.

    `text` becomes the message of the condition.
    """
    old = observed.service.status
    update = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=Reason.VALIDATION_FAILED, message=text
    )
    changed = conditions.updated(
        old.conditions, update, generation=old.observed_generation, now=now
    )
    return stored_or_new(old, msgspec.structs.replace(old, conditions=changed), now=now)


def stored_or_new(
    old: RayServiceStatus, new: RayServiceStatus, *, now: datetime
) -> RayServiceStatus:
    """Return `old` itself if `new` is equivalent, else `new` with the current time.

    The update time and new details in the copied cluster statuses do not cause a write.
    """
    if essence(old) == essence(new) and _list_copied(old) <= _list_copied(new):
        return old
    return msgspec.structs.replace(new, last_update_time=whole_seconds(now))


def essence(status: RayServiceStatus) -> RayServiceStatus:
    """Return a status without the parts that do not cause a write on their own.

    These are the update time and the copied cluster statuses.
    """
    active, pending = (
        msgspec.structs.replace(role, ray_cluster_status=RayClusterStatus())
        for role in (status.active_service_status, status.pending_service_status)
    )
    return msgspec.structs.replace(
        status, last_update_time=None, active_service_status=active, pending_service_status=pending
    )


def _list_copied(status: RayServiceStatus) -> set[tuple[str, str, str]]:
    roles = (status.active_service_status, status.pending_service_status)
    return {
        (role.ray_cluster_name, kept.type, kept.status)
        for role in roles
        for kept in role.ray_cluster_status.conditions
    }


def add_traffic(
    observed: Observed, cluster: ClusterServiceStatus, wanted: Names
) -> ClusterServiceStatus:
    """Return a cluster's status with its capacity and traffic from the traffic record.

    `wanted` are the cluster names of the new status. A cluster that has never been on a route has
    no weight.
    """
    name, old = cluster.ray_cluster_name, observed.service.status
    if not name or not observed.is_incremental:
        return cluster
    share = observed.record.clusters.get(name)
    if share is None:
        has_other = name == wanted.pending and observed.active is not None
        return msgspec.structs.replace(cluster, target_capacity=0 if has_other else WHOLE)
    roles = (old.active_service_status, old.pending_service_status)
    is_known = any(
        role.ray_cluster_name == name and role.traffic_routed_percent is not None for role in roles
    )
    return msgspec.structs.replace(
        cluster,
        target_capacity=share.capacity,
        traffic_routed_percent=share.weight if is_known or share.moved_at is not None else None,
        last_traffic_migrated_time=None
        if share.moved_at is None
        else whole_seconds(share.moved_at),
    )


def _build_cluster_status(observed: Observed, name: str) -> ClusterServiceStatus:
    """Return the part of the status about the cluster with this name.

    While the dashboard does not answer, the last known applications are kept.
    """
    view = {view.name: view for view in observed.views}.get(name)
    if not name or view is None:
        return ClusterServiceStatus(ray_cluster_name=name)
    apps = None
    if head_is_ready(view.cluster) and view.serve.details is not None:
        apps = status_size.shorten_to_fit(
            view.serve.details.named(), status_size.get_max_size(observed.service)
        )
    elif head_is_ready(view.cluster):
        old = observed.service.status
        roles = (old.pending_service_status, old.active_service_status)
        apps = {role.ray_cluster_name: role.applications for role in roles}.get(name)
    return ClusterServiceStatus(
        applications=apps, ray_cluster_name=name, ray_cluster_status=view.cluster.status
    )
