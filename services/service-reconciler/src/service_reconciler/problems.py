"""Find why a cluster does not serve or why an upgrade makes no progress, as one line for users.

KubeRay reports these problems only in the operator's log. The text does not change while the
problem lasts: it has no counters and no addresses, and it does not alternate between "ErrImagePull"
and "ImagePullBackOff". Spec rayservice §9.3, §17.1, §18 W15; acceptance 49.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from msgspec import UNSET

from common import labels
from common.api.gateway import RoutingCode, RoutingProblem, route_problem
from common.errors import Problem
from common.ray import (
    autoscaled_capacity,
    ports,
    serve_config,
    serve_proxies,
    start_problems,
    submit,
)
from common.ray.start_problems import StartCode, StartProblem
from common.ray.view import SILENT, head_is_ready
from common.upgrade import controls as upgrade_controls
from common.upgrade import weighted_route
from common.upgrade.gates import GateOutcome
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler import recorded_decisions
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.reasons import EventReason

SETTLES_WITHIN: Final = timedelta(seconds=5)
"""Time after the start of an upgrade before problems of Gateway API objects are reported."""
TAKEN_IN_WITHIN: Final = timedelta(seconds=30)
"""Time that a gateway controller gets to accept a change of a route."""
REMEMBERED: Final = timedelta(minutes=15)
"""Time for which a condition reports that another writer replaced raybus's backends on the route.

A tool that replaced them once will usually do so again.
"""
FOLLOWS_WITHIN: Final = timedelta(seconds=10)
"""Time that Ray's autoscaler gets to start replicas after a move of traffic."""
_REASONS: Final = {
    StartCode.QUOTA_EXCEEDED: Reason.QUOTA_EXCEEDED,
    StartCode.INSUFFICIENT_CAPACITY: Reason.INSUFFICIENT_CAPACITY,
    StartCode.IMAGE_PULL_FAILED: Reason.IMAGE_PULL_FAILED,
}
"""Reason of condition UpgradeStalled for each problem that keeps pods from starting.

For any other problem, the reason is ProgressDeadlineExceeded.
"""


class ServiceProblem(Problem[Reason], frozen=True, kw_only=True):
    """A reason why a cluster does not serve what the RayService asks for.

    `code` becomes the reason of condition UpgradeStalled if the problem lasts too long.
    """

    event: EventReason
    is_reported: bool = False
    """Whether another Event, such as the Event of a failed write, already reports the problem."""


def of_cluster(
    observed: Observed, view: ClusterView | None, *, now: datetime
) -> ServiceProblem | None:
    """Return the first problem of a cluster, in the order in which a user would fix problems.

    None if there is none. Without a cluster (`view` is None), only the Serve config is checked.
    """
    of_view = (
        ()
        if view is None
        else (
            _find_cluster_problems(observed, view, now=now),
            _find_unsent_config(observed, view, now=now),
        )
    )
    return next(chain(_find_config_problems(observed, view, now=now), *of_view), None)


def _find_config_problems(
    observed: Observed, view: ClusterView | None, *, now: datetime
) -> Iterator[ServiceProblem]:
    config, code = observed.service.spec.serve_config_v2, Reason.APPLICATION_NOT_READY
    if serve_config.is_empty(config):
        text = "spec.serveConfigV2 is empty: no application to serve"
        yield ServiceProblem(code, text, event=EventReason.EMPTY_SERVE_CONFIG)
    if (wrong := observed.goal_config.problem) is not None:
        yield ServiceProblem(code, wrong, event=EventReason.FAILED_TO_UPDATE_APPLICATIONS)
    details = view.serve.details if view is not None else None
    # If Serve reports the config as deployed, only the answer to the PUT was lost.
    has_arrived = (
        view is not None
        and details is not None
        and details.applications
        and submit.has(view, config)
    )
    refused = view.refused if view is not None and not has_arrived else None
    if (
        refused is not None
        and refused.config == config
        and refused.retry_at + start_problems.REPORTED_AFTER >= now
    ):
        what = (
            "Ray refused the Serve config"
            if refused.is_answer
            else "the Serve config could not be sent"
        )
        text = f"{what}: {start_problems.shorten(refused.text)}"
        yield ServiceProblem(
            code, text, event=EventReason.FAILED_TO_UPDATE_APPLICATIONS, is_reported=True
        )


