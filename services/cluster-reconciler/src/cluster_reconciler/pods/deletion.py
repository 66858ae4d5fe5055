"""Which pods go because they cannot recover, and the deletion of one worker pod.

Only a phase that ends a pod, or a Ray container that has ended and may not restart, counts: crash loops, image pull errors,
failing probes and a long Pending never do (spec raycluster §9.5; acceptance cases 44, 45, 60, 61).
"""

from cluster_reconciler import events
from cluster_reconciler.observed import is_terminating
from common import labels
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD
from common.runtime.actions import Delete


def reason(pod: Pod) -> str:
    """Return why a pod cannot recover; empty when it may, or is being deleted already."""
    kind, name, phase = pod.metadata.labels.get(labels.NODE_TYPE, ""), pod.metadata.name, pod.status.phase
    if is_terminating(pod):
        return ""
    if phase in {"Failed", "Succeeded"}:
        return (
            f"The {kind} Pod {name} status is {phase} which is a terminal state. KubeRay will "
            "delete the Pod and create new Pods in the next reconciliation if necessary."
        )
    if phase == "Running" and pod.spec.restart_policy == "Never" and (ended := _terminated(pod)):
        return (
            f"The Pod status of the {kind} Pod {name} is {phase}, and the Ray container "
            f"terminated status is {ended}. The container is unable to restart due to its restart policy "
            f"{pod.spec.restart_policy}, so KubeRay will delete it."
        )
    return ""


def state(pod: Pod) -> str:
    """Describe a pod as the Events about its end do."""
    return (
        f"Pod status: {pod.status.phase}; Pod restart policy: {pod.spec.restart_policy}; "
        f"Ray container terminated status: {_terminated(pod) or 'nil'}"
    )


def _terminated(pod: Pod) -> str:
    """Describe the end of the Ray container, which is found by the name of the first container; empty when it has not ended."""
    name = pod.spec.containers[0].name if pod.spec.containers else ""
    ended = next((each.state.terminated for each in pod.status.container_statuses if each.name == name), None)
    return "" if ended is None else f"exit code {ended.exit_code} {ended.reason}".strip()


def of_worker(cluster: RayCluster, pod: Pod, *, what: str, more: str = "", failed_more: str = "") -> Delete:
    """Return the deletion of a worker pod; `more` and `failed_more` follow its name in the Events."""
    meta = pod.metadata
    report = events.DELETED_WORKER.about(cluster, meta.name, what=what, more=more, failed_more=failed_more)
    return Delete(resource=POD, name=meta.name, uid=meta.uid, events=report)
