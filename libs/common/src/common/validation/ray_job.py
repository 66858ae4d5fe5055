"""Validate RayJobs: return the first violation, with KubeRay's message.

The groups of rules yield their violations in the order of spec rayjob §3; a comment has the number
of each rule. KubeRay does not have the rules of `_unrunnable`. It accepts jobs that violate them,
but such a job either never runs, or fails later with a misleading reason (§3.7). These rules come
last, so a job that KubeRay refuses gets KubeRay's message.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

import msgspec
import re2

from common import labels, pod_json
from common.api import kubernetes_syntax, ray_job
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.api.ray_job import DeploymentState, RayJob, RayJobSpec, SubmissionMode
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.ray import go_yaml
from common.validation import deletion_strategy
from common.validation import ray_cluster as cluster_rules

MAX_NAME_LENGTH: Final = 47
"""Maximum characters of a RayJob's name.

Its RayCluster has the same name with a hyphen and five random characters added."""
_INVALID: Final = "The RayJob spec is invalid: "
_METADATA_SINCE: Final = (2, 6)
"""First Ray version whose `ray job submit` has the option for metadata."""
_MAX_QUOTE_LENGTH: Final = 1000
"""Maximum characters of a runtime environment that a message quotes. KubeRay quotes all of it."""
_JOB_ID: Final = re2.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
"""Submission IDs that need no escaping, neither in a shell nor in the path of a URL."""


def metadata(meta: ObjectMeta) -> str | None:
    """Return the rule that a RayJob's name violates; None if the name is legal (§3.2, M1-M2)."""
    prefix = "The RayJob metadata is invalid: RayJob name should be"
    if len(meta.name) > MAX_NAME_LENGTH:
        return f"{prefix} no more than {MAX_NAME_LENGTH} characters"
    problems = kubernetes_syntax.dns_1035_problems(meta.name)
    return f"{prefix} a valid DNS1035 label: [{' '.join(problems)}]" if problems else None


def spec(job: RayJob, gates: Gates) -> str | None:
    """Return the first violation in the spec; None if the spec is legal (§3.3)."""
    try:
        job_spec = job.spec
        cluster = _own_cluster(job)
        problems = chain(
            _of_life_cycle(job_spec),
            deletion_strategy.find_violations(job_spec, gates),
            _of_cluster_choice(job_spec),
            _of_submission(job_spec),
            _of_own_cluster(cluster, gates),
            _of_runtime_env(job_spec.runtime_env),
            _of_limits(job_spec),
            _unrunnable(job_spec, cluster),
        )
        return next(problems, None)
    except msgspec.ValidationError as error:
        return f"{_INVALID}{error}"


def status(job: RayJob) -> str | None:
    """Return a violation if a job waits for its ID in a mode other than InteractiveMode (§3.6)."""
    if job.spec.submission_mode == SubmissionMode.INTERACTIVE or not _waits_for_id(job):
        return None
    return (
        "The RayJob status is invalid: JobDeploymentStatus cannot be `Waiting` when "
        "SubmissionMode is not InteractiveMode"
    )


def _waits_for_id(job: RayJob) -> bool:
    """Return whether a job is `Waiting` for its submission ID, or was when it failed validation.

    In all modes except InteractiveMode, a job gets its ID before its cluster has an address.
    """
    known = job.status
    is_refused = known.job_deployment_status == DeploymentState.VALIDATION_FAILED
    return known.job_deployment_status == DeploymentState.WAITING or (
        is_refused and bool(known.dashboard_url) and not known.job_id
    )


def _own_cluster(job: RayJob) -> RayCluster | None:
    """Return the cluster that the job would create from `rayClusterSpec`."""
    if job.spec.ray_cluster_spec is None:
        return None
    meta = job.metadata
    return RayCluster(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={labels.ORIGIN_NAME: meta.name, labels.ORIGIN_KIND: ray_job.KIND},
            annotations=meta.annotations,
        ),
        spec_json=msgspec.Raw(msgspec.json.encode(job.raw_cluster_spec)),
    )


def _of_life_cycle(job_spec: RayJobSpec) -> Iterator[str]:
    ends_cluster, delay = (
        job_spec.shutdown_after_job_finishes,
        job_spec.ttl_seconds_after_finished,
    )
    if job_spec.suspend and not ends_cluster:  # V1
        yield (
            f"{_INVALID}a RayJob with shutdownAfterJobFinishes set to false is not allowed to be "
            "suspended"
        )
    if delay < 0:  # V2
        yield f"{_INVALID}TTLSecondsAfterFinished must be a non-negative integer"
    if delay > 0 and not ends_cluster:  # V3
        yield (
            f"{_INVALID}a RayJob with shutdownAfterJobFinishes set to false cannot have "
            "TTLSecondsAfterFinished"
        )


