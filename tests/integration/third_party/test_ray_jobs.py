"""raybus's client of Ray's jobs API, on a real Ray head and on the fake of the other tests."""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from common import errors
from common.api.ray_job import TERMINAL_JOB_STATES
from common.clock import SystemClock
from common.ray.dashboard import DirectDashboard
from common.ray.jobs import JobInfo, Submission
from common.ray.jobs_api import JobsApi
from common.runtime.cache import Cache
from raybus_cli.child_processes import bind_to_parent
from support import dashboard_calls as calls
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.kube import FakeKube
from support.fakes.ray_jobs import FakeJobs
from support.fakes.serve import FakeServe, http_app
from support.servers.loopback import ToLoopback, served
from support.waiting import eventually_true
from unit.common.ray.test_head_address import HEAD, OWN, a_slice
from unit.common.ray.test_head_address import SERVICE as HEAD_SERVICE

CLUSTER = a_ray_cluster()
SERVICE = replace(HEAD_SERVICE, metadata=replace(HEAD_SERVICE.metadata, uid="uid-of-svc"))
START_SECONDS = 240
JOB_SECONDS = 90
"""Ray starts a process for a job's supervisor and one for its driver."""

PATIENCE = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(START_SECONDS),
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": str(START_SECONDS),
}
"""A busy machine may take minutes to start the processes of a dashboard."""


class Head:
    """One Ray head behind raybus's client."""

    def __init__(self, dashboard: DirectDashboard, fake: FakeJobs | None = None) -> None:
        cache = Cache()
        cache.put(SERVICE, partition=0)
        cache.put(a_slice(OWN), partition=0)
        self.dashboard = dashboard
        self.api = JobsApi(dashboard, FakeKube(), cache, SystemClock())
        self._fake = fake

    def end(self, job_id: str, *, succeeds: bool) -> None:
        """End a driver of the fake; those of Ray end by themselves."""
        if self._fake is not None:
            self._fake.end(job_id, "SUCCEEDED" if succeeds else "FAILED", "Job ended.")

    def refuse(self, reason: str) -> None:
        """Have the fake refuse what Ray refuses by itself."""
        if self._fake is not None:
            self._fake.refusal = reason

    async def submit(self, job_id: str, entrypoint: str = "sleep 600") -> None:
        await self.api.submit(CLUSTER, Submission(entrypoint=entrypoint, submission_id=job_id))

    async def find(self, job_id: str) -> JobInfo:
        found = await self.api.find(CLUSTER, job_id)
        assert found is not None
        return found

    async def until_ended(self, job_id: str) -> JobInfo:
        async def has_ended() -> bool:
            return (await self.find(job_id)).state in TERMINAL_JOB_STATES

        await eventually_true(has_ended, within=JOB_SECONDS, every=0.2, what=f"the end of {job_id}")
        return await self.find(job_id)


@pytest.fixture(scope="module")
def ray_port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """Run a Ray head; its dashboard listens on this port."""
    ray = Path(sys.executable).with_name("ray")
    assert ray.exists(), "Ray is not installed: make prepare-third-party"
    port, agent, client = _free_ports(3)
    flags = ["--head", "--block", "--port=0", "--num-cpus=2", "--include-dashboard=true"]
    flags += ["--disable-usage-stats", "--object-store-memory=100000000"]
    flags += [f"--dashboard-port={port}", "--node-ip-address=127.0.0.1"]
    flags += [f"--dashboard-agent-listen-port={agent}", f"--ray-client-server-port={client}"]
    flags += ["--min-worker-port=0", "--max-worker-port=0"]
    log = tmp_path_factory.mktemp("ray") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            bind_to_parent([sys.executable, str(ray), "start", *flags]),
            stdout=output,
            stderr=output,
            env=os.environ | PATIENCE,
        )
    try:
        yield port
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(params=["fake", "ray"])
async def head(request: pytest.FixtureRequest) -> AsyncGenerator[Head]:
    """Offer a head of each kind."""
    if request.param == "fake":
        serve = FakeServe(SystemClock())
        async with served(http_app(serve)) as port, _dashboard(port) as dashboard:
            yield Head(dashboard, serve.head(HEAD.name).jobs)
    else:
        port = int(request.getfixturevalue("ray_port"))
        async with _dashboard(port) as dashboard:
            found = Head(dashboard)
            await _until_jobs_are_accepted(found)
            yield found


def _free_ports(count: int) -> list[int]:
    with ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in sockets]


@asynccontextmanager
async def _dashboard(port: int) -> AsyncGenerator[DirectDashboard]:
    async with httpx.AsyncClient(transport=ToLoopback(port)) as client:
        yield DirectDashboard(domain="cluster.local", client=client, seconds=10.0)


async def _until_jobs_are_accepted(head: Head) -> None:
    async def are_accepted() -> bool:
        try:
            await head.submit("probe", "true")
        except errors.Unavailable:
            return False
        return True

    await eventually_true(are_accepted, within=START_SECONDS, every=1.0, what="a Ray head")


async def test_only_ray_reports_that_it_does_not_know_a_job(head: Head) -> None:
    assert await head.api.find(CLUSTER, "never-submitted") is None
    await head.api.stop(CLUSTER, "never-submitted")


@pytest.mark.parametrize(
    ("entrypoint", "succeeds"), [("true", True), ("echo no >&2; exit 3", False)]
)
async def test_a_driver_is_followed_to_its_end(
    head: Head, entrypoint: str, *, succeeds: bool
) -> None:
    job_id = f"driver-{succeeds}"
    await head.submit(job_id, entrypoint)
    head.end(job_id, succeeds=succeeds)
    found = await head.until_ended(job_id)
    assert found.state == ("SUCCEEDED" if succeeds else "FAILED")
    assert found.message
    assert found.start_time is not None
    assert found.end_time is not None
    assert found.start_time <= found.end_time


@pytest.mark.acceptance("rayjob", 71)
async def test_a_job_of_a_used_id_is_not_run_again(head: Head) -> None:
    await head.submit("twice")
    began = (await head.find("twice")).start_time
    await head.submit("twice", "another entrypoint")
    body = {"entrypoint": "true", "submission_id": "twice"}
    with pytest.raises(errors.RaybusError) as used:
        await calls.submit_job(head.dashboard, HEAD, body)
    assert used.value.answer is not None
    assert used.value.answer.code == 500
    assert "Please use a different submission_id" in used.value.answer.body
    assert (await head.find("twice")).start_time == began
    await head.api.stop(CLUSTER, "twice")


async def test_a_running_job_is_stopped_and_an_ended_one_stays_as_it_is(head: Head) -> None:
    await head.submit("stopped")
    assert (await calls.stop_job(head.dashboard, HEAD, "stopped")) == {"stopped": True}
    assert (await head.until_ended("stopped")).state == "STOPPED"
    assert (await calls.stop_job(head.dashboard, HEAD, "stopped")) == {"stopped": False}
    await head.api.stop(CLUSTER, "stopped")
    assert (await head.find("stopped")).state == "STOPPED"


async def test_a_submission_that_the_agent_refuses_is_refused_for_good(head: Head) -> None:
    """Ray opens a log file that has the ID in its name, so an ID with a slash cannot run."""
    head.refuse("FileNotFoundError: [Errno 2] No such file or directory: 'logs/job-driver-a/b.log'")
    with pytest.raises(errors.Rejected, match="No such file or directory"):
        await head.submit("a/b")
