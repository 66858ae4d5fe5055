"""Simulates the jobs APIs of all dashboards; jobs succeed unless an attack replaces answers."""

from typing import Any, Final

from aiohttp import web

from bench.heads import Heads
from common.clock import SystemClock
from common.ray.jobs import PATH
from support.fakes.ray_jobs import FakeJobs

RUN_SECONDS: Final = 0.5


class JobDashboards:
    """The Ray jobs of all heads. A submitted job succeeds after `RUN_SECONDS`."""

    def __init__(self, heads: Heads) -> None:
        self._heads = heads
        self._clock = SystemClock()
        self._jobs: dict[str, FakeJobs] = {}
        heads.answer_job = self.answer

    async def answer(self, service: str, _address: str, request: web.Request) -> web.Response:
        """Answer a request for the dashboard behind a Service.

        If an attack has set an answer or a redirect for the Service, return that.
        """
        for name, location in self._heads.redirects.items():
            if service.startswith(name):
                return web.Response(status=307, headers={"Location": location})
        for name, body in self._heads.answers.items():
            if service.startswith(name):
                return web.Response(body=body)
        jobs = self._jobs.setdefault(service, FakeJobs(self._clock))
        self._move_on(jobs)
        path = f"{PATH}{request.raw_path.partition(PATH)[2]}"
        body: Any = await request.json() if request.method == "POST" else None
        code, text = jobs.answer(request.method, path, body)
        return web.Response(status=code, text=text)

    def _move_on(self, jobs: FakeJobs) -> None:
        now = self._clock.now().timestamp()
        for job_id, job in jobs.jobs.items():
            if job.status == "PENDING":
                jobs.run(job_id)
            elif job.end_time is None and now >= job.start_time / 1000 + RUN_SECONDS:
                jobs.end(job_id)
