"""What of its traffic a cluster is observed not to carry: the ground on which traffic leaves it at once (ADR 11).

Observed is what Kubernetes reports of its head pod and of the endpoints behind its Service, and what Serve reports of replicas and
proxies. One failed poll of a dashboard counts for nothing. What may pass by itself (a status of Serve without a lost replica, a
redeployment, dashboards without an answer) counts once it has lasted for `GRACE`.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec

from common.ray import serve_status
from common.ray.serve_status import Application, AppState, Deployment, ServeDetails
from common.ray.view import head_is_ready
from traffic_manager.observed import Baseline, ClusterView

WHOLE: Final = 100
GRACE: Final = timedelta(seconds=3)
SILENT_AFTER: Final = 3
"""Failed polls in a row after which a dashboard counts as dead; one less is enough after `GRACE`."""
_FAILED: Final = {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The most traffic that a cluster's observed health allows, and why it is not more."""

    sustainable: int = WHOLE
    reason: str = ""


DEAD: Final = 0
HEALTHY: Final = Health()


def of(view: ClusterView | None, *, now: datetime) -> Health:
    """Return what is observed of a cluster's health."""
    if view is None:
        return Health(sustainable=DEAD, reason="its RayCluster does not exist")
    if (why := fatal(view)) is not None:
        return Health(sustainable=DEAD, reason=why)
    lasts = view.unhealthy_since is not None and now - view.unhealthy_since >= GRACE
    if lasts and (why := passing(view)) is not None:
        return Health(sustainable=DEAD, reason=why)
    return _partial(view)


def fatal(view: ClusterView) -> str | None:
    """Return what certainly keeps a cluster from serving anything."""
    if (why := _out_of_service(view)) is not None:
        return why
    if view.serve.failures >= SILENT_AFTER:
        return f"its dashboard is silent: {view.serve.problem}"
    details = view.serve.details
    return None if details is None else next(_without_replicas(view, details), None)


def is_silent(view: ClusterView) -> bool:
    """Return whether a cluster's only problem is a silent dashboard: its pods take requests, so it may still serve."""
    return view.serve.details is None and _out_of_service(view) is None


def _out_of_service(view: ClusterView) -> str | None:
    """Return what Kubernetes observes that keeps a cluster from serving anything."""
    if view.cluster.metadata.deletion_timestamp is not None:
        return "its RayCluster is being deleted"
    if not head_is_ready(view.cluster):
        return "its head pod is not ready"
    return "none of its pods is ready to be sent requests" if view.endpoints == 0 else None


def passing(view: ClusterView) -> str | None:
    """Return what keeps a cluster from serving, unless it passes by itself."""
    details = view.serve.details
    if details is None:
        return f"its dashboard is silent: {view.serve.problem}" if view.serve.failures >= SILENT_AFTER - 1 else None
    if not details.applications:
        return "no application is deployed"
    for name, app in sorted(details.named().items()):
        if app.status in _FAILED and _lost(view, app) == 0:
            return f"application {name} is {app.status}"
        if (why := _idle(view, name, app)) is not None:
            return why
    return "no proxy is healthy" if _has_no_proxy(details) else None


def is_healthy(view: ClusterView) -> bool:
    """Return whether a cluster has no observed problem, and its Serve has answered."""
    has_answered = view.serve.details is not None and fatal(view) is None and passing(view) is None
    return has_answered and _partial(view) == HEALTHY


def ready_capacity(view: ClusterView, capacity: int) -> int:
    """Return the percent of the traffic that a cluster can take over, whatever Serve config it runs."""
    details = view.serve.details
    if details is None or fatal(view) is not None or not details.applications or _has_no_proxy(details):
        return 0
    if any(each.status not in {AppState.RUNNING, AppState.UNHEALTHY} for each in details.applications.values()):
        return 0
    runs_with = min(capacity, int(serve_status.capacity(details)))
    shares = (len(reachable(view, each)) * WHOLE // (each.target_num_replicas or 1) for _, each in _counted(details))
    return runs_with * min([WHOLE, *shares]) // WHOLE


def baseline(view: ClusterView, weight: int) -> Baseline | None:
    """Return how many replicas carry a weight now; None when Serve did not answer."""
    details = view.serve.details
    if details is None:
        return None
    return Baseline(weight=weight, replicas={name: len(reachable(view, each)) for name, each in _counted(details)})


def reachable(view: ClusterView, deployment: Deployment) -> list[serve_status.Replica]:
    """Return the running replicas but those on nodes with pods that take no requests any more."""
    lost = _lost_nodes(view)
    return [each for each in deployment.running if each.node_ip not in lost]


def _partial(view: ClusterView) -> Health:
    """Return what the replicas that are left can carry: against their target, or against what carried the traffic before.

    A target that grew makes no cluster unhealthy, and neither does a rounded one: so the better of both counts.
    """
    details, before = view.serve.details, view.baseline
    if details is None or before is None:
        return HEALTHY
    found = HEALTHY
    for name, deployment in _counted(details):
        running, had = len(reachable(view, deployment)), before.replicas.get(name, 0)
        target = deployment.target_num_replicas or 0
        if _is_deploying(details, name) or running >= min(had, target):
            continue
        of_target = int(serve_status.capacity(details)) * running // target
        left = max(of_target, before.weight * running // had)
        if left < found.sustainable:
            found = Health(sustainable=left, reason=f"{running} of {had} replicas of {name} are left")
    return found


def _without_replicas(view: ClusterView, details: ServeDetails) -> Iterator[str]:
    """Yield deployments of which nothing runs; one that is being deployed gets its time."""
    for name, deployment in _counted(details):
        if not reachable(view, deployment) and not _is_deploying(details, name):
            yield f"no replica of {name} is running"


def _idle(view: ClusterView, name: str, app: Application) -> str | None:
    if app.status == AppState.RUNNING:
        return None
    for each, deployment in sorted(app.deployments.items()):
        if deployment.replicas is not None and deployment.target_num_replicas and not reachable(view, deployment):
            return f"no replica of {name}/{each} is running"
    return None


def _lost(view: ClusterView, app: Application) -> int:
    """Count the replicas that an application lacks."""
    return sum(
        max(0, (each.target_num_replicas or 0) - len(reachable(view, each))) for each in app.deployments.values()
    )


def _is_deploying(details: ServeDetails, name: str) -> bool:
    app = details.named().get(name.rpartition("/")[0])
    return app is not None and app.status not in {AppState.RUNNING, *_FAILED}


def _counted(details: ServeDetails) -> Iterator[tuple[str, Deployment]]:
    """Yield the deployments that should have replicas, as `<application>/<deployment>`."""
    for name, app in sorted(details.named().items()):
        for each, deployment in sorted(app.deployments.items()):
            if deployment.replicas is not None and deployment.target_num_replicas:
                yield f"{name}/{each}", deployment


def _has_no_proxy(details: ServeDetails) -> bool:
    if details.proxies is None or details.proxy_location == "Disabled":
        return False
    return not any(each.status == "HEALTHY" for each in details.proxies.values())


def _lost_nodes(view: ClusterView) -> frozenset[str]:
    """Return the nodes with replicas but with pods that take no requests; none where addresses cannot be compared."""
    details = view.serve.details
    if details is None or not view.addresses:
        return frozenset()
    if not serve_status.nodes(details) & view.addresses:
        return frozenset()
    return serve_status.serving_nodes(details) - view.addresses - {view.cluster.status.head.pod_ip}
