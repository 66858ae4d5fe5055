"""Where the head is: names and addresses of its pod and Service (spec raycluster §13.7)."""

from cluster_reconciler.observed import Observed
from common.api.ray_cluster import HeadInfo

_HEADLESS = "None"


def violation(observed: Observed) -> str | None:
    """Return why the head cannot be told, which means that no status can be written; None when it can."""
    cluster = observed.cluster.metadata
    if len(observed.heads) > 1:
        found = " ".join(pod.metadata.name for pod in observed.heads)
        return f"found multiple heads. cluster name {cluster.name}, pods [{found}]"
    match observed.head_services:
        case ():
            return f"unable to find head service. cluster name {cluster.name}"
        case (service,):
            return None if service.spec.cluster_ip else f"head service IP is empty. cluster name {cluster.name}"
        case services:
            found = " ".join(service.metadata.name for service in services)
            return f"found multiple head services. cluster name {cluster.name}, services [{found}]"


def compute(observed: Observed) -> HeadInfo:
    """Return where the head is; the caller has checked `violation`."""
    head = observed.heads[0] if observed.heads else None
    service = observed.head_services[0]
    pod_ip = head.status.pod_ip if head else ""
    return HeadInfo(
        pod_ip=pod_ip,
        pod_name=head.metadata.name if head else "",
        service_ip=pod_ip if service.spec.cluster_ip == _HEADLESS else service.spec.cluster_ip,
        service_name=service.metadata.name,
    )
