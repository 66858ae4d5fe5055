"""Read everything for one reconcile of a RayJob into one frozen `Observed`.

Most objects come from the cache, which is filled from the bus. A cluster that a job selects but
does not own is read from the API server. So are objects that must be gone before a RayJob
continues, because the cache may be stale just after a start. Requests to Ray are limited in rate;
between two requests the last answer is used.
"""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from common import errors, labels, names
from common.api.core import Job, Pod, Service
from common.api.ray_cluster import RayCluster
from common.api.ray_job import DeploymentState, JobState, RayJob
from common.clock import Clock
from common.kube.resources import (
    JOB,
    RAY_CLUSTER,
    SERVICE,
    Resource,
    find_name_violation,
)
from common.ray import view
from common.ray.jobs_api import JobsApi
from common.runtime.cache import Cache, Object, Objects
from common.runtime.key import Key
from common.runtime.lookup import Lookup
from common.validation import ray_job as rules
from job_reconciler import batch, polling, problems
from job_reconciler.observed import Observed, RayAnswer, RuleViolation
from job_reconciler.outcome import JobAnswer, SilentDashboard, UnknownJob
from job_reconciler.reasons import EventReason
from job_reconciler.settings import Config

T = TypeVar("T", bound=Object)
SELECTED_MAX_AGE: Final = 2.0
"""Maximum age in seconds of the stored copy of a cluster that a job selects, or of its Service."""
FOREIGN_MAX_AGE: Final = 30.0
"""Maximum age in seconds of the stored copy of another owner's head Service."""
_ENDING: Final = frozenset({DeploymentState.SUSPENDING, DeploymentState.RETRYING})
_READS_CLUSTER: Final = frozenset(DeploymentState) - {
    DeploymentState.NEW,
    DeploymentState.SUSPENDED,
    DeploymentState.VALIDATION_FAILED,
}


class Memory(msgspec.Struct):
    """What this replica remembers about one attempt; a restart loses it."""

    job_id: str
    had_ended: bool = False
    """Whether the submitter had already ended when the last request was sent to Ray."""
    submission_error: str = ""
    refusal: str = ""
    refused_generation: int = 0
    """Generation of the RayJob whose submission Ray refused."""
    reads_head_service: bool = False
    """Whether the name of the head Service is taken by a Service that the bus does not deliver."""


class Validated(msgspec.Struct, frozen=True):
    """The result of a validation, and the parts of the RayJob that it depends on."""

    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    violation: str | None


