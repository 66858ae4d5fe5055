"""A server that simulates the Ray heads of all clusters: dashboards, jobs, Serve proxies, metrics.

The API server's proxy connects to the address of a pod, which leads to this server. A header
(`X-Forwarded-Uri`) holds the path with the name of the Service or pod that the client asked for.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from aiohttp import web

from common import errors
from common.api.opaque import Json
from common.clock import SystemClock
from common.ray import ports
from common.ray.jobs import PATH as JOBS
from support.fakes.serve import FakeServe

FORWARDED: Final = "X-Forwarded-Uri"
DEPLOY_SECONDS: Final = 0.5
_PLACE_OF_TARGET: Final = 6
"""Index of the name in a path split at `/`: `/api/v1/namespaces/<namespace>/services/<name>:…`."""


class Heads:
    """Simulates the heads of all clusters. The handlers of requests are methods."""

    def __init__(self) -> None:
        self.serve = FakeServe(SystemClock())
        self.asked: Counter[str] = Counter()
        """Number of requests by type: dashboard, config, job, submission, proxy, metrics."""
        self.driver_seconds: dict[str, float] = {}
        """Seconds from a job's submission to its success, by entrypoint.

        Drivers with other entrypoints never end.
        """
        self.answers: dict[str, bytes] = {}
        """Fixed answers to requests for the Serve status, by a prefix of the Service's name."""
        self.redirects: dict[str, str] = {}
        """Redirect targets of requests for the Serve status, by a prefix of the Service's name."""
        self.pages: dict[str, bytes] = {}
        """Metrics pages, by a prefix of the pod's name."""
        self.ongoing = 0
        """Number of in-flight requests that the Serve proxy of each pod reports."""
        self.answer_job: Callable[[str, str, web.Request], Awaitable[web.Response]] | None = None
        """Answers requests about Ray jobs instead of the simulation, if set.

        Arguments: name of the Service, address of the pod, request.
        """
        self.answer_user: Callable[[str, web.Request], Awaitable[web.Response]] | None = None
        """Answers requests to applications, if set; else the answer is 404.

        Arguments: address of the pod, request.
        """
        self.write_metrics: Callable[[str], str] | None = None
        """Returns the metrics page of the pod with this name, if set."""
        self._put = asyncio.Event()

    async def configured(self, cluster: str, count: int) -> None:
        """Wait until the head of a cluster has received `count` Serve configs since its start."""
        head = self.serve.head(f"{cluster}-head-svc")
        while len(head.puts) < count:
            self._put.clear()
            await self._put.wait()

    async def details(self, request: web.Request) -> web.Response:
        """Answer a request for the status of the Serve applications."""
        self.asked["dashboard"] += 1
        target = _get_target(request)
        if (
            answer := next(
                (answer for name, answer in self.answers.items() if target.startswith(name)), None
            )
        ) is not None:
            return web.Response(body=answer)
        if (
            location := next(
                (redirect for name, redirect in self.redirects.items() if target.startswith(name)),
                None,
            )
        ) is not None:
            return web.Response(status=307, headers={"Location": location})
        head = self.serve.head(target)
        return (
            web.json_response(head.details())
            if head.behaviour == "ok"
            else web.Response(status=500)
        )

    async def deploy(self, request: web.Request) -> web.Response:
        """Accept a Serve config, or answer 400 if Ray would reject it."""
        self.asked["config"] += 1
        head = self.serve.head(_get_target(request))
        head.deploy_seconds = DEPLOY_SECONDS
        try:
            head.deploy(await request.json())
        except errors.Rejected as problem:
            return web.Response(status=400, text=str(problem))
        self._put.set()
        return web.json_response({})

    async def job(self, request: web.Request) -> web.Response:
        """Answer a request about a job, or accept a submission.

        The submitted driver starts at once. `answer_job`, if set, answers instead.
        """
        is_submission = request.method == "POST" and request.path == JOBS
        self.asked["submission" if is_submission else "job"] += 1
        if self.answer_job is not None and request.transport is not None:
            address = request.transport.get_extra_info("sockname")[0]
            return await self.answer_job(_get_target(request), address, request)
        jobs = self.serve.head(_get_target(request)).jobs
        if not is_submission:
            return _build_answer(*jobs.answer(request.method, request.raw_path))
        submission: Json = await request.json()
        code, text = jobs.answer("POST", JOBS, submission)
        if code == HTTPStatus.OK:
            job_id = str(submission["submission_id"])
            jobs.run(job_id)
            if (seconds := self.driver_seconds.get(submission["entrypoint"])) is not None:
                asyncio.get_running_loop().call_later(seconds, jobs.end, job_id)
        return _build_answer(code, text)

    async def health(self, _request: web.Request) -> web.Response:
        """Answer the health check of a Serve proxy with success."""
        self.asked["proxy"] += 1
        return web.Response(text="success")

    async def application(self, request: web.Request) -> web.Response:
        """Answer a request to an application."""
        if self.answer_user is None or request.transport is None:
            return web.Response(status=HTTPStatus.NOT_FOUND)
        return await self.answer_user(request.transport.get_extra_info("sockname")[0], request)

    async def metrics(self, request: web.Request) -> web.Response:
        """Answer with the metrics page of a pod.

        The default page has the number of in-flight requests.
        """
        self.asked["metrics"] += 1
        target = _get_target(request)
        for name, page in self.pages.items():
            if target.startswith(name):
                return web.Response(body=page)
        if self.write_metrics is not None:
            return web.Response(text=self.write_metrics(target))
        return web.Response(
            text=f'ray_serve_num_ongoing_http_requests{{node_id="n"}} {self.ongoing}.0\n'
        )


@asynccontextmanager
async def played(*, metrics_port: int = ports.METRICS) -> AsyncGenerator[Heads]:
    """Run the server of all heads during the `with` block; yield the heads it simulates."""
    heads = Heads()
    app = web.Application()
    app.router.add_get("/api/serve/applications/", heads.details)
    app.router.add_put("/api/serve/applications/", heads.deploy)
    app.router.add_route("*", f"{JOBS}{{rest:.*}}", heads.job)
    app.router.add_get("/-/healthz", heads.health)
    app.router.add_get("/metrics", heads.metrics)
    app.router.add_route("*", "/{rest:.*}", heads.application)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        for port in (ports.DASHBOARD, ports.SERVE, metrics_port):
            # The network namespace has no other network.
            await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104
        yield heads
    finally:
        await runner.cleanup()


def _build_answer(code: int, text: str) -> web.Response:
    kind = "application/json" if code == HTTPStatus.OK else "text/plain"
    return web.Response(status=code, text=text, content_type=kind)


def _get_target(request: web.Request) -> str:
    parts = request.headers.get(FORWARDED, "").split("/")
    return parts[_PLACE_OF_TARGET].partition(":")[0] if len(parts) > _PLACE_OF_TARGET else ""
