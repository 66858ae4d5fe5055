"""What of its traffic a cluster is observed not to carry, the ground on which traffic leaves it at once (ADR 11); and what it can carry.

Observed is what Kubernetes reports of its head pod and of the endpoints behind its Service, and what Serve reports of replicas and
proxies. One failed poll of a dashboard counts for nothing. What may pass by itself (a status of Serve without a lost replica, a
redeployment, dashboards without an answer) counts once it has lasted for `GRACE`.

The other half is the proven capacity: how much traffic a cluster was observed to be able to carry (design rule 8; spec rayservice §8.10 G1,
G2). For more traffic, Serve must run with the very capacity that was asked for, on a read made after the last PUT; applications, replicas
and proxies must be there, and the backend must have a ready endpoint. What it may keep follows from its health.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common.ray import serve_proxies, serve_status, submit
from common.ray.serve_status import AppState, Deployment, ServeDetails
from common.ray.view import SILENT, head_is_ready
from common.upgrade.traffic_record import WHOLE, Share
from traffic_manager.migration.state import Side
from traffic_manager.observed import Baseline, ClusterView
from traffic_manager.status import traffic_record

GRACE: Final = timedelta(seconds=3)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The most traffic that a cluster's observed health allows, and why it is not more."""

    sustainable: int = WHOLE
    reason: str = ""


HEALTHY: Final = Health()


def of(view: ClusterView, *, now: datetime) -> Health:
    """Return what is observed of a cluster's health."""
    since = view.memory.unhealthy_since
    lasts = since is not None and now - since >= GRACE
    why = _fatal(view) or (_passing(view) if lasts else None)
    return _partial(view) if why is None else Health(sustainable=0, reason=why)


def side(view: ClusterView, share: Share, *, now: datetime, goal: str | None = None) -> Side:
    """Return a cluster as the state machine sees it; with a goal it must have that Serve config to get more traffic."""
    reason = next(_reasons(view, share, goal), None)
    details, found = view.serve.details, of(view, now=now)
    ready = min(found.sustainable, ready_capacity(view, share.capacity))
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
    if not head_is_ready(view.cluster) or view.serve.silences >= SILENT:
        return False
    details = view.serve.details
    return details is None or not any(each.has_failed for each in details.applications.values())


def is_silent(view: ClusterView) -> bool:
    """Return whether a cluster's only problem is a silent dashboard: its pods take requests, so it may still serve."""
    return view.serve.details is None and _out_of_service(view) is None