class Observer:
    """Reads everything from which one reconcile of a RayJob makes its plan."""

    def __init__(
        self, cache: Cache, lookup: Lookup, jobs: JobsApi, config: Config, clock: Clock
    ) -> None:
        self._cache = cache
        self._lookup = lookup
        self._jobs = jobs
        self._config = config
        self._clock = clock
        self._memories: dict[str, Memory] = {}
        """The memory of each RayJob that runs, by uid."""
        self._validated: dict[str, Validated] = {}

    def forget(self, objects: Objects) -> None:
        """Drop the state of RayJobs that were deleted or that another replica now reconciles."""
        for obj in objects:
            self._memories.pop(obj.metadata.uid, None)
            self._validated.pop(obj.metadata.uid, None)
        self._jobs.forget(objects)

    async def observe(self, key: Key, now: datetime) -> Observed | None:
        """Return the state of a RayJob; None if it is gone or another controller manages it."""
        job = self._cache.get(RayJob, key.namespace, key.name)
        if job is None or job.manager != labels.MANAGED_BY_US:
            return None
        observed = Observed(job=job, config=self._config, now=now)
        if job.metadata.deletion_timestamp is not None:
            return await self._add_cluster(observed)
        if observed.state is not DeploymentState.RUNNING:
            self._memories.pop(job.metadata.uid, None)
        is_ending = observed.state in _ENDING  # completed even if the spec is invalid by now
        if not is_ending and (violation := self._find_violation(job)) is not None:
            return replace(observed, violation=violation)
        if observed.state is DeploymentState.NEW:
            return replace(observed, new_name=draw_name(job.metadata.name))
        if observed.state in _READS_CLUSTER:
            observed = await self._add_children(await self._add_cluster(observed))
        if observed.state is DeploymentState.INITIALIZING:
            problem = problems.find_problem(observed.cluster, observed.pods, now)
            observed = replace(observed, problem="" if problem is None else problem.message)
        if observed.state is DeploymentState.RUNNING:
            return await self._add_answer(observed)
        return observed

    # --- what the handlers of actions report -----------------------------------------------------

    def was_refused(self, job: RayJob, text: str) -> None:
        """Remember that Ray refused to run this generation of a RayJob; `text` is Ray's reason."""
        memory = self._get_memory(job)
        memory.refusal, memory.refused_generation = text, job.metadata.generation

    def was_unanswered(self, job: RayJob, text: str) -> None:
        """Remember that a submission got no answer; `text` is the error."""
        self._get_memory(job).submission_error = text

    def head_service_exists(self, job: RayJob) -> None:
        """Remember that another owner's Service has the name of the RayJob's head Service."""
        self._get_memory(job).reads_head_service = True

    # --- parts -----------------------------------------------------------------------------------

    def _get_memory(self, job: RayJob) -> Memory:
        """Return what is remembered about the present attempt; nothing for a new attempt."""
        uid, job_id = job.metadata.uid, job.status.job_id
        memory = self._memories.get(uid)
        if memory is None or memory.job_id != job_id:
            memory = self._memories[uid] = Memory(job_id)
        return memory

    def _find_violation(self, job: RayJob) -> RuleViolation | None:
        meta = job.metadata
        if (text := rules.metadata(meta)) is not None:
            return RuleViolation(EventReason.INVALID_METADATA, text)
        known = self._validated.get(meta.uid)
        if (
            known is None
            or known.generation != meta.generation
            or known.labels != meta.labels
            or known.annotations != meta.annotations
        ):
            found = rules.spec(job, self._config.gates)
            if found is None:
                found = batch.scheduler(self._config).find_violation(job)
            known = Validated(meta.generation, meta.labels, meta.annotations, found)
            self._validated[meta.uid] = known
        if known.violation is not None:
            return RuleViolation(EventReason.INVALID_SPEC, known.violation)
        if (text := rules.status(job)) is not None:
            return RuleViolation(EventReason.INVALID_STATUS, text)
        return None

    async def _add_cluster(self, observed: Observed) -> Observed:
        """Add the cluster that the status names, and the Service of its dashboard.

        The Service is only added until the dashboard's URL is known.
        """
        namespace, name = observed.job.metadata.namespace, observed.job.status.ray_cluster_name
        if not name:
            return observed
        if observed.selects_cluster:
            cluster = await self._lookup.find(
                RAY_CLUSTER, RayCluster, (namespace, name), max_age=SELECTED_MAX_AGE
            )
        elif observed.state in _ENDING and observed.job.metadata.deletion_timestamp is None:
            cluster = await self._find_remaining(RAY_CLUSTER, RayCluster, (namespace, name))
        else:
            cluster = self._cache.get(RayCluster, namespace, name)
        is_starting = observed.state is DeploymentState.INITIALIZING
        if cluster is None or not is_starting or observed.job.status.dashboard_url:
            return replace(observed, cluster=cluster)
        place = (namespace, view.dashboard_service(cluster))
        if observed.selects_cluster:
            service = await self._lookup.find(SERVICE, Service, place, max_age=SELECTED_MAX_AGE)
        else:
            service = self._cache.get(Service, *place)
        return replace(observed, cluster=cluster, dashboard_service=service)

    async def _find_remaining(
        self, resource: Resource, kind: type[T], place: tuple[str, str]
    ) -> T | None:
        """Return an object that must be gone before the RayJob continues; None if it is gone.

        A forged status may contain an illegal name. No object can have it, so no request is sent.
        """
        if find_name_violation(resource, place[1]) is not None:
            return None
        return self._cache.get(kind, *place) or await self._lookup.read(resource, kind, place)

    async def _add_children(self, observed: Observed) -> Observed:
        """Add the pods, the submitter Job and the head Service of the attempt."""
        job, namespace = observed.job, observed.job.metadata.namespace
        pods = list[Pod]()
        if not observed.selects_cluster and job.status.ray_cluster_name:
            mark = {labels.CLUSTER: job.status.ray_cluster_name}
            pods = self._cache.list(Pod, namespace, mark)
        submitter = self._cache.get(Job, namespace, job.metadata.name)
        if submitter is None and observed.state in _ENDING:
            submitter = await self._lookup.read(JOB, Job, (namespace, job.metadata.name))
        return replace(
            observed,
            pods=tuple(pods),
            submitter_job=submitter,
            head_service=await self._find_head_service(observed),
        )

    async def _find_head_service(self, observed: Observed) -> Service | None:
        """Return the Service with the name of the RayJob's own head Service, whoever owns it.

        The bus delivers that Service only if the RayJob owns it. After a creation has shown that
        the name is taken, another owner's Service is read from the API server.
        """
        meta = observed.job.metadata
        place = (meta.namespace, names.head_service(meta.name))
        is_running = observed.state is DeploymentState.RUNNING
        if not is_running or not self._get_memory(observed.job).reads_head_service:
            return self._cache.get(Service, *place)
        return await self._lookup.find(SERVICE, Service, place, max_age=FOREIGN_MAX_AGE)

    async def _add_answer(self, observed: Observed) -> Observed:
        """Add Ray's answer about the job.

        Once the submitter has ended, an answer from before its end is outdated. Until a later
        answer arrives, no answer is added.
        """
        job, cluster, memory = observed.job, observed.cluster, self._get_memory(observed.job)
        observed = replace(
            observed,
            first_poll_at=observed.now + polling.compute_first_interval(len(self._memories)),
        )
        if cluster is None or observed.is_to_be_submitted:
            return observed
        interval = polling.compute_interval(job, len(self._memories), observed.now)
        has_ended, began = observed.submitter.has_ended, self._clock.monotonic()
        is_awaited = has_ended and not memory.had_ended
        max_age = 0.0 if is_awaited else interval.total_seconds()
        ray = await self._ask(cluster, job.status.job_id, max_age=max_age)
        asked_at = self._jobs.get_time_of_request(cluster, job.status.job_id)
        if is_awaited and (asked_at is None or asked_at < began):
            return observed
        memory.had_ended = has_ended
        if isinstance(ray.answer, JobAnswer):
            memory.submission_error = ""
        age = timedelta(seconds=0.0 if asked_at is None else self._clock.monotonic() - asked_at)
        return replace(
            observed,
            ray=ray,
            submission_error=memory.submission_error,
            refusal=memory.refusal if memory.refused_generation == job.metadata.generation else "",
            poll_at=polling.compute_next_poll(interval, age, observed.now),
        )

    async def _ask(self, cluster: RayCluster, job_id: str, *, max_age: float) -> RayAnswer:
        try:
            info = await self._jobs.find(cluster, job_id, max_age=max_age)
        except errors.RaybusError as problem:
            return RayAnswer(answer=SilentDashboard(str(problem)))
        if info is None:
            return RayAnswer(answer=UnknownJob())
        return RayAnswer(
            answer=JobAnswer(state=_parse_state(info.state), message=info.message),
            started_at=info.start_time,
            ended_at=info.end_time,
        )


def draw_name(job: str) -> str:
    """Return a name for the objects of an attempt: the RayJob's with five random characters."""
    number = random.SystemRandom().randrange(len(names.SAFE_ALPHABET) ** 5)
    return f"{job}-{names.suffix(number)}"


def _parse_state(text: str) -> JobState:
    """Return the state of a Ray job; an unknown state of a newer Ray version counts as running."""
    try:
        return JobState(text)
    except ValueError:
        return JobState.RUNNING
