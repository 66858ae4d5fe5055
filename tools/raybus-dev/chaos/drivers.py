"""Simulates the drivers of Ray jobs, and records every run of a driver.

A head is a pod. After the loss of a head pod, the new head pod of the cluster knows no earlier job,
as in Ray without fault tolerance of the GCS. The entrypoint says how long a driver runs and how
many of a RayJob's drivers fail.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import msgspec
from aiohttp import web

from bench.heads import Heads
from common.clock import SystemClock
from common.ray.jobs import PATH as JOBS
from support.fakes.ray_jobs import FakeJobs
from support.laws.jobs import RUNNING, SUCCEEDED, DriverRun

TICK: Final = 0.1
START_SECONDS: Final = 0.3
"""Seconds between the submission of a job and the start of its driver."""
SILENT_SECONDS: Final = 30.0
_WORK: Final = re.compile(r"--seconds (?P<seconds>[\d.]+) --failures (?P<failures>\d+)")
Head = tuple[str, str]
"""A head: the name of its RayCluster, and the address of its pod."""


class _Driver(msgspec.Struct, kw_only=True):
    """A driver that has started. It runs for `seconds`, then succeeds or fails."""

    run: DriverRun
    seconds: float
    fails: bool


class Drivers:
    """The Ray jobs of all heads, and a record of every run of a driver."""

    def __init__(self, heads: Heads, now: Callable[[], float]) -> None:
        self.runs: list[DriverRun] = []
        """All runs of drivers, in the order of their starts."""
        self.behaviour = "ok"
        """How all dashboards answer: `ok`, `500`, `silent`, or `lost answers`."""
        self._now = now
        self._clock = SystemClock()
        self._jobs: dict[Head, FakeJobs] = {}
        self._drivers: dict[tuple[Head, str], _Driver] = {}
        self._submitted: dict[tuple[Head, str], float] = {}
        self._started: Counter[str] = Counter()
        """Number of drivers that were started for each RayJob."""
        heads.answer_job = self._answer

    def jobs_of(self, head: Head) -> FakeJobs:
        """Return the simulated jobs API of a head. A new head has no jobs."""
        return self._jobs.setdefault(head, FakeJobs(self._clock))

    def submit(self, head: Head, job_id: str, entrypoint: str) -> None:
        """Submit a job to a head as `ray job submit` does."""
        body = {"entrypoint": entrypoint, "submission_id": job_id}
        self.jobs_of(head).answer("POST", JOBS, body)

    def lose(self, head: Head) -> None:
        """End all drivers of a head whose pod is lost."""
        self._jobs.pop(head, None)
        for (on, job_id), driver in list(self._drivers.items()):
            if on == head:
                driver.run.lost_at = self._now()
                del self._drivers[on, job_id]

    async def run(self) -> None:
        """Start and end drivers at their times, until cancelled."""
        while True:
            self.move_on()
            await asyncio.sleep(TICK)

    def move_on(self) -> None:
        """Start the drivers that are due, and end those that have run for their time."""
        now = self._now()
        for head, jobs in self._jobs.items():
            for job_id, job in jobs.jobs.items():
                place = head, job_id
                if job.status == "PENDING":
                    if now >= self._submitted.setdefault(place, now) + START_SECONDS:
                        jobs.run(job_id)
                        self._start(place, str(job.submission["entrypoint"]))
                elif job.status == RUNNING:
                    driver = self._drivers[place]
                    if now >= driver.run.began + driver.seconds:
                        _end(jobs, job_id, driver)
                if job.end_time is not None and place in self._drivers:
                    run = self._drivers[place].run
                    if run.ended is None:
                        run.ended, run.status = now, job.status

    def _start(self, place: tuple[Head, str], entrypoint: str) -> None:
        (cluster, _address), job_id = place
        ray_job = cluster.rpartition("-")[0]
        work = _WORK.search(entrypoint)
        seconds, failures = (1.0, 0) if work is None else (float(work[1]), int(work[2]))
        run = DriverRun(job_id=job_id, cluster=cluster, began=self._now())
        self.runs.append(run)
        fails = self._started[ray_job] < failures
        self._started[ray_job] += 1
        self._drivers[place] = _Driver(run=run, seconds=seconds, fails=fails)

    async def _answer(self, service: str, address: str, request: web.Request) -> web.Response:
        match self.behaviour:
            case "500":
                return web.Response(status=500, text="boom")
            case "silent":
                await asyncio.sleep(SILENT_SECONDS)
                return web.Response(status=504)
            case _:
                pass
        head = service.removesuffix("-head-svc"), address
        body: Any = await request.json() if request.method == "POST" else None
        path = f"{JOBS}{request.raw_path.partition(JOBS)[2]}"
        code, text = self.jobs_of(head).answer(request.method, path, body)
        if self.behaviour == "lost answers" and request.method == "POST":
            return web.Response(status=504, text="the answer was lost")
        return web.Response(status=code, text=text)


def _end(jobs: FakeJobs, job_id: str, driver: _Driver) -> None:
    if driver.fails:
        jobs.end(job_id, "FAILED", "Job entrypoint command failed with exit code 1")
    else:
        jobs.end(job_id, SUCCEEDED, "Job finished successfully.")
