"""What a cluster is observed to carry, and what it is observed to have lost (ADR 41).

Capacity is counted from running replicas of the applications that the cluster's Serve config asks
for and that serve a route prefix. Serve's word for a status decides nothing alone: an application
that is DEPLOYING may have all its replicas, and one that is RUNNING none. Each application is
judged by itself. One that was never seen to serve on the cluster is no lost capacity.

A loss takes evidence: Kubernetes' own (RayCluster, head pod, endpoints) or an answer of the
dashboard. A dashboard without an answer is none, since the proxies serve without it. What may pass
by itself (an application that is on its way, proxies without health) counts after `GRACE`.

A capacity takes proof: for more traffic, Serve must run with the very capacity that was asked for,
on a read made after the last PUT; applications, replicas and proxies must be there, and the backend
must have a ready endpoint (spec rayservice §8.10 G1, G2).
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common.ray import serve_config, serve_proxies, serve_status, submit
from common.ray.serve_status import Application, AppState, Deployment, ServeDetails
from common.ray.view import SILENT, head_is_ready
from common.upgrade.traffic_record import WHOLE, Share
from traffic_manager.migration.state import Side
from traffic_manager.observed import Baseline, ClusterView
from traffic_manager.status import traffic_record

GRACE: Final = timedelta(seconds=3)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The most traffic that a cluster's observed health allows, and why it is not more."""

    sustainable: int = WHOLE
    """The percent of the traffic that every application can carry."""
    surviving: int = WHOLE
    """The percent that its best application can carry; 0 for a cluster that serves nothing."""
    reason: str = ""


HEALTHY: Final = Health()


def of(view: ClusterView, *, now: datetime) -> Health:
    """Return what is observed of a cluster's health."""
    if (why := _out_of_service(view)) is not None:
        return Health(sustainable=0, surviving=0, reason=why)
    since = view.memory.unhealthy_since
    return _answered(view, lasts=since is not None and now - since >= GRACE)


def side(
    view: ClusterView,
    share: Share,
    *,
    now: datetime,
    goal: str | None = None,
    is_active: bool = False,
) -> Side:
    """Return a cluster as the state machine sees it.

    With a goal it must have that Serve config to get more traffic. The active cluster keeps its
    capacity while its dashboard alone is silent, so that traffic can go back to it. So does a
    pending one that was seen well, but only for the traffic of a cluster that serves nothing.
    """
    reason = next(_reasons(view, share, goal), None)
    details, found = view.declared, of(view, now=now)
    is_silent = is_unknown(view) and bool(view.endpoints)
    ready = min(found.sustainable, ready_capacity(view, share.capacity))
    rescue = min(found.surviving, surviving_capacity(view, share.capacity))
    if is_silent and (is_active or view.memory.baseline is not None):
        ready, rescue = share.capacity if is_active else 0, share.capacity
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
        is_alive=found.surviving > 0,
        sustainable=found.sustainable,
        surviving=found.surviving,
        unhealthy_reason=found.reason,
        ready=ready,
        rescue=rescue,
        sent=traffic_record.sent(share),
        was_shed=share.shed_at is not UNSET,
        healthy_since=view.memory.healthy_since,
    )


def is_answering(view: ClusterView) -> bool:
    """Return whether a cluster's dashboard is expected to take a Serve config."""
    return head_is_ready(view.cluster) and view.serve.silences < SILENT


def can_serve(view: ClusterView, capacity: int) -> bool:
    """Return whether all applications of a cluster run, so that its answers tell about them."""
    details = view.declared
    is_running = details is not None and serve_status.is_running(details)
    return is_running and ready_capacity(view, capacity) > 0


def ready_capacity(view: ClusterView, capacity: int) -> int:
    """Return the percent of the traffic that each application can take over, whatever config it runs."""
    return min(_capacities(view, capacity), default=0)


def surviving_capacity(view: ClusterView, capacity: int) -> int:
    """Return the percent that the applications which serve at all can take over.

    It counts where the other cluster serves nothing: an application that serves on neither cluster
    keeps no other one from its requests.
    """
    return min(filter(None, _capacities(view, capacity)), default=0)


def baseline(view: ClusterView, weight: int) -> Baseline | None:
    """Return what carries a weight now; None where a cluster is not well, or its Serve did not answer."""
    answer = _read(view)
    if (
        answer is None
        or _out_of_service(view) is not None
        or _answered(view, lasts=True) != HEALTHY
    ):
        return None
    parts = [each for app in answer.apps.values() for each in app.parts if each.running > 0]
    return Baseline(
        weight=weight,
        replicas={each.name: each.running for each in parts},
        ready={each.name: _carried(view, each, answer.capacity) for each in parts},
        served=frozenset(name for name, app in answer.apps.items() if app.serves),
        nodes=answer.details.serving_nodes.intersection(view.endpoints),
    )