def ready_capacity(view: ClusterView, capacity: int) -> int:
    """Return the percent of the traffic that a cluster can take over, whatever Serve config it runs."""
    details = view.serve.details
    if (
        details is None
        or _fatal(view) is not None
        or not details.applications
        or serve_status.has_no_proxy(details)
    ):
        return 0
    if any(
        each.status not in {AppState.RUNNING, AppState.UNHEALTHY}
        for each in details.applications.values()
    ):
        return 0
    runs_with = min(capacity, int(serve_status.capacity(details)))
    return (
        runs_with
        * min([WHOLE, *(each.running * WHOLE // each.target for each in _parts(view, details))])
        // WHOLE
    )


def baseline(view: ClusterView, weight: int) -> Baseline | None:
    """Return how many replicas carry a weight now; None where a cluster has an observed problem, or its Serve did not answer."""
    details = view.serve.details
    if (
        details is None
        or _fatal(view) is not None
        or _passing(view) is not None
        or _partial(view) != HEALTHY
    ):
        return None
    return Baseline(
        weight=weight, replicas={each.name: each.running for each in _parts(view, details)}
    )


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
    if _lacks_endpoints(view):
        yield "none of its pods is ready to be sent requests"


def _fatal(view: ClusterView) -> str | None:
    """Return what certainly keeps a cluster from serving anything; a deployment on its way without replicas gets its time."""
    if (why := _out_of_service(view)) is not None:
        return why
    if view.serve.silences >= SILENT:
        return f"its dashboard is silent: {view.serve.problem}"
    parts = () if view.serve.details is None else _parts(view, view.serve.details)
    idle = (each.name for each in parts if each.running == 0 and not each.is_deploying)
    return next((f"no replica of {name} is running" for name in idle), None)


def _out_of_service(view: ClusterView) -> str | None:
    """Return what Kubernetes observes that keeps a cluster from serving anything."""
    if view.cluster.metadata.deletion_timestamp is not None:
        return "its RayCluster is being deleted"
    if not head_is_ready(view.cluster):
        return "its head pod is not ready"
    return "none of its pods is ready to be sent requests" if _lacks_endpoints(view) else None


def _lacks_endpoints(view: ClusterView) -> bool:
    """Return whether no pod takes requests, of a cluster whose pods should."""
    return not view.endpoints and not serve_proxies.reported(view.serve.details).are_disabled


def _passing(view: ClusterView) -> str | None:
    """Return what keeps a cluster from serving, unless it passes by itself."""
    details = view.serve.details
    if details is None:
        return (
            f"its dashboard is silent: {view.serve.problem}"
            if view.serve.silences >= SILENT - 1
            else None
        )
    if not details.applications:
        return "no application is deployed"
    lost = _lost_nodes(view)
    idle = {each.app: each.name for each in reversed([*_parts(view, details)]) if each.running == 0}
    for name, app in sorted(details.named().items()):
        lacks = (
            each
            for each in app.deployments.values()
            if _running(each, lost) < (each.target_num_replicas or 0)
        )
        if app.has_failed and next(lacks, None) is None:
            return f"application {name} is {app.status}"
        if app.status != AppState.RUNNING and name in idle:
            return f"no replica of {idle[name]} is running"
    return "no proxy is healthy" if serve_status.has_no_proxy(details) else None


def _partial(view: ClusterView) -> Health:
    """Return what the replicas that are left can carry: against their target, or against what carried the traffic before.

    A target that grew makes no cluster unhealthy, and neither does a rounded one: so the better of both counts.
    """
    details, before = view.serve.details, view.memory.baseline
    if details is None or before is None:
        return HEALTHY
    found = HEALTHY
    for each in _parts(view, details):
        had = before.replicas.get(each.name, 0)
        if each.is_deploying or each.running >= min(had, each.target):
            continue
        of_target = int(serve_status.capacity(details)) * each.running // each.target
        left = max(of_target, before.weight * each.running // had)
        if left < found.sustainable:
            found = Health(
                sustainable=left, reason=f"{each.running} of {had} replicas of {each.name} are left"
            )
    return found


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that should have replicas."""

    app: str
    name: str
    """`<application>/<deployment>`."""
    target: int
    running: int
    is_deploying: bool
    """Whether its application is on its way to another state."""


def _parts(view: ClusterView, details: ServeDetails) -> Iterator[_Part]:
    lost = _lost_nodes(view)
    for app, held in sorted(details.named().items()):
        is_deploying = held.status != AppState.RUNNING and not held.has_failed
        for name, each in sorted(held.deployments.items()):
            if each.replicas is not None and (target := each.target_num_replicas):
                running = _running(each, lost)
                yield _Part(
                    app=app,
                    name=f"{app}/{name}",
                    target=target,
                    running=running,
                    is_deploying=is_deploying,
                )


def _running(deployment: Deployment, lost: frozenset[str]) -> int:
    """Count the running replicas but those on lost nodes."""
    return sum(each.node_ip not in lost for each in deployment.running)


def _lost_nodes(view: ClusterView) -> frozenset[str]:
    """Return the nodes with replicas but with pods that take no requests.

    None where addresses cannot be compared, or where such pods are never ready.
    """
    details = view.serve.details
    if details is None or serve_status.nodes(details).isdisjoint(view.endpoints):
        return frozenset()
    if not serve_proxies.reported(details).are_on_workers_of(view.cluster.raw_spec):
        return frozenset()
    return serve_status.serving_nodes(details).difference(
        view.endpoints, [view.cluster.status.head.pod_ip]
    )