def _find_cluster_problems(
    observed: Observed, view: ClusterView, *, now: datetime
) -> Iterator[ServiceProblem]:
    code = Reason.PROGRESS_DEADLINE_EXCEEDED
    if (suspension := start_problems.find_suspension(view.cluster)) is not None:
        yield _build_start_problem(suspension, EventReason.CLUSTER_NOT_RUNNING)
    if (
        not ports.of_serve(view.cluster.raw_spec)
        and "serveService" not in observed.service.raw_spec
    ):
        yield ServiceProblem(code, ports.NO_PORT, event=EventReason.NO_SERVE_PORT)
    for problem in start_problems.of_cluster(view.cluster):
        yield _build_start_problem(problem, EventReason.CLUSTER_NOT_RUNNING)
    for problem in start_problems.of_pods(view.pods, now):
        yield _build_start_problem(problem, EventReason.PODS_NOT_STARTING)
    if head_is_ready(view.cluster):
        yield from _find_serve_problems(view)
        proxies, excludes_head = (
            serve_proxies.reported(view.serve.details),
            observed.service.excludes_head_pod,
        )
        text = serve_proxies.unreachable(
            proxies, view.cluster.raw_spec, excludes_head=excludes_head
        )
        details = view.serve.details
        has_started = details is not None and (details.proxies or proxies.are_disabled)
        if text is not None and has_started:
            yield ServiceProblem(
                Reason.PROGRESS_DEADLINE_EXCEEDED, text, event=EventReason.NO_SERVE_PORT
            )


def _build_start_problem(problem: StartProblem, event: EventReason) -> ServiceProblem:
    code = _REASONS.get(problem.code, Reason.PROGRESS_DEADLINE_EXCEEDED)
    return ServiceProblem(code, problem.message, event=event)


def _find_serve_problems(view: ClusterView) -> Iterator[ServiceProblem]:
    code, details = Reason.APPLICATION_NOT_READY, view.declared
    if details is None and view.serve.failures >= SILENT:
        event = EventReason.DASHBOARD_UNREACHABLE
        if view.serve.is_unauthenticated:
            code, event = Reason.DASHBOARD_UNAUTHORIZED, EventReason.DASHBOARD_UNAUTHORIZED
        yield ServiceProblem(code, start_problems.shorten(view.serve.problem), event=event)
    for name, app in sorted(details.named().items()) if details is not None else ():
        if app.has_failed:
            text = f"application {name} is {app.status}: {start_problems.shorten(app.message)}"
            yield ServiceProblem(code, text, event=EventReason.APPLICATION_NOT_RUNNING)


def _find_unsent_config(
    observed: Observed, view: ClusterView, *, now: datetime
) -> Iterator[ServiceProblem]:
    """Yield why a cluster in a stepwise upgrade lacks the Serve config that traffic-manager sends.

    Yields nothing for other upgrades, in which service-reconciler sends the config itself.
    """
    if not observed.is_incremental:
        return
    details, since = view.serve.details, view.lacks_goal_since
    is_back = view is observed.active and observed.pending is not None
    if is_back and view.given is None and details is not None and details.applications:
        text = (
            f"RayCluster {view.name} cannot get its capacity back: nobody recorded its Serve "
            "config, and Serve does not report "
            "it; to go forward, ask for the spec of the pending cluster again"
        )
        yield ServiceProblem(
            Reason.PROGRESS_DEADLINE_EXCEEDED, text, event=EventReason.SERVE_CONFIG_UNKNOWN
        )
    if since is not None and now - since >= start_problems.REPORTED_AFTER:
        text = (
            f"RayCluster {view.name} does not have the Serve config of the spec; the Events of "
            "the RayService report what keeps "
            "traffic-manager from sending it"
        )
        event = EventReason.FAILED_TO_UPDATE_APPLICATIONS
        yield ServiceProblem(Reason.APPLICATION_NOT_READY, text, event=event, is_reported=True)


