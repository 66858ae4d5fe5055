"""Which pods go because they cannot recover.

Only a phase that ends a pod, or a Ray container that has ended and may not restart, counts: crash loops, image pull errors,
failing probes and a long Pending never do (spec raycluster §9.5; acceptance cases 44, 45, 60, 61).
"""

from cluster_reconciler.observed import is_terminating
from common import labels
from common.api.core import ContainerState, Pod

_ENDED = frozenset({"Failed", "Succeeded"})


def is_due(pod: Pod) -> bool:
    """Return whether a pod cannot recover and is not being deleted yet."""
    return not is_terminating(pod) and reason(pod) is not None


def reason(pod: Pod) -> str | None:
    """Return why a pod cannot recover, or None when it may."""
    kind = pod.metadata.labels.get(labels.NODE_TYPE, "")
    if pod.status.phase in _ENDED:
        return (
            f"The {kind} Pod {pod.metadata.name} status is {pod.status.phase} which is a terminal state. KubeRay will "
            "delete the Pod and create new Pods in the next reconciliation if necessary."
        )
    if pod.status.phase == "Running" and pod.spec.restart_policy == "Never" and _ray_state(pod).terminated is not None:
        return (
            f"The Pod status of the {kind} Pod {pod.metadata.name} is {pod.status.phase}, and the Ray container "
            f"terminated status is {_terminated(pod)}. The container is unable to restart due to its restart policy "
            f"{pod.spec.restart_policy}, so KubeRay will delete it."
        )
    return None


def state(pod: Pod) -> str:
    """Describe a pod as the Events about its end do."""
    return (
        f"Pod status: {pod.status.phase}; Pod restart policy: {pod.spec.restart_policy}; "
        f"Ray container terminated status: {_terminated(pod)}"
    )


def _ray_state(pod: Pod) -> ContainerState:
    """Return the state of the Ray container, which is found by the name of the first container."""
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    found = [status.state for status in pod.status.container_statuses if status.name == name]
    return found[0] if found else ContainerState()


def _terminated(pod: Pod) -> str:
    ended = _ray_state(pod).terminated
    return "nil" if ended is None else f"exit code {ended.exit_code} {ended.reason}".strip()