def is_unknown(view: ClusterView) -> bool:
    """Return whether nothing is observed of a cluster's health: its dashboard alone is silent."""
    return view.serve.details is None and _out_of_service(view) is None


def _reasons(view: ClusterView, share: Share, goal: str | None) -> Iterator[str]:
    """Yield why a cluster may not be sent more requests."""
    config = view.given if goal is None else goal
    if not head_is_ready(view.cluster):
        yield "its head pod is not ready"
    if view.cluster.metadata.deletion_timestamp is not None:
        yield "its RayCluster is being deleted"
    if config is None or not submit.has(view, config):
        yield "it does not have the Serve config yet"
    details = view.declared
    if details is None:
        yield view.serve.problem or "its dashboard was not asked yet"
        return
    if serve_status.capacity(details) != share.capacity:
        yield f"Serve runs with target capacity {serve_status.capacity(details):g} instead of {share.capacity}"
    unknown = serve_status.missing(details, serve_config.read(config or "").applications)
    if unknown is not None:
        yield unknown
    if not serve_status.is_running(details):
        yield serve_status.not_serving(details) or "its applications do not run"
    if (unproxied := serve_status.unproxied(details)) is not None:
        yield unproxied
    if _lacks_endpoints(view):
        yield "none of its pods is ready to be sent requests"


def _out_of_service(view: ClusterView) -> str | None:
    """Return what Kubernetes observes that keeps a cluster from serving anything.

    A Service without an EndpointSlice is new: nobody has looked at its pods yet.
    """
    if view.cluster.metadata.deletion_timestamp is not None:
        return "its RayCluster is being deleted"
    if not head_is_ready(view.cluster):
        return "its head pod is not ready"
    if view.has_slices and _lacks_endpoints(view):
        return "none of its pods is ready to be sent requests"
    return None


def _lacks_endpoints(view: ClusterView) -> bool:
    """Return whether no pod takes requests, of a cluster whose pods should."""
    return not view.endpoints and not serve_proxies.reported(view.serve.details).are_disabled


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment that should have replicas."""

    name: str
    """`<application>/<deployment>`."""
    target: int
    running: int
    """Its running replicas, but those on nodes that were lost."""
    ready: int
    """Its running replicas on nodes that take requests."""


class _App(msgspec.Struct, frozen=True, kw_only=True):
    """An application that the config asks for, by its replicas."""

    status: str
    is_deploying: bool
    """Whether it is on its way to another state."""
    has_failed: bool
    has_deployments: bool
    parts: tuple[_Part, ...]

    @property
    def serves(self) -> bool:
        """Return whether each deployment has a replica, or needs none.

        An old Ray reports no replicas; then the status is all there is.
        """
        if self.parts:
            return all(each.running > 0 for each in self.parts)
        is_over = self.has_failed or self.status == AppState.DELETING
        return self.has_deployments and not is_over

    @property
    def idle(self) -> str | None:
        """Return the first deployment without a replica."""
        return next((each.name for each in self.parts if each.running == 0), None)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of a dashboard, read once."""

    details: ServeDetails
    capacity: int
    """The target capacity that Serve runs with."""
    apps: dict[str, _App]
    routed: frozenset[str]
    """The applications that take requests, also those that the answer lacks."""


def _read(view: ClusterView) -> _Answer | None:
    details = view.declared
    if details is None:
        return None
    lost, unready = _lost_nodes(view), _unready_nodes(view)
    return _Answer(
        details=details,
        capacity=int(serve_status.capacity(details)),
        apps={
            name: _App(
                status=app.status or "unknown",
                is_deploying=app.status != AppState.RUNNING and not app.has_failed,
                has_failed=app.has_failed,
                has_deployments=bool(app.deployments),
                parts=tuple(_parts(name, app, lost, unready)),
            )
            for name, app in sorted(details.named().items())
        },
        routed=view.routed,
    )


def _parts(
    name: str, app: Application, lost: frozenset[str], unready: frozenset[str]
) -> Iterator[_Part]:
    for deployment_name, deployment in sorted(app.deployments.items()):
        if deployment.replicas is not None and (target := deployment.target_num_replicas):
            yield _Part(
                name=f"{name}/{deployment_name}",
                target=target,
                running=_running(deployment, lost),
                ready=_running(deployment, unready),
            )