def of_gateway(observed: Observed, *, now: datetime) -> ServiceProblem | None:
    """Return the first problem of the Gateway or the routes of a stepwise upgrade, or None."""
    since = recorded_decisions.changed_at(observed.service, ConditionType.UPGRADE_IN_PROGRESS)
    if not observed.is_incremental or since is None or now - since < SETTLES_WITHIN:
        return None
    if (problem := next(_find_routing_problems(observed, now=now), None)) is None:
        return None
    event, text = problem
    # traffic-manager wrote the backends again, and reported it in an Event.
    is_reported = event is EventReason.ROUTE_OVERWRITTEN
    return ServiceProblem(Reason.GATEWAY_NOT_READY, text, event=event, is_reported=is_reported)


def _find_routing_problems(
    observed: Observed, *, now: datetime
) -> Iterator[tuple[EventReason, str]]:
    service, route, grpc = observed.service, observed.route, observed.grpc_route
    where = f"HTTPRoute {service.metadata.namespace}/{weighted_route.name_of(service)}"
    if route is None and weighted_route.is_users(service):
        yield (
            EventReason.ROUTE_NOT_READY,
            f"waiting: {where} does not exist; the annotation {labels.HTTP_ROUTE} names it",
        )
    if route is not None and (why := weighted_route.refusal(service, route)) is not None:
        yield EventReason.ROUTE_NOT_PERMITTED, f"waiting: {where} {why.message}"
    if (trouble := observed.gateway_trouble) is not None:
        hint = " (is the Gateway API installed?)" if trouble.code is RoutingCode.MISSING else ""
        yield EventReason.GATEWAY_NOT_READY, f"waiting: {trouble.message}{hint}"
    changes = [
        moment for moment in (observed.record.changed_at, observed.moved_at) if moment is not None
    ]
    is_late = not changes or now - max(changes) >= TAKEN_IN_WITHIN
    if route is not None and (trouble := route_trouble(observed)) is not None:
        if is_late or not trouble.transient:
            yield EventReason.ROUTE_NOT_READY, f"waiting: {trouble.message}"
    elif grpc is not None:
        trouble = weighted_route.not_ours(service.metadata, grpc.metadata) or route_problem(
            grpc, is_settled=observed.is_settled
        )
        if trouble is not None and (is_late or not trouble.transient):
            what = f"GRPCRoute {grpc.metadata.namespace}/{grpc.metadata.name}"
            yield EventReason.GRPC_ROUTE_NOT_READY, f"waiting: {what} {trouble.message}"
    yield from _find_taken_names(observed)
    overwritten = observed.record.overwritten
    if overwritten is not UNSET and route is not None and now - overwritten.at < REMEMBERED:
        text = (
            f"HTTPRoute {route.metadata.namespace}/{route.metadata.name}: field manager "
            f"{overwritten.by} replaced spec.rules, and requests "
            "failed until raybus had written its backends again; let that tool leave spec.rules "
            "alone"
        )
        yield EventReason.ROUTE_OVERWRITTEN, text


def _find_taken_names(observed: Observed) -> Iterator[tuple[EventReason, str]]:
    """Yield a text for each side route (preview or mirror) whose name is taken by another owner."""
    for route in observed.side_routes.foreign:
        why = weighted_route.not_ours(observed.service.metadata, route.metadata)
        if why is not None:
            where = f"HTTPRoute {route.metadata.namespaced_name}"
            yield EventReason.ROUTE_NOT_PERMITTED, f"waiting: {why.at(where).message}"


