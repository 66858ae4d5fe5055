"""Health of a cluster: the traffic that the cluster can carry, and what it has lost (ADR 41).

Capacity is counted in running replicas of the applications that the cluster's Serve config asks for
and that serve a route prefix. Serve's status alone decides nothing: an application that is
DEPLOYING may have all its replicas, and an application that is RUNNING may have none. Each
application is judged by itself. An application that never served on the cluster is no lost
capacity.

Lost capacity needs evidence, from Kubernetes (RayCluster, head pod, endpoints) or from an answer of
the Ray dashboard. A silent dashboard is no evidence, because the proxies serve without it. A loss
that may end by itself (an application that is deploying, proxies without health, a pod that exists
and is not ready) counts after `GRACE`.

More traffic needs proof. Serve must run with the requested target capacity, read after the last
PUT; applications, replicas and proxies must be there, and the backend Service must have a ready
endpoint (spec rayservice §8.10 G1, G2).

In the functions, `view` is a cluster with the last answer of its dashboard, and `share` its entry
in the traffic record.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common.ray import serve_proxies, serve_status, submit
from common.ray.serve_proxies import ServeProxies
from common.ray.serve_status import Application, AppState, Deployment, ServeDetails
from common.ray.view import SILENT, head_is_ready
from common.upgrade.traffic_record import WHOLE, ClusterTraffic
from traffic_manager.migration.state import ClusterState
from traffic_manager.observed import Baseline, ServedCluster
from traffic_manager.status import traffic_record

GRACE: Final = timedelta(seconds=3)
"""Time that a loss must last if it may end by itself."""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum share of the traffic that a cluster's health permits, with the reason."""

    sustainable: int = WHOLE
    """Percent of the traffic that every application can carry."""
    surviving: int = WHOLE
    """Percent of the traffic that the best application can carry; 0 if no application serves."""
    reason: str = ""


HEALTHY: Final = Health()


def assess_health(view: ServedCluster, *, now: datetime) -> Health:
    """Return the observed health of a cluster.

    A loss that may end by itself counts after `GRACE`.
    """
    if (why := _find_outage(view)) is not None:
        return Health(sustainable=0, surviving=0, reason=why)
    since = view.memory.unhealthy_since
    return _assess_answer(view, lasts=since is not None and now - since >= GRACE)