def _of_cluster_choice(job_spec: RayJobSpec) -> Iterator[str]:
    selector = job_spec.cluster_selector
    if not selector:
        if job_spec.ray_cluster_spec is None:  # V10
            yield f"{_INVALID}one of RayClusterSpec or ClusterSelector must be set"
        return
    if job_spec.suspend:  # V9
        yield f"{_INVALID}the ClusterSelector mode doesn't support the suspend operation"
    if not selector.get(labels.CLUSTER):  # V11
        yield "cluster name in ClusterSelector should not be empty"
    if job_spec.submission_mode == SubmissionMode.SIDECAR:  # V12
        yield "ClusterSelector is not supported in SidecarMode"
    if (job_spec.backoff_limit or 0) > 0:  # V13
        yield f"{_INVALID}BackoffLimit is incompatible with ClusterSelector mode"


def _of_submission(job_spec: RayJobSpec) -> Iterator[str]:
    mode = job_spec.submission_mode
    if mode == SubmissionMode.INTERACTIVE and (job_spec.backoff_limit or 0) > 0:  # V14
        yield f"{_INVALID}BackoffLimit is incompatible with InteractiveMode"
    if mode != SubmissionMode.SIDECAR:
        return
    if job_spec.submitter_pod_template is not None:  # V15
        yield "Currently, SidecarMode doesn't support SubmitterPodTemplate"
    if job_spec.submitter_config is not None:  # V16
        yield "Currently, SidecarMode doesn't support SubmitterConfig"
    cluster = job_spec.ray_cluster_spec
    template = {} if cluster is None else cluster.head_group_spec.template
    if pod_json.text(pod_json.spec(template), "restartPolicy") not in {"", "Never"}:  # V17
        yield "restartPolicy for head Pod should be Never or unset when using SidecarMode"


def _of_own_cluster(cluster: RayCluster | None, gates: Gates) -> Iterator[str]:
    """Yield violations of `rayClusterSpec`, even if a selector makes the job ignore it."""
    if cluster is None:
        return
    if traits.has_kubernetes_auth(cluster):  # V18
        yield f"{_INVALID}K8s token auth mode is currently not supported for RayJob"
    if (problem := cluster_rules.spec(cluster, gates)) is not None:  # V19
        yield f"{_INVALID}{problem}"


def _of_runtime_env(text: str) -> Iterator[str]:
    prefix = f"failed to unmarshal RuntimeEnvYAML: {text[:_MAX_QUOTE_LENGTH]}: "
    try:
        value = go_yaml.load(text)
    except go_yaml.NotYamlError as error:  # V20
        yield f"{prefix}{error}"
        return
    if value is not None and not isinstance(value, dict):  # V20
        yield f"{prefix}it is not a mapping"


def _of_limits(job_spec: RayJobSpec) -> Iterator[str]:
    active, pre_running = job_spec.active_deadline_seconds, job_spec.pre_running_deadline_seconds
    if active is not None and active <= 0:  # V21
        yield f"{_INVALID}activeDeadlineSeconds must be a positive integer"
    if pre_running is not None and pre_running <= 0:  # V22
        yield f"{_INVALID}preRunningDeadlineSeconds must be a positive integer"
    if (job_spec.backoff_limit or 0) < 0:  # V23
        yield f"{_INVALID}backoffLimit must be a positive integer"


def _unrunnable(job_spec: RayJobSpec, cluster: RayCluster | None) -> Iterator[str]:
    mode, template = job_spec.submission_mode, job_spec.submitter_pod_template
    if mode not in ray_job.SUBMISSION_MODES:
        modes = ", ".join(ray_job.SUBMISSION_MODES)
        yield f"{_INVALID}spec.submissionMode is {mode!r}, expected one of {modes}"
    if job_spec.job_id and not _JOB_ID.fullmatch(job_spec.job_id):
        yield (
            f"{_INVALID}spec.jobId may contain letters, digits, '.', '_' and '-', and must start "
            "and end with a letter or digit"
        )
    if (
        mode == SubmissionMode.K8S_JOB
        and template is not None
        and not pod_json.containers(template)
    ):
        yield f"{_INVALID}spec.submitterPodTemplate should have at least one container"
    if mode != SubmissionMode.INTERACTIVE:
        yield from _of_resources(job_spec.entrypoint_resources)
        if job_spec.metadata and cluster is not None and cluster.spec.ray_version:
            yield from (
                f"{_INVALID}{problem}"
                for problem in traits.version_problems(
                    cluster.spec.ray_version, _METADATA_SINCE, "spec.metadata is set, but"
                )
            )
    if cluster is not None and not job_spec.cluster_selector:
        if (problem := cluster_rules.upgrade_type_on_a_child(cluster)) is not None:
            yield f"{_INVALID}spec.rayClusterSpec.{problem}"
        if cluster.spec.suspend:
            yield (
                f"{_INVALID}spec.rayClusterSpec.suspend cannot be true, because the job would "
                "never start; use spec.suspend"
            )


def _of_resources(text: str) -> Iterator[str]:
    if not text:
        return
    try:
        msgspec.json.decode(text, type=dict[str, float])
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        yield (
            f"{_INVALID}spec.entrypointResources should be a JSON object of numbers, such as "
            f'{{"R1": 2}}: {error}'
        )
