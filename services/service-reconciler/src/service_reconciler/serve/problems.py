"""Why does a cluster not serve? One line for the user, from whatever knows best.

KubeRay leaves these to the operator's log. The texts are made so that they stay the same while the trouble does: no counters,
no addresses, no alternation between "ErrImagePull" and "ImagePullBackOff". Spec rayservice §17.1, §18 W15.
"""

from datetime import datetime, timedelta
from typing import Final

from common.api.core import ContainerStatus, Pod
from common.problem import Problem
from common.ray import serve_config, service_ports, submit
from common.ray.serve_status import AppState
from common.ray.view import head_is_ready
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.reasons import EventReason, Reason
from service_reconciler.resources.services import NO_PORT

LONGEST: Final = 300
REPORTED_AFTER: Final = timedelta(seconds=8)
"""A pod that cannot be placed for this long is reported; the autoscaler may need a moment."""
UNREACHABLE_AFTER: Final = 3
_PULL_TROUBLE: Final = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
}
_CONFIG_TROUBLE: Final = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


class ServiceProblem(Problem[Reason], frozen=True, kw_only=True):
    """Something that keeps a cluster from serving what the RayService asks for."""

    code: Reason = Reason.PROGRESS_DEADLINE_EXCEEDED
    """The cause of a stalled upgrade, if this lasts too long."""
    event: EventReason
    """The reason of its Event."""
    is_reported: bool = False
    """Whether the write that failed has its own Event."""


def find(observed: Observed, view: ClusterView | None, *, now: datetime) -> ServiceProblem | None:
    """Return what is wrong first, in the order in which a user would have to fix it."""
    problem = _config_problem(observed, view, now=now)
    if problem is not None or view is None:
        return problem
    return _cluster_problem(observed, view, now=now) or _unrecorded(observed, view) or _unsent(observed, view, now=now)


def _config_problem(observed: Observed, view: ClusterView | None, *, now: datetime) -> ServiceProblem | None:
    config, code = observed.service.spec.serve_config_v2, Reason.APPLICATION_NOT_READY
    if serve_config.is_empty(config):
        text = "spec.serveConfigV2 is empty: no application to serve"
        return ServiceProblem(event=EventReason.EMPTY_SERVE_CONFIG, message=text, code=code)
    wrong = serve_config.read(config).problem
    if wrong is not None:
        return ServiceProblem(event=EventReason.FAILED_TO_UPDATE_APPLICATIONS, message=wrong, code=code)
    refused = view.refused if view is not None and not _has_arrived(view, config) else None
    if refused is None or refused.config != config or refused.retry_at + REPORTED_AFTER < now:
        return None
    what = "Ray refused the Serve config" if refused.is_answer else "the Serve config could not be sent"
    text = f"{what}: {_short(refused.text)}"
    return ServiceProblem(event=EventReason.FAILED_TO_UPDATE_APPLICATIONS, message=text, is_reported=True, code=code)


def _has_arrived(view: ClusterView, config: str) -> bool:
    """Return whether Serve reports a config as deployed: the answer to its PUT was lost, and nothing else."""
    details = view.serve.details
    return details is not None and bool(details.applications) and submit.has(view, config)


def _unrecorded(observed: Observed, view: ClusterView) -> ServiceProblem | None:
    """Return why the active cluster cannot get its capacity back in a rollback."""
    details = view.serve.details
    is_back = observed.is_incremental and view is observed.active and observed.pending is not None
    if not is_back or view.given is not None or details is None or not details.applications:
        return None
    text = (
        f"RayCluster {view.name} cannot get its capacity back: nobody recorded its Serve config, and Serve does not report "
        "it; to go forward, ask for the spec of the pending cluster again"
    )
    return ServiceProblem(event=EventReason.SERVE_CONFIG_UNKNOWN, message=text)


def _unsent(observed: Observed, view: ClusterView, *, now: datetime) -> ServiceProblem | None:
    """Return that traffic-manager has not sent the config for a while; what this service sends has its own texts."""
    since = view.lacks_goal_since
    if not observed.is_incremental or since is None or now - since < REPORTED_AFTER:
        return None
    text = (
        f"RayCluster {view.name} does not have the Serve config of the spec; the Events of the RayService report what keeps "
        "traffic-manager from sending it"
    )
    code = Reason.APPLICATION_NOT_READY
    return ServiceProblem(event=EventReason.FAILED_TO_UPDATE_APPLICATIONS, message=text, is_reported=True, code=code)