def build_state(
    view: ServedCluster,
    share: ClusterTraffic,
    *,
    now: datetime,
    goal: str | None = None,
    is_active: bool = False,
) -> ClusterState:
    """Return the state of a cluster, as input of the decisions about weights and capacities.

    With a `goal`, the cluster may get more traffic only if it has that Serve config. If only its
    dashboard is silent, the capacity of the active cluster still counts as ready, so that traffic
    can return to it. The capacity of a silent pending cluster counts only if the cluster was
    healthy before, and only for traffic from a cluster that serves nothing.
    """
    reason = next(_list_reasons_against_traffic(view, share, goal), None)
    details, assessment = view.declared, assess_health(view, now=now)
    is_silent = is_unknown(view) and bool(view.endpoints)
    ready = min(assessment.sustainable, ready_capacity(view, share.capacity))
    rescue = min(assessment.surviving, surviving_capacity(view, share.capacity))
    if is_silent and (is_active or view.memory.baseline is not None):
        ready, rescue = share.capacity if is_active else 0, share.capacity
    proven = 0
    if reason is None and details is not None:
        proven = min(ready, share.capacity * serve_status.running_percent(details) // 100)
        reason = serve_status.not_serving(details)
    return ClusterState(
        capacity=share.capacity,
        weight=share.weight,
        moved_at=share.moved_at,
        proven=proven,
        not_ready_reason=reason or "",
        reported=None if details is None or view.given is None else serve_status.capacity(details),
        is_alive=assessment.surviving > 0,
        sustainable=assessment.sustainable,
        surviving=assessment.surviving,
        unhealthy_reason=assessment.reason,
        ready=ready,
        rescue=rescue,
        sent=traffic_record.get_max_sent_weight(share),
        was_shed=share.shed_at is not UNSET,
        healthy_since=view.memory.healthy_since,
    )


def is_answering(view: ServedCluster) -> bool:
    """Return whether a cluster's dashboard can be expected to accept a Serve config."""
    return head_is_ready(view.cluster) and view.serve.silences < SILENT


def can_serve(view: ServedCluster, capacity: int) -> bool:
    """Return whether all applications of a cluster run and the cluster has ready capacity.

    Before that, the answers of its applications say nothing about the quality of its version.
    """
    details = view.declared
    is_running = details is not None and serve_status.is_running(details)
    return is_running and ready_capacity(view, capacity) > 0


def ready_capacity(view: ServedCluster, capacity: int) -> int:
    """Return the percent of the traffic that every application of a cluster can take over.

    `capacity` is the cluster's target capacity. Which Serve config the cluster runs does not
    matter.
    """
    return min(_get_application_capacities(view, capacity), default=0)


def surviving_capacity(view: ServedCluster, capacity: int) -> int:
    """Return the percent of the traffic that every application with capacity can take over.

    This percentage applies if the other cluster serves nothing. An application that serves on
    neither cluster must not keep the other applications from their requests.
    """
    return min(filter(None, _get_application_capacities(view, capacity)), default=0)


def build_baseline(view: ServedCluster, weight: int) -> Baseline | None:
    """Return the replicas and nodes with which a cluster now carries its traffic `weight`.

    None if the cluster is unhealthy or its dashboard is silent.
    """
    answer = _read_answer(view)
    if (
        answer is None
        or _find_outage(view) is not None
        or _assess_answer(view, lasts=True) != HEALTHY
    ):
        return None
    parts = [part for app in answer.apps.values() for part in app.parts if part.running > 0]
    return Baseline(
        weight=weight,
        replicas={part.name: part.running for part in parts},
        ready={part.name: _get_deployment_capacity(view, part, answer.capacity) for part in parts},
        served=frozenset(name for name, app in answer.apps.items() if app.serves),
        nodes=answer.details.serving_nodes.intersection(view.endpoints),
    )


def is_unknown(view: ServedCluster) -> bool:
    """Return whether a cluster's health is unknown.

    It is unknown if the dashboard does not answer and nothing else shows that the cluster is out of
    service.
    """
    return view.serve.details is None and _find_outage(view) is None


def _list_reasons_against_traffic(
    view: ServedCluster, share: ClusterTraffic, goal: str | None
) -> Iterator[str]:
    """Yield the reasons why a cluster may not get more traffic; none if it may."""
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
        yield (
            f"Serve runs with target capacity {serve_status.capacity(details):g} instead of "
            f"{share.capacity}"
        )
    unknown = serve_status.missing(details, view.parse(config or "").applications)
    if unknown is not None:
        yield unknown
    if not serve_status.is_running(details):
        yield serve_status.not_serving(details) or "its applications do not run"
    if (unproxied := serve_status.unproxied(details)) is not None:
        yield unproxied
    if _lacks_endpoints(view):
        yield "none of its pods is ready to be sent requests"


def _find_outage(view: ServedCluster) -> str | None:
    """Return the Kubernetes evidence that a cluster cannot serve at all; None without evidence.

    A Service without an EndpointSlice is new, so its missing endpoints are no evidence.
    """
    if view.cluster.metadata.deletion_timestamp is not None:
        return "its RayCluster is being deleted"
    if not head_is_ready(view.cluster):
        return "its head pod is not ready"
    if view.has_slices and _lacks_endpoints(view):
        return "none of its pods is ready to be sent requests"
    return None


def _lacks_endpoints(view: ServedCluster) -> bool:
    """Return whether the cluster runs Serve proxies, but none of its pods is ready for requests."""
    return not view.endpoints and not _get_proxies(view).are_disabled


def _get_proxies(view: ServedCluster) -> ServeProxies:
    """Return the proxies that Ray reports or, while Ray is silent, that the config asks for."""
    if view.serve.details is None and view.given:
        return serve_proxies.asked(view.parse(view.given).to_json())
    return serve_proxies.reported(view.serve.details)


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of replicas of one deployment."""

    name: str
    """The deployment as `<application>/<deployment>`."""
    target: int
    running: int
    """Number of running replicas, without replicas on lost nodes."""
    ready: int
    """Number of running replicas on nodes that take requests."""


class _App(msgspec.Struct, frozen=True, kw_only=True):
    """State of one application of a cluster, with its deployments that should have replicas."""

    status: str
    is_deploying: bool
    """Whether the application is changing to another state."""
    has_failed: bool
    has_deployments: bool
    parts: tuple[_Part, ...]

    @property
    def serves(self) -> bool:
        """Whether each deployment has a running replica or needs none.

        An old Ray version reports no replicas; the application's status then decides.
        """
        if self.parts:
            return all(part.running > 0 for part in self.parts)
        is_over = self.has_failed or self.status == AppState.DELETING
        return self.has_deployments and not is_over

    @property
    def idle(self) -> str | None:
        """Name of the first deployment without a running replica; None if all have one."""
        return next((part.name for part in self.parts if part.running == 0), None)


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The last answer of a cluster's dashboard, with replicas counted per deployment."""

    details: ServeDetails
    capacity: int
    """Target capacity in percent that Serve runs with."""
    apps: dict[str, _App]
    routed: frozenset[str]
    """Applications with a route prefix in the Serve config, also if the answer lacks them."""


def _read_answer(view: ServedCluster, *, lasts: bool = True) -> _Answer | None:
    """Return the last answer of a cluster's dashboard; None if there was no answer.

    `lasts` is True if the cluster has been unhealthy for at least `GRACE`. Otherwise, replicas in a
    pod that exists and is not ready still count as running: requests reach them through other pods'
    proxies.
    """
    details = view.declared
    if details is None:
        return None
    lost, unready = _lost_nodes(view), _unready_nodes(view)
    if not lasts:
        lost -= view.unready
    return _Answer(
        details=details,
        capacity=int(serve_status.capacity(details)),
        apps={
            name: _App(
                status=app.status or "unknown",
                is_deploying=app.status != AppState.RUNNING and not app.has_failed,
                has_failed=app.has_failed,
                has_deployments=bool(app.deployments),
                parts=tuple(_count_replicas(name, app, lost, unready)),
            )
            for name, app in sorted(details.named().items())
        },
        routed=view.routed,
    )


def _count_replicas(
    name: str, app: Application, lost: frozenset[str], unready: frozenset[str]
) -> Iterator[_Part]:
    for deployment_name, deployment in sorted(app.deployments.items()):
        if deployment.replicas is not None and (target := deployment.target_num_replicas):
            yield _Part(
                name=f"{name}/{deployment_name}",
                target=target,
                running=_count_running(deployment, lost),
                ready=_count_running(deployment, unready),
            )


class _Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Remaining capacity of an application that could carry more before."""

    left: int
    """Percent of the traffic that the application can still carry."""
    reason: str
    may_pass: bool
    """Whether the application is changing its state, so that the loss may end by itself."""


def _assess_answer(view: ServedCluster, *, lasts: bool) -> Health:
    """Return the health that the answer of a cluster's dashboard shows.

    `lasts` is True if the cluster has been unhealthy for at least `GRACE`. Losses that may end by
    themselves count only then.
    """
    answer = _read_answer(view, lasts=lasts)
    if answer is None:
        return HEALTHY
    if lasts and serve_status.has_no_proxy(answer.details):
        return Health(sustainable=0, surviving=0, reason="no proxy is healthy")
    apps = answer.apps
    alive = {name for name in answer.routed if name in apps and apps[name].serves}
    if not alive:
        may_pass = not apps or any(app.is_deploying for app in apps.values())
        if may_pass and not lasts:
            return HEALTHY
        return Health(sustainable=0, surviving=0, reason=_describe_idle_application(apps))
    losses = {name: loss for name in answer.routed if (loss := _find_loss(view, answer, name))}
    counted = {name: loss for name, loss in losses.items() if lasts or not loss.may_pass}
    if not counted:
        return HEALTHY
    worst = min(counted.values(), key=lambda answered: (answered.left, answered.reason))
    best = max(counted[name].left if name in counted else WHOLE for name in alive)
    return Health(sustainable=worst.left, surviving=best, reason=worst.reason)


def _describe_idle_application(apps: dict[str, _App]) -> str:
    idle = next((app.idle for app in apps.values() if app.idle is not None), None)
    if idle is not None:
        return f"no replica of {idle} is running"
    statuses = (f"application {name} is {app.status}" for name, app in apps.items())
    return next(statuses, "no application is deployed")


def _find_loss(view: ServedCluster, answer: _Answer, name: str) -> _Loss | None:
    """Return the loss of application `name` since the last healthy state; None without a loss.

    An application that never served has no loss. A larger or rounded target is no loss either, so
    the remaining capacity is computed from the target and from the earlier replicas. The larger of
    the two results counts.
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
    loss: _Loss | None = None
    for part in app.parts:
        had = before.replicas.get(part.name, 0)
        if part.running >= min(had, part.target):
            continue
        of_target = answer.capacity * part.running // part.target
        left = max(of_target, before.weight * part.running // had)
        reason = f"{part.running} of {had} replicas of {part.name} are left"
        if loss is None or left < loss.left:
            loss = _Loss(left=left, reason=reason, may_pass=app.is_deploying)
    return loss


def _get_application_capacities(view: ServedCluster, capacity: int) -> list[int]:
    answer = _read_answer(view)
    if (
        answer is None
        or _lacks_endpoints(view)
        or _find_outage(view) is not None
        or serve_status.has_no_proxy(answer.details)
    ):
        return []
    most = min(capacity, answer.capacity)
    return [_get_application_capacity(view, answer.apps.get(name), most) for name in answer.routed]


def _get_application_capacity(view: ServedCluster, app: _App | None, most: int) -> int:
    if app is None or not app.has_deployments:
        return 0
    if app.parts:
        return min(_get_deployment_capacity(view, part, most) for part in app.parts)
    return most if app.status == AppState.RUNNING else 0


def _get_deployment_capacity(view: ServedCluster, part: _Part, most: int) -> int:
    """Return the percent of the traffic, at most `most`, that a deployment can take over.

    If Serve's target grew, the earlier replicas still carry as much as before.
    """
    before = view.memory.baseline
    had = 0 if before is None else before.replicas.get(part.name, 0)
    of_before = 0 if before is None or had == 0 else before.ready[part.name] * part.ready // had
    return min(most, max(most * part.ready // part.target, of_before))


def _count_running(deployment: Deployment, without: frozenset[str]) -> int:
    return sum(replica.node_ip not in without for replica in deployment.running)


def _lost_nodes(view: ServedCluster) -> frozenset[str]:
    """Return nodes that had replicas when the cluster was last healthy, and take no requests now.

    A worker pod that cannot be Ready, because it has no proxy or declares a different port, is no
    lost node: requests reach its replicas through the head. Such a pod may have been Ready before
    Serve started.
    """
    before, proxies = view.memory.baseline, _get_proxies(view)
    if before is None or not _is_comparable(view):
        return frozenset()
    if not proxies.are_on_workers_of(view.cluster.raw_spec):
        return frozenset()
    return before.nodes.difference(view.endpoints)


def _unready_nodes(view: ServedCluster) -> frozenset[str]:
    """Return the nodes that have replicas and a proxy in their pod, but take no requests."""
    details = view.serve.details
    if details is None or not _is_comparable(view):
        return frozenset()
    if not serve_proxies.reported(details).are_on_workers_of(view.cluster.raw_spec):
        return _lost_nodes(view)
    return details.serving_nodes.difference(view.endpoints, [view.cluster.status.head.pod_ip])


def _is_comparable(view: ServedCluster) -> bool:
    """Return whether Ray's node addresses can be compared with the endpoints of Kubernetes.

    A pod may have two addresses, so the addresses are comparable if at least one is in both lists.
    """
    details = view.serve.details
    return details is not None and not details.nodes.isdisjoint(view.endpoints)
