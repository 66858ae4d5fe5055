"""When to look again at what sends no message: dashboards and proxies.

Often while something is on its way, every few seconds at rest; KubeRay asks every 2 s for ever.
"""

from datetime import timedelta
from typing import Final

from common.ray import serve_status
from common.ray.view import head_is_ready
from service_reconciler.observed import ClusterView

FAST: Final = timedelta(seconds=0.25)
"""While applications start on a cluster that is to serve next."""
STARTING: Final = timedelta(seconds=1)
"""While a cluster has no ready head; its pods send messages."""
REST: Final = timedelta(seconds=5)
SILENT: Final = timedelta(seconds=2.5)
"""While a dashboard does not answer; recovery is seen within 10 s."""


def interval(view: ClusterView, *, is_pending: bool) -> timedelta:
    """Return how soon a cluster wants to be asked again."""
    if not head_is_ready(view.cluster):
        return STARTING
    details = view.serve.details
    if details is None:
        return min(SILENT, FAST * 2.0 ** min(view.serve.failures, 8))
    if is_pending:
        return FAST
    return REST if serve_status.is_running(details) else FAST * 2
