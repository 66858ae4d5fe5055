"""A RayJob is suspended where that stops it and can be undone; else the message says what to do."""

from typing import Any

import pytest

from common import errors
from common.api.opaque import Json
from common.api.ray_job import RayJob
from raybus_cli.jobs import stopping
from support.builders.ray_job import a_ray_job


def a_job(state: str = "Running", **fields: Any) -> RayJob:
    spec: Json = {"shutdownAfterJobFinishes": True, **fields}
    return a_ray_job(status={"jobDeploymentStatus": state}, **spec)


@pytest.mark.parametrize("state", ["", "Initializing", "Waiting", "Running", "Retrying"])
def test_a_job_that_has_not_ended_is_suspended(state: str) -> None:
    patch = stopping.build_suspension(a_job(state))
    assert patch.body == {"metadata": {"uid": "uid-of-train"}, "spec": {"suspend": True}}


@pytest.mark.parametrize("state", ["Complete", "Failed", "ValidationFailed"])
def test_a_job_that_has_ended_is_refused(state: str) -> None:
    with pytest.raises(errors.Rejected, match=f"has ended already: {state}"):
        stopping.build_suspension(a_job(state))


def test_a_suspended_job_is_refused() -> None:
    with pytest.raises(errors.Rejected, match="is suspended already"):
        stopping.build_suspension(a_job(suspend=True))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes set to false"),
        (
            {"clusterSelector": {"ray.io/cluster": "shared"}, "rayClusterSpec": None},
            "ClusterSelector",
        ),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "raybus does not manage it"),
    ],
)
def test_a_job_that_cannot_be_suspended_names_the_deletion(fields: Any, why: str) -> None:
    with pytest.raises(errors.Rejected, match=rf"{why}.*raybus stop train --delete"):
        stopping.build_suspension(a_job(**fields))


def test_a_job_that_kueue_would_resume_names_the_deletion() -> None:
    job = a_job()
    job.metadata.labels["kueue.x-k8s.io/queue-name"] = "research"
    with pytest.raises(errors.Rejected, match=r"Kueue would resume it.*--delete"):
        stopping.build_suspension(job)
