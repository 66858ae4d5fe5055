"""Jobs on real Ray: each way to submit one, a retry, a deadline, a run of a schedule (spec rayjob).

The clusters have a head only, which takes the work, so that a job starts within seconds. These
tests run on demand, because `make e2e` types part 5 of the tutorial: a job that succeeds, one that
fails twice, and a scheduled run.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from common.errors import NotFound
from common.kube.resources import JOB, RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB
from support.waiting import eventually_true

from .conftest import Rig
from .ray_cluster import NAMESPACE, a_template

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.ondemand]

HELLO = "the job has run"
PRINT = (
    f"python -c \"import ray; ray.init(); print(ray.get(ray.remote(lambda: '{HELLO}').remote()))\""
)
FAIL = 'python -c "raise SystemExit(3)"'
SLEEP = 'python -c "import time; time.sleep(600)"'


def a_spec(**fields: Any) -> Json:
    """Return the spec of a RayJob on a head of its own."""
    params = {"num-cpus": "1", "object-store-memory": "100000000"}
    head = {"rayStartParams": params, "template": a_template("ray-head")}
    return {
        "rayClusterSpec": {"rayVersion": "2.60.0", "headGroupSpec": head},
        "shutdownAfterJobFinishes": True,
        **fields,
    }


@asynccontextmanager
async def applied(rig: Rig, kind: str, name: str, spec: Json) -> AsyncGenerator[None]:
    """Apply an object for the length of a block, and delete it with what it owns."""
    body: Body = {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }
    await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(body).decode())
    try:
        yield
    finally:
        await rig.kubectl.run("delete", kind.lower(), name, "-n", NAMESPACE, "--wait=false")
        await eventually_true(lambda: is_empty(rig), within=90, what="the deletion of all objects")


async def is_empty(rig: Rig) -> bool:
    """Return whether no job and no cluster is left."""
    for resource in (RAY_CRON_JOB, RAY_JOB, RAY_CLUSTER, JOB):
        if msgspec.json.decode(await rig.kube.list(resource, NAMESPACE))["items"]:
            return False
    return True


async def read_job(rig: Rig, name: str) -> RayJob:
    return msgspec.json.decode(await rig.kube.get(RAY_JOB, NAMESPACE, name), type=RayJob)


async def until_ended(rig: Rig, name: str, state: str, *, within: float = 180) -> RayJob:
    """Wait until a RayJob has ended, and return it."""

    async def has_ended() -> bool:
        status = (await read_job(rig, name)).status
        return status.job_deployment_status in {"Complete", "Failed", "ValidationFailed"}

    await eventually_true(has_ended, within=within, every=1, what=f"the end of RayJob {name}")
    job = await read_job(rig, name)
    assert job.status.job_deployment_status == state, job.status
    return job


async def cluster_is_gone(rig: Rig, job: RayJob) -> bool:
    try:
        await rig.kube.get(RAY_CLUSTER, NAMESPACE, job.status.ray_cluster_name)
    except NotFound:
        return True
    return False


@pytest.mark.acceptance("rayjob", 24)
async def test_a_submitted_job_succeeds_and_leaves_its_log(rig: Rig) -> None:
    async with applied(rig, "RayJob", "hello", a_spec(entrypoint=PRINT)):
        job = await until_ended(rig, "hello", "Complete")
        assert job.status.job_status == "SUCCEEDED"
        assert job.status.succeeded == 1
        assert HELLO in await rig.kubectl.run("logs", "-n", NAMESPACE, "job/hello")
        await eventually_true(
            lambda: cluster_is_gone(rig, job), within=30, what="the deletion of the cluster"
        )
        shown = await rig.kubectl.run("get", "rayjob", "-n", NAMESPACE)
        assert "SUCCEEDED" in shown


@pytest.mark.acceptance("rayjob", 55, 59, 60)
@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
async def test_a_job_needs_no_submitter_pod(rig: Rig, mode: str) -> None:
    name = mode.removesuffix("Mode").lower()
    spec = a_spec(entrypoint=PRINT, submissionMode=mode)
    async with applied(rig, "RayJob", name, spec):
        job = await until_ended(rig, name, "Complete")
        assert job.status.job_status == "SUCCEEDED"
        assert not msgspec.json.decode(await rig.kube.list(JOB, NAMESPACE))["items"]


@pytest.mark.acceptance("rayjob", 92)
async def test_a_job_that_fails_is_retried_on_a_new_cluster(rig: Rig) -> None:
    spec = a_spec(entrypoint=FAIL, submissionMode="HTTPMode", backoffLimit=1)
    async with applied(rig, "RayJob", "fails", spec):
        job = await until_ended(rig, "fails", "Failed", within=300)
        assert job.status.reason == "AppFailed"
        assert job.status.failed == 2
        events = await rig.kubectl.run("events", "-n", NAMESPACE, "--for", "rayjob/fails")
        assert "Attempt 1 of 2 has failed" in events


@pytest.mark.acceptance("rayjob", 81)
async def test_a_job_ends_at_its_deadline(rig: Rig) -> None:
    spec = a_spec(entrypoint=SLEEP, submissionMode="HTTPMode", activeDeadlineSeconds=60)
    async with applied(rig, "RayJob", "late", spec):
        job = await until_ended(rig, "late", "Failed")
        assert job.status.reason == "DeadlineExceeded"


@pytest.mark.acceptance("rayjob", 131)
async def test_a_schedule_starts_a_job_each_minute(rig: Rig) -> None:
    template = a_spec(entrypoint=PRINT, submissionMode="HTTPMode")
    spec = {"schedule": "*/1 * * * *", "jobTemplate": template}

    async def find_complete() -> bool:
        jobs = msgspec.json.decode(await rig.kube.list(RAY_JOB, NAMESPACE))["items"]
        states = [job.get("status", {}).get("jobDeploymentStatus") for job in jobs]
        return "Complete" in states

    async with applied(rig, "RayCronJob", "minutely", spec):
        await eventually_true(find_complete, within=240, every=2, what="a run that has ended")
