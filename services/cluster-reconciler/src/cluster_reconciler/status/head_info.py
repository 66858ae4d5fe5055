"""Where the head is: names and addresses of its pod and Service, and the ports of that (spec raycluster §13.6, §13.7)."""

from collections.abc import Mapping

from cluster_reconciler.observed import Observed
from common.api.ray_cluster import HeadInfo

_HEADLESS = "None"


def violation(observed: Observed, *, has_failed: bool) -> str | None:
    """Return why the head's addresses are unknown, so that no status can be written; None when they are known.

    Where something `has_failed`, its Service may be missing for that very reason, which the status reports.
    """
    cluster = observed.cluster.metadata
    if len(observed.heads) > 1:
        found = " ".join(pod.metadata.name for pod in observed.heads)
        return f"found multiple heads. cluster name {cluster.name}, pods [{found}]"
    match observed.head_services:
        case () if has_failed:
            return None
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
    pod_ip, pod_name = (head.status.pod_ip, head.metadata.name) if head else ("", "")
    if not observed.head_services:
        return HeadInfo(pod_ip=pod_ip, pod_name=pod_name)
    service = observed.head_services[0]
    return HeadInfo(
        pod_ip=pod_ip,
        pod_name=pod_name,
        service_ip=pod_ip if service.spec.cluster_ip == _HEADLESS else service.spec.cluster_ip,
        service_name=service.metadata.name,
    )


def endpoints(observed: Observed, known: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return port name to the number of the node's port, or the container's; entries are added or overwritten, never removed."""
    if not observed.head_services:
        return dict(known) if known is not None else None
    ports = {
        port.name: port.node_port or port.target_port for port in observed.head_services[0].spec.ports if port.name
    }
    return {**(known or {}), **{name: str(number) for name, number in ports.items() if number}}
