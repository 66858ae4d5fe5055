"""RayJob (ray.io/v1), with all fields; `ray_cluster` explains the structs.

Source: spec rayjob §2.2, §2.3.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec

from common import labels
from common.api.meta import ApiStruct, Int64, Time
from common.api.opaque import Api, Json, PodTemplate
from common.api.ray_cluster import (
    MANAGED_BY,
    Name,
    RayClusterSpec,
    RayClusterStatus,
    RayObject,
    StartParam,
)

KIND: Final = "RayJob"
MAX_ENTRYPOINT: Final = 2**17
"""Maximum characters of an entrypoint. Linux refuses to start a program with a longer argument."""
MAX_RUNTIME_ENV: Final = 2**20
"""Maximum characters of a runtime environment. etcd accepts objects of 1.5 MiB."""
DELETION_POLICIES: Final = ("DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone")
Float: TypeAlias = Annotated[float, Api(go="float32")]


class SubmissionMode(StrEnum):
    """Values of `spec.submissionMode`: who submits the job to Ray."""

    K8S_JOB = "K8sJobMode"
    """A Kubernetes Job submits the job to Ray."""
    HTTP = "HTTPMode"
    """The operator submits the job to Ray over HTTP."""
    INTERACTIVE = "InteractiveMode"
    """The user submits the job to Ray."""
    SIDECAR = "SidecarMode"
    """A container in the head pod submits the job to Ray."""


class DeploymentState(StrEnum):
    """Values of `status.jobDeploymentStatus` (spec rayjob §2.3)."""

    NEW = ""
    INITIALIZING = "Initializing"
    WAITING = "Waiting"
    RUNNING = "Running"
    COMPLETE = "Complete"
    FAILED = "Failed"
    VALIDATION_FAILED = "ValidationFailed"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    RETRYING = "Retrying"


class JobState(StrEnum):
    """Values of `status.jobStatus`, which Ray reports."""

    UNKNOWN = ""
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


SUBMISSION_MODES: Final = tuple(mode.value for mode in SubmissionMode)
SUBMITTER_CONTAINER: Final = "ray-job-submitter"
"""Name of the container that submits the job, unless the user's template names it otherwise."""
TERMINAL_JOB_STATES: Final = frozenset({JobState.STOPPED, JobState.SUCCEEDED, JobState.FAILED})
"""The states in which Ray no longer runs the job."""


class DeletionCondition(ApiStruct, frozen=True, kw_only=True):
    """The state of a finished job that triggers a deletion, and the seconds to wait after it."""

    job_status: Annotated[str | None, Api(enum=("SUCCEEDED", "FAILED"))] = None
    job_deployment_status: Annotated[str | None, Api(enum=("Failed",))] = None
    ttl_seconds: Annotated[int, Api(default=0, minimum=0)] = 0


class DeletionRule(ApiStruct, frozen=True, kw_only=True):
    """A deletion, and the condition under which it happens."""

    policy: Annotated[str, Api(keep=True, enum=DELETION_POLICIES)] = ""
    condition: Annotated[
        DeletionCondition,
        Api(
            keep=True,
            cel=(
                (
                    "!(has(self.jobStatus) && has(self.jobDeploymentStatus))",
                    "JobStatus and JobDeploymentStatus cannot be used together within the same "
                    "deletion condition.",
                ),
                (
                    "has(self.jobStatus) || has(self.jobDeploymentStatus)",
                    "the deletion condition requires either the JobStatus or the "
                    "JobDeploymentStatus field.",
                ),
            ),
        ),
    ] = DeletionCondition()


class DeletionPolicy(ApiStruct, frozen=True, kw_only=True):
    """What is deleted after a success or a failure; deprecated in favour of rules."""

    policy: Annotated[str | None, Api(enum=DELETION_POLICIES)] = None


class DeletionStrategy(ApiStruct, frozen=True, kw_only=True):
    """What is deleted after the end of a job."""

    on_success: DeletionPolicy | None = None
    on_failure: DeletionPolicy | None = None
    deletion_rules: Annotated[list[DeletionRule] | None, Api(list_type="atomic", min_items=1)] = (
        None
    )


class SubmitterConfig(ApiStruct, frozen=True, kw_only=True):
    """Options of the submitter's Kubernetes Job."""

    backoff_limit: int | None = None


class RayJobSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a RayJob."""

    active_deadline_seconds: int | None = None
    backoff_limit: Annotated[int | None, Api(default=0)] = None
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: PodTemplate | None = None
    metadata: dict[str, StartParam] | None = None
    cluster_selector: dict[str, Name] | None = None
    submitter_config: SubmitterConfig | None = None
    managed_by: Annotated[str | None, MANAGED_BY] = None
    deletion_strategy: Annotated[
        DeletionStrategy | None,
        Api(
            cel=(
                (
                    "!((has(self.onSuccess) || has(self.onFailure)) && has(self.deletionRules))",
                    "legacy policies (onSuccess/onFailure) and deletionRules cannot be used "
                    "together within the same deletionStrategy",
                ),
                (
                    "((has(self.onSuccess) && has(self.onFailure)) || has(self.deletionRules))",
                    "deletionStrategy requires either BOTH onSuccess and onFailure, OR the "
                    "deletionRules field (cannot be empty)",
                ),
            ),
        ),
    ] = None
    entrypoint: Annotated[str, Api(max_length=MAX_ENTRYPOINT)] = ""
    runtime_env: Annotated[str, Api(max_length=MAX_RUNTIME_ENV)] = msgspec.field(
        default="", name="runtimeEnvYAML"
    )
    job_id: Name = ""
    submission_mode: Annotated[
        str, Api(default=SubmissionMode.K8S_JOB.value, enum=SUBMISSION_MODES)
    ] = SubmissionMode.K8S_JOB.value
    entrypoint_resources: StartParam = ""
    entrypoint_num_cpus: Float = 0.0
    entrypoint_num_gpus: Float = 0.0
    ttl_seconds_after_finished: Annotated[int, Api(default=0)] = 0
    pre_running_deadline_seconds: Annotated[int | None, Api(minimum=1)] = None
    shutdown_after_job_finishes: bool = False
    suspend: bool = False


class RayJobStatusInfo(ApiStruct, frozen=True, kw_only=True):
    """Start and end time of the job as Ray reports them."""

    start_time: Time | None = None
    end_time: Time | None = None


class RayJobStatus(ApiStruct, frozen=True, kw_only=True):
    """The observed state of a RayJob.

    `rayJobInfo` and `rayClusterStatus` are written even when empty.
    """

    ray_job_info: RayJobStatusInfo = msgspec.field(default_factory=RayJobStatusInfo)
    job_id: Name = ""
    ray_cluster_name: Name = ""
    dashboard_url: str = msgspec.field(default="", name="dashboardURL")
    job_status: Name = ""
    job_deployment_status: Name = ""
    reason: str = ""
    message: str = ""
    start_time: Time | None = None
    end_time: Time | None = None
    succeeded: Annotated[int | None, Api(default=0)] = None
    failed: Annotated[int | None, Api(default=0)] = None
    ray_cluster_status: RayClusterStatus = msgspec.field(default_factory=RayClusterStatus)
    job_status_check_failure_start_time: Time | None = None
    observed_generation: Int64 = 0


class RayJob(RayObject, frozen=True, kw_only=True, rename="camel", dict=True):
    """A RayJob as read from the API."""

    status: RayJobStatus = RayJobStatus()

    @cached_property
    def spec(self) -> RayJobSpec:
        """The decoded spec; raises `msgspec.ValidationError`, which names the field."""
        return msgspec.json.decode(self.spec_json, type=RayJobSpec, strict=False)

    @property
    def manager(self) -> str:
        """The controller that reconciles this RayJob: `spec.managedBy`; raybus if absent."""
        value = self.raw_spec.get("managedBy", labels.MANAGED_BY_US)
        return value if isinstance(value, str) else labels.MANAGED_BY_US

    @property
    def raw_cluster_spec(self) -> Json:
        """`spec.rayClusterSpec` as written, for copying. Do not change it in place."""
        value = self.raw_spec.get("rayClusterSpec")
        return cast("Json", value) if isinstance(value, dict) else {}


def decode(obj: bytes | str | Mapping[str, Any]) -> RayJob:
    """Decode a RayJob from JSON text or plain data."""
    return msgspec.json.decode(
        obj if isinstance(obj, bytes | str) else msgspec.json.encode(obj), type=RayJob
    )
