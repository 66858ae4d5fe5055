"""Build RayJobs for tests: valid by default, each field can be replaced."""

from collections.abc import Mapping
from typing import Any, Final

from common.api import ray_job
from common.api.opaque import Json
from common.api.ray_job import RayJob
from support.builders.ray_cluster import a_group, a_head

SUBMITTING_MODES: Final = ("K8sJobMode", "HTTPMode", "SidecarMode")
"""Submission modes in which the job is submitted for the user."""
FAILED_JOB: Final = {
    "jobDeploymentStatus": "Failed",
    "jobStatus": "FAILED",
    "jobId": "score-x7k2p",
    "rayClusterName": "score-x7k2p",
    "reason": "AppFailed",
    "message": "Job entrypoint command failed with exit code 1",
    "failed": 3,
    "startTime": "2026-01-01T10:00:00Z",
    "endTime": "2026-01-01T10:04:10Z",
}
"""The status of a job whose third attempt failed."""


def a_cluster_spec(**fields: Any) -> Json:
    """Build a `rayClusterSpec`; fields are named as in a manifest."""
    return {"headGroupSpec": a_head(), "workerGroupSpecs": [a_group()], **fields}


def a_ray_job(
    name: str = "train",
    *,
    annotations: Mapping[str, str] | None = None,
    status: Json | None = None,
    **spec: Any,
) -> RayJob:
    """Build a RayJob as it is read; fields are named as in a manifest, None leaves one out."""
    fields = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec(), **spec}
    return ray_job.decode(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": "uid-of-train",
                "annotations": dict(annotations or {}),
            },
            "spec": {field: value for field, value in fields.items() if value is not None},
            "status": status or {},
        }
    )