def route_trouble(observed: Observed) -> RoutingProblem | None:
    """Return why the Gateway does not apply the current route; None if it applies the route."""
    clusters = [cluster.metadata.name for cluster in observed.clusters]
    return weighted_route.route_trouble(
        observed.service, observed.route, clusters, is_settled=observed.is_settled
    )


def of_parity(observed: Observed, *, is_back: bool, now: datetime) -> ServiceProblem | None:
    """Return the problem of a step that waits until the growing cluster has enough replicas.

    The growing cluster is the active one in a rollback (`is_back`), else the pending one.
    traffic-manager sends a cluster no more traffic than its replicas can carry (ADR 41). The text
    has no numbers, so that it does not change while the autoscaler works.
    """
    source, growing = (
        (observed.pending, observed.active) if is_back else (observed.active, observed.pending)
    )
    if source is None or growing is None or not observed.is_incremental:
        return None
    source_share, share = (
        observed.record.clusters.get(source_share.name) for source_share in (source, growing)
    )
    before, after, changed = source.declared, growing.declared, observed.record.changed_at
    if source_share is None or share is None or before is None or after is None or changed is None:
        return None
    follows_at = changed + FOLLOWS_WITHIN + upgrade_controls.interval_of(observed.service)
    if share.weight >= share.capacity or not observed.controls.parity or now < follows_at:
        return None
    if (
        deployment := autoscaled_capacity.find_lacking_deployment(
            before, source_share.weight, after, share.weight
        )
    ) is None:
        return None
    text = (
        f"waiting: RayCluster {growing.name} runs too few replicas of {deployment} to get more of "
        "the traffic, by the number that "
        f"RayCluster {source.name} runs for its part; Ray's autoscaler starts more as load comes. "
        "For a faster step raise "
        f'min_replicas in serveConfigV2, or set {labels.CAPACITY_PARITY}: "false"'
    )
    return ServiceProblem(
        Reason.INSUFFICIENT_REPLICAS, text, event=EventReason.INSUFFICIENT_REPLICAS
    )


def of_preview(observed: Observed) -> ServiceProblem | None:
    """Return the problem that the preview Service's name belongs to another owner, or None."""
    policy, have = observed.policy, observed.preview_service
    if policy is None or not policy.preview.service or have is None:
        return None
    if (why := weighted_route.not_ours(observed.service.metadata, have.metadata)) is None:
        return None
    text = why.at(f"Service {have.metadata.namespaced_name}").message
    code, event = Reason.PROGRESS_DEADLINE_EXCEEDED, EventReason.SERVICE_NOT_OWNED
    return ServiceProblem(code, text, event=event)


def of_gates(observed: Observed) -> ServiceProblem | None:
    """Return the problem of a step that waits for undecided gates of its UpgradePolicy, or None.

    The text has no numbers, so that it does not change with each request.
    """
    upgrade, policy = observed.upgrade, observed.policy
    inconclusive = (
        gate.title
        for gate, result in observed.answers.items()
        if result.outcome is GateOutcome.INCONCLUSIVE
    )
    lacking = upgrade.lacking if upgrade is not None else ", ".join(inconclusive)
    if policy is None or not lacking:
        return None
    what = "the step lasts" if observed.is_incremental else "no traffic moves"
    text = (
        f"waiting: of the UpgradePolicy {policy.name} the gates {lacking} are not decided yet; "
        f"{what} until they are, "
        f"or until the deadline ({labels.PROGRESS_DEADLINE}). A metric is decided by minRequests "
        "requests, for fewer lower it; a webhook by its answer, a query by its value"
    )
    return ServiceProblem(Reason.GATE_INCONCLUSIVE, text, event=EventReason.GATE_INCONCLUSIVE)
