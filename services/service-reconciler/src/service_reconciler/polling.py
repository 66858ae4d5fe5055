"""When to poll what sends no message: dashboards and proxies.

Often while something is on its way, ever less often the longer nothing changes (`common.ray.poll_interval`), every few seconds at rest;
KubeRay asks every 2 s for ever.
"""

from datetime import datetime, timedelta
from typing import Final

from common.ray import poll_interval, serve_status
from common.ray.view import head_is_ready
from service_reconciler.observed import ClusterView

FAST: Final = timedelta(seconds=0.5)
"""While applications of the cluster that serves do not run."""
STARTING: Final = timedelta(seconds=1)
"""While a cluster has no ready head; its pods send messages."""
SILENT: Final = timedelta(seconds=2.5)
"""While a dashboard does not answer; recovery is observed within 10 s."""


def interval(view: ClusterView, *, is_pending: bool, rest: timedelta, now: datetime) -> timedelta:
    """Return how soon a cluster wants to be asked again; `rest` is what one that serves wants."""
    quiet = poll_interval.interval(now - _last_changed_at(view))
    if not head_is_ready(view.cluster):
        return max(STARTING, quiet)
    details = view.serve.details
    if details is None:
        return min(SILENT, poll_interval.FASTEST * 2.0 ** min(view.serve.failures, 8))
    if is_pending:
        return quiet
    return rest if serve_status.is_running(details) else max(FAST, quiet)


def _last_changed_at(view: ClusterView) -> datetime:
    """Return when a cluster or one of its pods last changed, or it was sent a config."""
    of_pods = (each.last_transition_time for pod in view.pods for each in pod.status.conditions)
    moments = (each for each in (view.put_at, *of_pods) if each is not None)
    return max((poll_interval.last_changed_at(view.cluster), *moments))
