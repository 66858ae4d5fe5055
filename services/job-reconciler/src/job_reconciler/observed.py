"""The observed state of one RayJob, and values that are computed from that state alone."""

from datetime import UTC, datetime
from functools import cached_property

import msgspec

from common import labels
from common.api.core import Job, Pod, Service
from common.api.ray_cluster import RayCluster
from common.api.ray_job import DeploymentState, JobState, RayJob, SubmissionMode
from common.feature_gates import FeatureGate
from common.ray import cluster_traits as traits
from common.ray import owner
from job_reconciler import submitter
from job_reconciler.outcome import NO_SUBMITTER, Answer, Submitter
from job_reconciler.reasons import EventReason
from job_reconciler.resources import head_service
from job_reconciler.settings import Config


class RuleViolation(msgspec.Struct, frozen=True):
    """The first rule that a RayJob breaks."""

    reason: EventReason
    message: str


class RayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Ray's newest answer about the job of this attempt, with the job's start and end times."""

    answer: Answer
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Observed(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A RayJob, the objects of its attempt, and Ray's answer about its job."""

    job: RayJob
    config: Config
    now: datetime
    new_name: str = ""
    """A name for the RayCluster and the Ray job of a new attempt; empty unless one begins."""
    violation: RuleViolation | None = None
    cluster: RayCluster | None = None
    """The RayCluster that the status names."""
    pods: tuple[Pod, ...] = ()
    """The pods of the RayCluster; empty for a cluster that the job selects (`clusterSelector`)."""
    submitter_job: Job | None = None
    """The Kubernetes Job that submits the job, whoever owns it."""
    dashboard_service: Service | None = None
    """The Service of the cluster's dashboard, while the dashboard's URL is not known yet."""
    head_service: Service | None = None
    """The Service with the name of the RayJob's own head Service, whoever owns it."""
    problem: str = ""
    """Why the job does not start, in one line; empty if no reason is known."""
    ray: RayAnswer | None = None
    """Ray's newest answer about the job; None before there is one."""
    submission_error: str = ""
    """Why the last submission over HTTP got no answer; empty if it got one."""
    refusal: str = ""
    """Ray's text if it refused the submission over HTTP; empty if it did not."""
    poll_at: datetime | None = None
    """When to send the next request about the job to Ray."""
    first_poll_at: datetime | None = None
    """When to send the first request about the job to Ray if it is submitted now."""

    @property
    def state(self) -> DeploymentState | None:
        """The state of the RayJob; None for a state that raybus does not know."""
        try:
            return DeploymentState(self.job.status.job_deployment_status)
        except ValueError:
            return None

    @property
    def selects_cluster(self) -> bool:
        """Whether the job selects a cluster that it does not own (`clusterSelector`)."""
        return bool(self.job.raw_spec.get("clusterSelector"))

    @property
    def cluster_is_foreign(self) -> bool:
        """Whether the status names a cluster that is neither selected nor owned by this RayJob.

        raybus does not delete it, so nobody can make raybus delete any cluster by writing a status.
        """
        if self.cluster is None or self.selects_cluster:
            return False
        return not owner.owns(self.job.metadata, self.cluster.metadata)

    @property
    def attempt_id(self) -> str:
        """The first part of the annotation that records a submission; it identifies the attempt.

        The job ID is not enough, because all attempts have the same ID if the spec sets `jobId`.
        """
        return f"{self.job.status.job_id}@{self.job.status.ray_cluster_name}/"

    @property
    def is_to_be_submitted(self) -> bool:
        """Whether the job of this attempt was never submitted over HTTP, and its head is known.

        Ray need not be asked first whether it knows the job: it refuses a second job with the same
        ID.
        """
        job = self.job
        record = job.metadata.annotations.get(labels.SUBMITTED_TO, "")
        return (
            job.spec.submission_mode == SubmissionMode.HTTP
            and job.status.job_status == JobState.UNKNOWN
            and bool(self.head_identity)
            and not record.startswith(self.attempt_id)
        )

    @property
    def submitter_is_foreign(self) -> bool:
        """Whether the name of the submitter Job is taken by a Job of another owner."""
        return self.submitter_job is not None and not owner.owns(
            self.job.metadata, self.submitter_job.metadata
        )

    @property
    def head_service_is_foreign(self) -> bool:
        """Whether the name of the head Service is taken by a Service of another owner."""
        return self.head_service is not None and not head_service.belongs_to(
            self.head_service, self.job
        )

    @cached_property
    def head_pod(self) -> Pod | None:
        """The newest head pod of the RayCluster; None if it has none.

        The resourceVersion does not show a pod's age, because a pod that is being deleted changes
        even after its successor has started.
        """
        heads = [
            pod for pod in self.pods if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD
        ]
        return max(heads, key=_rank_head, default=None)

    @cached_property
    def submitter(self) -> Submitter:
        """The state of the submitter; in modes without a submitter it counts as absent."""
        match self.job.spec.submission_mode:
            case SubmissionMode.K8S_JOB:
                return submitter.read_job(self.submitter_job)
            case SubmissionMode.SIDECAR:
                restarts = FeatureGate.SIDECAR_SUBMITTER_RESTART in self.config.gates
                return submitter.read_head_pod(self.head_pod, restarts=restarts)
            case _:
                return NO_SUBMITTER

    @property
    def head_identity(self) -> str:
        """A text that changes when the running head is replaced; empty if the head is unknown.

        A new head pod changes the text, and so does a restart of the head's Ray container. For a
        cluster that the job selects with `clusterSelector`, only a new head pod does.
        """
        if self.head_pod is not None:
            ray = traits.ray_container(self.cluster, self.head_pod)
            restarts = sum(
                status.restart_count
                for status in self.head_pod.status.container_statuses
                if ray is not None and status.name == ray.name
            )
            return f"{self.head_pod.metadata.uid}/{restarts}"
        head = None if self.cluster is None else self.cluster.status.head
        return "" if head is None or not head.pod_name else f"{head.pod_name}/{head.pod_ip}"


def _rank_head(pod: Pod) -> tuple[bool, datetime, int]:
    """Return a sort key that is greatest for the newest head pod that is not being deleted."""
    meta = pod.metadata
    created = meta.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return meta.deletion_timestamp is None, created, meta.version
