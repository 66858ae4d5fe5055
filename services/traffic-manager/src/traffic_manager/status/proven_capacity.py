"""The proven capacity of a cluster: how much traffic it was observed to be able to carry (design rule 8; spec rayservice §8.10 G1, G2).

For more traffic, Serve must run with the very capacity that was asked for, on a read made after the last PUT; applications,
replicas and proxies must be there, and the backend must have a ready endpoint. What it may keep follows from its health.
"""

from collections.abc import Iterator
from datetime import datetime

from msgspec import UNSET

from common.ray import serve_status, submit
from common.ray.serve_status import AppState
from common.ray.view import head_is_ready
from common.upgrade.traffic_record import Share
from traffic_manager.migration.state import Side
from traffic_manager.observed import ClusterView
from traffic_manager.status import health, traffic_record


def side(view: ClusterView, share: Share, *, now: datetime, goal: str | None = None) -> Side:
    """Return a cluster as the state machine sees it; with a goal it must have that Serve config to get more traffic."""
    reason = next(_reasons(view, share, goal), None)
    details, found = view.serve.details, health.of(view, now=now)
    ready = min(found.sustainable, health.ready_capacity(view, share.capacity))
    proven = 0
    if reason is None and details is not None:
        proven = min(ready, share.capacity * serve_status.running_percent(details) // 100)
        reason = serve_status.not_serving(details)
    return Side(
        capacity=share.capacity,
        weight=share.weight,
        moved_at=share.moved_at,
        proven=proven,
        not_ready_reason=reason or "",
        reported=None if details is None else serve_status.capacity(details),
        is_alive=is_alive(view),
        sustainable=found.sustainable,
        unhealthy_reason=found.reason,
        ready=ready,
        sent=traffic_record.sent(share),
        was_shed=share.shed_at is not UNSET,
        healthy_since=view.memory.healthy_since,
    )


def is_alive(view: ClusterView) -> bool:
    """Return whether a cluster is expected to serve what it has been given."""
    if not head_is_ready(view.cluster) or view.serve.failures >= health.SILENT_AFTER:
        return False
    details = view.serve.details
    sick = {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}
    return details is None or not any(each.status in sick for each in details.applications.values())


def _reasons(view: ClusterView, share: Share, goal: str | None) -> Iterator[str]:
    """Yield why a cluster may not be sent more requests."""
    if not head_is_ready(view.cluster):
        yield "its head pod is not ready"
    if view.cluster.metadata.deletion_timestamp is not None:
        yield "its RayCluster is being deleted"
    if view.given is None or not submit.has(view, view.given if goal is None else goal):
        yield "it does not have the Serve config yet"
    details = view.serve.details
    if details is None:
        yield view.serve.problem or "its dashboard was not asked yet"
        return
    if serve_status.capacity(details) != share.capacity:
        yield f"Serve runs with target capacity {serve_status.capacity(details):g} instead of {share.capacity}"
    if not serve_status.is_running(details):
        yield serve_status.not_serving(details) or "its applications do not run"
    if (unproxied := serve_status.unproxied(details)) is not None:
        yield unproxied
    if view.endpoints == 0:
        yield "none of its pods is ready to be sent requests"