def _cluster_problem(observed: Observed, view: ClusterView, *, now: datetime) -> ServiceProblem | None:
    if view.cluster.spec.suspend:
        text = f"RayCluster {view.name} is suspended by its queue"
        return ServiceProblem(event=EventReason.CLUSTER_NOT_RUNNING, message=text)
    if not service_ports.of_serve(view.cluster.raw_spec) and "serveService" not in observed.service.raw_spec:
        return ServiceProblem(event=EventReason.NO_SERVE_PORT, message=NO_PORT)
    return _failure_of(view) or _pod_problem(view, now=now) or _serve_problem(view)


def _failure_of(view: ClusterView) -> ServiceProblem | None:
    for condition in view.cluster.status.conditions:
        if condition.type == "ReplicaFailure" and condition.status == "True":
            text = f"RayCluster {view.name}: {condition.reason}: {_short(condition.message)}"
            is_quota = "exceeded quota" in condition.message
            code = Reason.QUOTA_EXCEEDED if is_quota else Reason.PROGRESS_DEADLINE_EXCEEDED
            return ServiceProblem(event=EventReason.CLUSTER_NOT_RUNNING, message=text, code=code)
    return None


def _pod_problem(view: ClusterView, *, now: datetime) -> ServiceProblem | None:
    for pod in view.pods:
        if pod.is_running_and_ready or pod.metadata.deletion_timestamp is not None:
            continue
        found = _container_problem(pod) or _placement_problem(pod, now=now)
        if found is not None:
            return found
    return None


def _container_problem(pod: Pod) -> ServiceProblem | None:
    images = {each.name: each.image for each in pod.spec.containers}
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        text = _waiting_problem(container, images.get(container.name, ""))
        if text is not None:
            waiting = container.state.waiting
            is_image = waiting is not None and waiting.reason in _PULL_TROUBLE
            code = Reason.IMAGE_PULL_FAILED if is_image else Reason.PROGRESS_DEADLINE_EXCEEDED
            text = f"pod {pod.metadata.name}: {text}"
            return ServiceProblem(event=EventReason.PODS_NOT_STARTING, message=text, code=code)
    return None


def _waiting_problem(container: ContainerStatus, image: str) -> str | None:
    waiting = container.state.waiting
    if waiting is None:
        return None
    if waiting.reason in _PULL_TROUBLE:
        return f"the image {image or 'of ' + container.name} cannot be pulled"
    if waiting.reason in _CONFIG_TROUBLE:
        return f"container {container.name}: {waiting.reason}: {_short(waiting.message)}"
    if waiting.reason == "CrashLoopBackOff":
        return f"container {container.name} keeps ending after its start"
    return None


def _placement_problem(pod: Pod, *, now: datetime) -> ServiceProblem | None:
    created = pod.metadata.creation_timestamp
    placed = pod.condition("PodScheduled")
    if placed is None or placed.status != "False" or created is None or now - created < REPORTED_AFTER:
        return None
    text = f"pod {pod.metadata.name} cannot be placed on a node: {_short(placed.message)}"
    return ServiceProblem(event=EventReason.PODS_NOT_STARTING, message=text, code=Reason.INSUFFICIENT_CAPACITY)


def _serve_problem(view: ClusterView) -> ServiceProblem | None:
    if not head_is_ready(view.cluster):
        return None
    code = Reason.APPLICATION_NOT_READY
    if view.serve.details is None:
        if view.serve.failures < UNREACHABLE_AFTER:
            return None
        return ServiceProblem(event=EventReason.DASHBOARD_UNREACHABLE, message=_short(view.serve.problem), code=code)
    for name, app in sorted(view.serve.details.named().items()):
        if app.status in {AppState.DEPLOY_FAILED, AppState.UNHEALTHY}:
            text = f"application {name} is {app.status}: {_short(app.message)}"
            return ServiceProblem(event=EventReason.APPLICATION_NOT_RUNNING, message=text, code=code)
    return None


def _short(text: str) -> str:
    """Return the most useful lines of a long text: the first line and, of a traceback, the last."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    short = lines[0] if len(lines) == 1 else f"{lines[0]} … {lines[-1]}"
    return short if len(short) <= LONGEST else short[: LONGEST // 2] + " … " + short[-LONGEST // 2 :]