class _Loss(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of one application that served."""

    left: int
    """The percent of the traffic that it can carry."""
    reason: str
    may_pass: bool
    """Whether it is on its way to another state, so that the loss may end by itself."""


def _answered(view: ClusterView, *, lasts: bool) -> Health:
    """Return what the answer of its dashboard shows of a cluster; `lasts` is whether `GRACE` is over."""
    answer = _read(view)
    if answer is None:
        return HEALTHY
    if lasts and serve_status.has_no_proxy(answer.details):
        return Health(sustainable=0, surviving=0, reason="no proxy is healthy")
    apps = answer.apps
    alive = {name for name in answer.routed if name in apps and apps[name].serves}
    if not alive:
        may_pass = not apps or any(each.is_deploying for each in apps.values())
        if may_pass and not lasts:
            return HEALTHY
        return Health(sustainable=0, surviving=0, reason=_idle(apps))
    losses = {name: loss for name in answer.routed if (loss := _loss(view, answer, name))}
    counted = {name: loss for name, loss in losses.items() if lasts or not loss.may_pass}
    if not counted:
        return HEALTHY
    worst = min(counted.values(), key=lambda each: (each.left, each.reason))
    best = max(counted[name].left if name in counted else WHOLE for name in alive)
    return Health(sustainable=worst.left, surviving=best, reason=worst.reason)


def _idle(apps: dict[str, _App]) -> str:
    """Return why no application of a cluster serves."""
    idle = next((each.idle for each in apps.values() if each.idle is not None), None)
    if idle is not None:
        return f"no replica of {idle} is running"
    statuses = (f"application {name} is {app.status}" for name, app in apps.items())
    return next(statuses, "no application is deployed")


def _loss(view: ClusterView, answer: _Answer, name: str) -> _Loss | None:
    """Return what an application lost since all was well; None where it serves as before, or never did.

    A target that grew is no loss, and neither is a rounded one: the better of both counts.
    """
    before, app = view.memory.baseline, answer.apps.get(name)
    if before is None or name not in before.served:
        return None
    if app is None:
        return _Loss(left=0, reason=f"application {name} is not deployed", may_pass=True)
    if not app.serves:
        is_certain = app.idle is not None and not app.is_deploying
        status = f"application {name} is {app.status}"
        reason = status if app.idle is None else f"no replica of {app.idle} is running"
        return _Loss(left=0, reason=reason, may_pass=not is_certain)
    found: _Loss | None = None
    for part in app.parts:
        had = before.replicas.get(part.name, 0)
        if part.running >= min(had, part.target):
            continue
        of_target = answer.capacity * part.running // part.target
        left = max(of_target, before.weight * part.running // had)
        reason = f"{part.running} of {had} replicas of {part.name} are left"
        if found is None or left < found.left:
            found = _Loss(left=left, reason=reason, may_pass=app.is_deploying)
    return found


def _capacities(view: ClusterView, capacity: int) -> list[int]:
    """Return the percent of the traffic that each application can take over."""
    answer = _read(view)
    if (
        answer is None
        or _lacks_endpoints(view)
        or _out_of_service(view) is not None
        or serve_status.has_no_proxy(answer.details)
    ):
        return []
    most = min(capacity, answer.capacity)
    return [_capacity(view, answer.apps.get(name), most) for name in answer.routed]


def _capacity(view: ClusterView, app: _App | None, most: int) -> int:
    if app is None or not app.has_deployments:
        return 0
    if app.parts:
        return min(_carried(view, each, most) for each in app.parts)
    return most if app.status == AppState.RUNNING else 0


def _carried(view: ClusterView, part: _Part, most: int) -> int:
    """Return the percent of the traffic that the replicas of a deployment can take over.

    Where the target grew, the replicas that were there before carry as much as they did.
    """
    before = view.memory.baseline
    had = 0 if before is None else before.replicas.get(part.name, 0)
    of_before = 0 if before is None or had == 0 else before.ready[part.name] * part.ready // had
    return min(most, max(most * part.ready // part.target, of_before))


def _running(deployment: Deployment, without: frozenset[str]) -> int:
    """Count the running replicas but those on some nodes."""
    return sum(each.node_ip not in without for each in deployment.running)


def _lost_nodes(view: ClusterView) -> frozenset[str]:
    """Return the nodes whose pods took requests and had replicas when all was well, and take none now.

    A worker that cannot be Ready, for it has no proxy or declares another port, lost nothing:
    requests reach its replicas through the head. It may have been Ready before Serve started.
    """
    before, proxies = view.memory.baseline, serve_proxies.reported(view.serve.details)
    if before is None or not _is_comparable(view):
        return frozenset()
    if not proxies.are_on_workers_of(view.cluster.raw_spec):
        return frozenset()
    return before.nodes.difference(view.endpoints)


def _unready_nodes(view: ClusterView) -> frozenset[str]:
    """Return the nodes with replicas whose pods take no requests, although they have a proxy."""
    details = view.serve.details
    if details is None or not _is_comparable(view):
        return frozenset()
    if not serve_proxies.reported(details).are_on_workers_of(view.cluster.raw_spec):
        return _lost_nodes(view)
    return details.serving_nodes.difference(view.endpoints, [view.cluster.status.head.pod_ip])


def _is_comparable(view: ClusterView) -> bool:
    """Return whether Ray and Kubernetes have an address in common; a pod may have two of them."""
    details = view.serve.details
    return details is not None and not details.nodes.isdisjoint(view.endpoints)
