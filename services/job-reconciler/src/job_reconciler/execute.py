"""Handlers of the actions that only this service has: submit and stop jobs, write the status."""

import msgspec
import structlog

from common import errors
from common.kube.client import Kube
from common.ray import batch_schedulers
from common.ray.jobs_api import JobsApi
from common.runtime.actions import Create, Publish, Replace
from common.runtime.event_publisher import Publisher
from common.runtime.executor import Handlers
from common.runtime.writer import Writer
from job_reconciler import batch
from job_reconciler.actions import (
    CreateHeadService,
    StopJob,
    SubmitJob,
    SyncPodGroup,
    UpdateJobStatus,
)
from job_reconciler.metrics import JobMetrics
from job_reconciler.observe import Observer
from job_reconciler.observed import Observed
from job_reconciler.resources import submission

log = structlog.get_logger()


class Execution:
    """Handlers of the actions that the executor leaves to this service, by action type."""

    def __init__(
        self,
        kube: Kube,
        jobs: JobsApi,
        observer: Observer,
        metrics: JobMetrics,
        publisher: Publisher,
    ) -> None:
        self._kube = kube
        self._jobs = jobs
        self._observer = observer
        self._metrics = metrics
        self.handlers: Handlers[Observed] = {
            SubmitJob: self._submit,
            StopJob: self._stop,
            CreateHeadService: self._create_head_service,
            SyncPodGroup: self._sync_pod_group,
            UpdateJobStatus: self._write_status,
            Publish: publisher.publish,
        }

    async def _submit(self, action: SubmitJob, observed: Observed, _writer: Writer) -> bool:
        """Submit the job to Ray; return False if Ray refuses it.

        A refusal ends the attempt in the next reconcile, with Ray's text.
        """
        job = observed.job
        try:
            await self._jobs.submit(action.cluster, submission.build(job))
        except (errors.Rejected, errors.InvalidSpec) as problem:
            self._observer.was_refused(job, str(problem))
            return False
        except errors.OwnershipLost:
            raise  # nothing was sent
        except errors.Retryable as problem:
            self._observer.was_unanswered(job, str(problem))
            raise
        return True

    async def _stop(self, action: StopJob, _observed: Observed, _writer: Writer) -> bool:
        """Stop the Ray job. If that fails, raise the error if `must_succeed`, else return False."""
        try:
            await self._jobs.stop(action.cluster, action.job_id)
        except errors.OwnershipLost:
            raise
        except errors.RaybusError as problem:
            if action.must_succeed:
                raise
            log.warning("cannot stop the Ray job", job=action.job_id, error=str(problem))
            return False
        return True

    async def _create_head_service(
        self, action: CreateHeadService, observed: Observed, writer: Writer
    ) -> bool:
        try:
            return await writer.create(action)
        except errors.AlreadyExists as problem:
            self._observer.head_service_exists(observed.job)
            raise errors.Conflict(str(problem)) from problem

    async def _sync_pod_group(
        self, action: SyncPodGroup, observed: Observed, writer: Writer
    ) -> bool:
        """Create or resize the PodGroup; return False if its size is right.

        The PodGroup is read from the API server, because it is not on the bus. Raises
        `AlreadyExists` if it belongs to another owner.
        """
        resource, name = batch_schedulers.VOLCANO_POD_GROUP, action.body["metadata"]["name"]
        try:
            have = msgspec.json.decode(await self._kube.get(resource, writer.namespace, name))
        except errors.NotFound:
            return await writer.create(Create(resource=resource, body=action.body))
        if (other := batch.find_other_owner(have, observed.job)) is not None:
            raise errors.AlreadyExists(
                f"PodGroup {name} belongs to {other}; delete or rename one of the two"
            )
        resized = batch.resize(have, action.body)
        if resized is None:
            return False
        return await writer.replace(Replace(resource=resource, body=resized))

    async def _write_status(
        self, action: UpdateJobStatus, observed: Observed, writer: Writer
    ) -> bool:
        await writer.update_status(action)
        self._metrics.note(observed.job, action.status, now=observed.now)
        return True
