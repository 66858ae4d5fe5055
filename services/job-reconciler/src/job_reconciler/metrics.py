"""Metrics of RayJobs, as in KubeRay (spec rayjob §18)."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import product
from typing import Final

from prometheus_client import Counter
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from common.api.ray_job import DeploymentState, RayJob, RayJobStatus
from common.observability.metrics import MetricFamily
from common.ray import job_events
from common.runtime.cache import BoundedDict, Cache, Objects

_IDENTITY: Final = ("name", "namespace", "uid")
DURATION: Final = MetricFamily(
    name="kuberay_job_execution_duration_seconds",
    text="Duration from when the RayJob CR’s JobDeploymentStatus transitions from Initializing to "  # noqa: RUF001
    "either the Retrying state or a terminal state, such as Complete or Failed. The Retrying state "
    "indicates that the CR previously failed and that spec.backoffLimit is enabled.",
    labels=(*_IDENTITY, "job_deployment_status", "retry_count"),
)
INFO: Final = MetricFamily(
    name="kuberay_job_info",
    text="Metadata information about RayJob custom resources",
    labels=_IDENTITY,
)
STATE: Final = MetricFamily(
    name="kuberay_job_deployment_status",
    text="The RayJob's current deployment status",
    labels=(*_IDENTITY, "deployment_status"),
)
FAMILIES: Final = (DURATION, INFO, STATE)
EVENTS: Final = Counter(
    "raybus_job_events_total",
    "Events of RayJobs that were published or lost, by kind and result",
    ["kind", "result"],
)
ATTEMPT_ENDS: Final = frozenset(
    {DeploymentState.COMPLETE, DeploymentState.FAILED, DeploymentState.RETRYING}
)
MAX_ATTEMPTS: Final = 50
"""Maximum number of attempts of one RayJob whose duration is exported.

The newest attempts are exported.
"""
Attempt = tuple[str, int]
"""State of the RayJob after an attempt, and number of attempts that had failed before it."""


def initialize() -> None:
    """Create every counter series with value 0, so that Prometheus sees the first increase."""
    for kind, result in product(job_events.KINDS, ("sent", "lost")):
        EVENTS.labels(kind, result)


class JobMetrics(Collector):
    """Computes all series about the RayJobs that this replica reconciles."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._seconds: dict[str, BoundedDict[Attempt, float]] = {}
        """Duration in seconds of each attempt that ended in this process, by uid of the RayJob."""

    def note(self, job: RayJob, written: RayJobStatus, *, now: datetime) -> None:
        """Record the duration of an attempt if the status `written` ends it.

        `job` has the previous status.
        """
        before, state = job.status, written.job_deployment_status
        if state not in ATTEMPT_ENDS or before.job_deployment_status in ATTEMPT_ENDS:
            return
        if before.start_time is None:
            return
        attempts = self._seconds.setdefault(job.metadata.uid, BoundedDict(max_entries=MAX_ATTEMPTS))
        attempts[state, before.failed or 0] = (now - before.start_time).total_seconds()

    def forget(self, objects: Objects) -> None:
        """Drop the attempts of RayJobs that were deleted or that another replica now reconciles."""
        for obj in objects:
            self._seconds.pop(obj.metadata.uid, None)

    def describe(self) -> Iterable[Metric]:
        """Return the metric families without samples, without reading the cache."""
        return [family.empty() for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Compute every series from the current cache."""
        built = {family: family.empty() for family in FAMILIES}
        jobs = sorted(
            self._cache.list_all(RayJob),
            key=lambda job: (job.metadata.namespace, job.metadata.name),
        )
        for job in jobs:
            for family, more, value in self._samples(job):
                identity = (job.metadata.name, job.metadata.namespace, job.metadata.uid)
                built[family].add_metric((*identity, *more), value)
        return built.values()

    def _samples(self, job: RayJob) -> Iterator[tuple[MetricFamily, tuple[str, ...], float]]:
        yield INFO, (), 1
        yield STATE, (job.status.job_deployment_status,), 1
        attempts = self._seconds.get(job.metadata.uid)
        for (state, failed), seconds in attempts.items() if attempts is not None else ():
            yield DURATION, (state, str(failed)), seconds
