"""Finds the pods and containers that submit a RayJob and have its driver's log. Does no I/O."""

from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors, labels
from common.api.core import Pod
from common.api.ray_job import SUBMITTER_CONTAINER, RayJob, SubmissionMode
from common.kube.resources import format_selector
from raybus_cli.logs import selection
from raybus_cli.logs.selection import Log, LogChoice, LogExtent

_MODES: Final = frozenset({SubmissionMode.K8S_JOB, SubmissionMode.SIDECAR})
"""The modes in which a pod submits the job."""


def has_submitter(job: RayJob) -> bool:
    """Return whether a pod submits the job; otherwise only Ray has the log of the driver."""
    return job.spec.submission_mode in _MODES


def build_selector(job: RayJob) -> str:
    """Return the label selector of the pods with the driver's log; empty if none can exist yet."""
    mode, cluster = job.spec.submission_mode, job.status.ray_cluster_name
    if mode == SubmissionMode.K8S_JOB:
        return format_selector({labels.KUBERNETES_JOB_NAME: job.metadata.name})
    if mode == SubmissionMode.SIDECAR and cluster:
        return format_selector({labels.CLUSTER: cluster, labels.NODE_TYPE: labels.HEAD})
    return ""


def find_container(pod: Pod, job: RayJob) -> str:
    """Return the name of the container that submits the job; empty if the pod has none."""
    if job.spec.submission_mode == SubmissionMode.SIDECAR:
        return SUBMITTER_CONTAINER
    return next((container.name for container in pod.spec.containers), "")


def has_started(pod: Pod, container: str) -> bool:
    """Return whether a container has started, and therefore has a log."""
    return any(
        status.name == container and status.state.waiting is None
        for status in pod.status.container_statuses
    )


def select_logs(
    namespace: str, job: RayJob, pods: Sequence[Pod], choice: LogChoice, extent: LogExtent
) -> list[Log]:
    """Return the log of the newest pod of a RayJob or, with `--all`, the logs of all, oldest first.

    Raises `Rejected` if there is no pod.
    """
    if not pods:
        state = job.status.job_deployment_status or "not observed by raybus yet"
        raise errors.Rejected(
            f"RayJob {job.metadata.name} has no pod with the log of its driver: it is {state}; "
            f"see 'raybus status rayjob/{job.metadata.name}'"
        )
    ordered = sorted(
        pods, key=lambda pod: (str(pod.metadata.creation_timestamp), pod.metadata.name)
    )
    logs: list[Log] = []
    for pod in ordered if choice.every else ordered[-1:]:
        container = choice.container or find_container(pod, job)
        selected = msgspec.structs.replace(choice, container=container)
        logs += selection.select_logs(namespace, [pod], selected, extent)
    return logs


def check_of_ray(choice: LogChoice, extent: LogExtent) -> None:
    """Raise `InvalidSpec` for options that do not work if the log comes from Ray's jobs API."""
    wrong = {
        "-c": choice.container is not None,
        "--all": choice.every,
        "--since": extent.since is not None,
        "-p": extent.previous,
    }
    if given := [name for name, is_given in wrong.items() if is_given]:
        raise errors.InvalidSpec(
            f"{' and '.join(given)} cannot be used with a RayJob whose log Ray has: in its "
            "submissionMode no pod submits it"
        )


def check(choice: LogChoice) -> None:
    """Raise `InvalidSpec` for options that select a cluster's pods, if the target is a RayJob."""
    wrong = {
        "--cluster": choice.cluster is not None,
        "--head": choice.head,
        "--workers": choice.workers,
        "--group": choice.group is not None,
        "--pod": choice.pod is not None,
        "--app": choice.app is not None,
        "--deployment": choice.deployment is not None,
    }
    if given := [name for name, is_given in wrong.items() if is_given]:
        raise errors.InvalidSpec(
            f"{' and '.join(given)} cannot be used with a RayJob: name its cluster, raycluster/NAME"
        )
