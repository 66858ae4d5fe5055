"""Whether a dashboard answers for the other cluster of the RayService.

An address that a pod gave up may be another pod's a moment later, and a connection or a name may still lead to it. Such an
answer must neither prove that a cluster serves nor take this cluster's config. It is the other cluster's when it names nodes
of that one and none of this one.
"""

from typing import Final

import msgspec

from common.ray import serve_status
from common.ray.view import Reading
from service_reconciler.observed import ClusterView

SILENT: Final = 3
"""As many failed looks as make a silent dashboard a trouble: this one is known at once."""


def unmasked(view: ClusterView | None, other: ClusterView | None) -> ClusterView | None:
    """Return a view without an answer that the other cluster gave."""
    if view is None or other is None or view.serve.details is None:
        return view
    nodes = serve_status.nodes(view.serve.details)
    if nodes & _addresses(view) or not nodes & _addresses(other):
        return view
    text = f"the dashboard of RayCluster {view.name} answers for RayCluster {other.name}"
    return msgspec.structs.replace(view, serve=Reading(problem=text, failures=SILENT))


def _addresses(view: ClusterView) -> frozenset[str]:
    return frozenset(pod.status.pod_ip for pod in view.pods if pod.status.pod_ip)
