"""Ray Serve as its REST API shows it, with a clock: a config takes time to deploy, a head may be slow, sick or silent.

`FakeServe` implements `common.ray.dashboard.Dashboard` in memory; `http_app` offers the same heads over HTTP, so that the
contract tests hold the real adapter against it. What it models was measured on Ray 2.60: DEPLOYING from the first GET after
a PUT, replicas and proxies by node, `target_capacity` at once, 400 for a body that breaks the schema.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import msgspec
from aiohttp import web

from common import errors
from common.api.opaque import Json
from common.clock import Clock
from common.ray.dashboard import METRICS, OK, PROXY_HEALTH, TOKEN_HEADER, Target, make_error
from common.ray.ongoing import Ongoing
from support.fakes.ray_jobs import JOBS, FakeJobs

MISSING = "missing"
"""Prefix of import paths that do not exist."""


MISSING_TOKEN = "Unauthorized: Missing authentication token"
REFUSED = "Forbidden: Invalid authentication token"


class EarlierProxy(msgspec.Struct, frozen=True, kw_only=True):
    """A proxy that has ended; Ray exports its series for some time longer."""

    answered: float = 0.0
    failed: float = 0.0
    is_exported: bool = False


class FakeHead:
    """The Serve controller of one cluster."""

    counts_at: tuple[str, ...] = ("head",)
    """Roles of the nodes whose proxies answer requests; each node counts its share of the
    requests."""

    reports_configs = True
    """Whether the controller reports the config of each application."""
    waiting = 0
    """Number of HTTP callers that currently wait for a silent head."""
    kept_waiting = 0
    """Number of HTTP callers that ever waited for a silent head."""
    proxy_is_healthy = True

    def __init__(self, clock: Clock, *, deploy_seconds: float = 2.0) -> None:
        self._clock = clock
        self.deploy_seconds = deploy_seconds
        self.behaviour = "ok"
        """How the head answers calls: `ok`, `500` (every call fails) or `silent` (no call is
        answered)."""
        self.expects: str | None = None
        """Token that the head requires; None if it requires none."""
        self.nodes = [""]
        """Addresses of the nodes that run replicas; empty for a node whose address the head does
        not report."""
        self.head_node = ""
        """Address of the head's node, which has a proxy too."""
        self.hides: set[str] = set()
        """Names of applications that the head does not list."""
        self.shows: dict[str, Json] = {}
        """Fields of applications, by name, that the head reports differently than they were sent,
        or that were never sent."""
        self.rewrites: Json = {}
        """Options that the head reports of each application in another form than they were sent."""
        self.puts: list[Json] = []
        self.gets = 0
        self.http_options: Json = {}
        self.proxy_location = "EveryNode"
        """Proxy location of the first config, like the HTTP options: Serve does not change them
        after its start."""
        self.late: dict[str, float] = {}
        """Additional seconds that an application takes to deploy, by its name."""
        self.ongoing: int | Ongoing | None = 0
        """Requests that each proxy of the cluster currently handles; None if the head does not
        report them."""
        self.answered: float = 0
        """Number of requests that the proxies answered, all counted at one node."""
        self.failed: float = 0
        """Number of answered requests that failed through the fault of the cluster."""
        self.earlier_proxies: dict[str, EarlierProxy] = {}
        """By role of the node: the previous proxy of that node."""
        self.jobs = FakeJobs(clock)
        self._put_at = 0.0
        self._forgotten = False
        self.autoscaled: int | None = None
        """Number of replicas that Ray's autoscaler has chosen; None where the number is fixed."""
        self._kept = 0
        """Number of replicas that kept running through the last change of capacity."""

    def refusal(self, token: str | None) -> str | None:
        """Return status and text of Ray's answer to a request without the right token; None if the
        request is accepted.
        """
        if self.expects in {None, token}:
            return None
        return f"403 Forbidden: {REFUSED}" if token else f"401 Unauthorized: {MISSING_TOKEN}"

    def replace_proxy(self, role: str) -> None:
        """Replace the proxy of a node by a new one with its own series."""
        share = 1 / len(self.counts_at)
        self.earlier_proxies[role] = EarlierProxy(
            answered=self.answered * share, failed=self.failed * share, is_exported=True
        )

    def end_series(self, role: str) -> None:
        """Remove the series of a node's previous proxy."""
        if (before := self.earlier_proxies.get(role)) is not None:
            self.earlier_proxies[role] = msgspec.structs.replace(before, is_exported=False)

    def restart(self) -> None:
        """Delete all state, like a head that restarts without GCS fault tolerance."""
        self._forgotten = True
        self.jobs.forget()

    def deploy(self, config: Json) -> None:
        """Accept a config, or refuse it as Serve's schema would."""
        apps = config.get("applications")
        if not isinstance(apps, list) or not all(
            "import_path" in app for app in cast("list[Json]", apps)
        ):
            raise errors.Rejected(
                "400 Bad Request: 1 validation error for ServeDeploySchema: applications: field required"
            )
        self._kept = self._left_running() if self._runs_already(config) else 0
        if not self.puts:
            self.http_options = config.get("http_options", {})
            self.proxy_location = config.get("proxy_location", "EveryNode")
        self.puts.append(config)
        self._forgotten = False
        self._put_at = self._clock.monotonic()

    def details(self) -> Json:
        """Return the answer to a GET."""
        self.gets += 1
        if not self.puts or self._forgotten:
            return {"applications": {}, "target_capacity": None, "proxies": {}}
        config = self.puts[-1]
        capacity = config.get("target_capacity")
        applications: dict[str, Json] = {
            app.get("name", ""): {
                **self._app(app, self._is_deployed(app), capacity),
                "deployed_app_config": {**app, **self.rewrites} if self.reports_configs else None,
            }
            for app in config["applications"]
            if app.get("name", "") not in self.hides
        }
        for name, fields in self.shows.items():
            applications[name] = {**applications.get(name, {}), **fields}
        return {
            "applications": applications,
            "target_capacity": capacity,
            "proxy_location": self.proxy_location,
            "http_options": self.http_options,
            "proxies": {
                f"node-{ip}": {"status": "HEALTHY", "node_ip": ip or None}
                for ip in [each for each in self.proxies if each] or self.proxies[:1]
            },
        }

    @property
    def proxies(self) -> list[str]:
        """Return the addresses of nodes with a proxy."""
        located = {"HeadOnly": [self.head_node], "Disabled": list[str]()}
        return located.get(self.proxy_location, [*self.nodes, self.head_node])

    def listens(self, port: int, *, on_head: bool) -> bool:
        """Return whether a node accepts requests at a port; before Serve has started, every port
        counts as open.
        """
        locations = {"EveryNode", "HeadOnly"} if on_head else {"EveryNode"}
        is_port = port == self.http_options.get("port", 8000)
        return not self.puts or (self.proxy_location in locations and is_port)

    def _runs_already(self, config: Json) -> bool:
        """Return whether a config changes only the capacity."""
        return (
            bool(self.puts)
            and not self._forgotten
            and self.puts[-1]["applications"] == config["applications"]
        )

    def _left_running(self) -> int:
        """Return the number of replicas that each deployment has had until now."""
        app = self.puts[-1]["applications"][0]
        target = _scaled(2, self.puts[-1].get("target_capacity"))
        return target if self._is_deployed(app) else min(target, self._kept)

    def _is_deployed(self, app: Json) -> bool:
        seconds = self.late.get(app.get("name", ""), self.deploy_seconds)
        return self._clock.monotonic() - self._put_at >= seconds

    def _app(self, app: Json, done: bool, capacity: float | None) -> Json:
        if app["import_path"].startswith(MISSING) and done:
            name = app["import_path"].split(":")[0]
            message = (
                f"Deploying app failed:\nTraceback\nModuleNotFoundError: No module named '{name}'"
            )
            return {"status": "DEPLOY_FAILED", "message": message, "deployments": {}}
        target = _scaled(2, capacity) if self.autoscaled is None else self.autoscaled
        running = target if done else min(target, self._kept)
        replicas: list[Any] = [
            {"state": "RUNNING", "node_id": f"node-{ip}", "node_ip": ip}
            for ip in (self.nodes[index % len(self.nodes)] for index in range(running))
        ]
        status = "HEALTHY" if done else "UPDATING"
        deployment: Json = {
            "status": status,
            "message": "",
            "target_num_replicas": target,
            "replicas": replicas,
        }
        if self.autoscaled is not None:
            deployment["deployment_config"] = {
                "autoscaling_config": {"min_replicas": 1, "max_replicas": 100}
            }
        return {
            "status": "RUNNING" if done else "DEPLOYING",
            "message": "",
            "deployments": {"Model": deployment},
        }


class FakeServe:
    """The heads of all clusters by the name of their head Service; implements
    `common.ray.dashboard.Dashboard`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.heads: dict[str, FakeHead] = {}
        self.attempts = 0
        """Number of PUTs received, refused ones included."""
        self.tokens: set[str] = set()
        """Tokens that were sent with a read or a config."""
        self.calls: list[tuple[str, str | None]] = []
        """All reads (GET) and configs (PUT), each with its token."""
        self.checked: list[Target] = []
        """Proxies whose health was checked."""
        self.requests: list[tuple[str, str]] = []
        """Requests to applications, by pod and path."""
        self.refuses_after: int | None = None
        """Number of application requests that are answered before the others are refused; None to
        answer all."""
        self.refusal = "500 Internal Server Error: no such model"
        """Answer to application requests that are refused."""
        self.on_put: list[Callable[[str], None]] = []
        """Functions that are called with the head Service's name before and after each PUT."""
        self.next_puts: list[str] = []
        """Results of the next PUTs: `ok`, `lost` (Ray carries it out, but the sender gets no
        answer), `late` (like `lost`, but carried out only when the test calls `land`)."""
        self.under_way: list[tuple[FakeHead, Json]] = []
        """Late PUTs that have not been carried out."""

    def head(self, service: str) -> FakeHead:
        """Return a cluster's head, which is created at the first call."""
        return self.heads.setdefault(service, FakeHead(self._clock))

    async def request(
        self,
        target: Target,
        path: str,
        *,
        most: int,
        config: Json | None = None,
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        del most, seconds
        if target.ip and path not in {METRICS, PROXY_HEALTH}:
            return self._of_application(target, path)
        if target.ip:
            return self._of_metrics(target) if path == METRICS else self._of_proxy(target)
        fake = self._reachable(target.name)
        self.tokens |= {target.token} if target.token else set()
        method = "POST" if post is not None else "GET" if config is None else "PUT"
        self.calls.append((method, target.token))
        if (refusal := fake.refusal(target.token)) is not None:
            raise errors.Unauthenticated(refusal)
        if path.startswith(JOBS):
            code, text = fake.jobs.answer(method, path, post)
            if code == OK:
                return text.encode()
            raise make_error(target, code, HTTPStatus(code).phrase, text.encode())
        if config is None:
            return msgspec.json.encode(fake.details())
        self._put(fake, target.name, config)
        return b"{}"

    def _put(self, fake: FakeHead, service: str, config: Json) -> None:
        self.attempts += 1
        for reported in self.on_put:
            reported(f"put {service}")
        end = self.next_puts.pop(0) if self.next_puts else "ok"
        if end == "late":
            self.under_way.append((fake, config))
        else:
            fake.deploy(config)
        if end != "ok":
            raise errors.Unanswered(f"{service} does not answer within 10 s")
        for reported in self.on_put:
            reported(f"after put {service}")

    def land(self) -> None:
        """Carry out the late PUTs."""
        while self.under_way:
            fake, config = self.under_way.pop(0)
            fake.deploy(config)

    def _of_proxy(self, pod: Target) -> bytes:
        self.checked.append(pod)
        cluster = pod.name.rpartition("-head")[0]
        head = self.head(f"{cluster}-head-svc")
        if not head.listens(pod.port, on_head=True):
            raise errors.Unanswered(f"nothing listens on port {pod.port} of {pod.name}")
        if not head.proxy_is_healthy:
            raise errors.Unavailable(
                f"the proxy of {pod.name} answered 500 Internal Server Error: unhealthy"
            )
        return b"success"

    def _of_application(self, pod: Target, path: str) -> bytes:
        head = self.head(f"{pod.name.rpartition('-')[0]}-head-svc")
        if not head.listens(pod.port, on_head=pod.name.endswith("-head")):
            raise errors.Unanswered(f"nothing listens on port {pod.port} of {pod.name}")
        self.requests.append((pod.name, path))
        if self.refuses_after is not None and len(self.requests) > self.refuses_after:
            raise errors.Unavailable(f"{pod.name} answered {self.refusal}")
        self.head(f"{pod.name.rpartition('-')[0]}-head-svc").answered += 1
        return b"{}"

    def _of_metrics(self, pod: Target) -> bytes:
        cluster = pod.name.rpartition("-")[0]
        head = self.head(f"{cluster}-head-svc")
        count = head.ongoing
        if count is None:
            raise errors.Unavailable(f"{pod.name} answered 500 Internal Server Error: boom")
        requests = _requests(head, pod.name.rpartition("-")[2])
        in_flight = exposition(Ongoing(proxies=count) if isinstance(count, int) else count)
        return in_flight + "\n".join([*requests, ""]).encode()

    def _reachable(self, service: str) -> FakeHead:
        fake = self.head(service)
        match fake.behaviour:
            case "500":
                raise errors.Unavailable(
                    f"the dashboard at {service}:8265 answered 500 Internal Server Error: boom"
                )
            case "silent":
                raise errors.Unanswered(f"{service} does not answer within 2 s")
            case _:
                return fake


def _requests(head: FakeHead, role: str) -> list[str]:
    """Return the request counters of one node's proxy in Ray's metrics format."""
    if role not in head.counts_at:
        return []
    share, before = 1 / len(head.counts_at), head.earlier_proxies.get(role, EarlierProxy())
    answered, failed = head.answered * share - before.answered, head.failed * share - before.failed
    series = {f"{role}-{before.answered:g}": (answered, failed)}
    if before.is_exported:
        series[f"{role}-before"] = before.answered, before.failed
    return [
        f'ray_serve_num_http_requests_total{{application="app",route="/",status_code="{code}"'
        f',WorkerId="{worker}"}} {int(count)}.0'
        for worker, (total, bad) in series.items()
        for code, count in (("200", total - bad), ("500", bad))
    ]


def exposition(ongoing: Ongoing) -> bytes:
    """Return the metrics of a node with this number of requests in flight, in Ray's metrics format."""
    lines = [
        "# HELP ray_node_cpu_count CPUs",
        "ray_node_cpu_count 2.0",
        *(
            []
            if ongoing.lacks_proxy
            else [f'ray_serve_num_ongoing_http_requests{{node_id="n0"}} {ongoing.proxies}.0']
        ),
        f'ray_serve_replica_processing_queries{{node_id="n0"}} {ongoing.replicas}.0',
    ]
    processes = 1 + ongoing.has_older if ongoing.has_ha_proxy else 0
    lines += [f"ray_serve_haproxy_process_count {processes}.0"] if processes else []
    return "\n".join([*lines, ""]).encode()


API_SERVER_PROXY = "/api/v1/namespaces/ns/{kind}/{target}/proxy"
"""Path under which the API server would offer the same endpoints."""


def http_app(serve: FakeServe, *, prefix: str = "") -> web.Application:
    """Serve all heads over HTTP; the target in the prefix, or without a prefix the Host header,
    selects one.
    """

    async def get(request: web.Request) -> web.Response:
        head = await _awake(serve, request)
        return _refused(head, request) or web.json_response(head.details())

    async def put(request: web.Request) -> web.Response:
        head = await _awake(serve, request)
        if (refused := _refused(head, request)) is not None:
            return refused
        try:
            head.deploy(await request.json())
        except errors.Rejected as problem:
            return web.Response(status=400, text=str(problem))
        return web.json_response({})

    async def health(request: web.Request) -> web.Response:
        cluster = request.host.partition(":")[0].removeprefix("ip-").removesuffix("-head")
        if f"{cluster}-head-svc" in serve.heads:  # where addresses are distinct
            await answering(serve.head(f"{cluster}-head-svc"))
        healthy = all(head.proxy_is_healthy for head in serve.heads.values())
        return web.Response(
            status=200 if healthy else 500, text="success" if healthy else "unhealthy"
        )

    async def metrics(_request: web.Request) -> web.Response:
        counts = [head.ongoing for head in serve.heads.values()]
        if None in counts:
            return web.Response(status=500, text="boom")
        lines = [
            f'ray_serve_num_ongoing_http_requests{{node_id="n{number}"}} {count}.0'
            for number, count in enumerate(counts)
        ]
        return web.Response(
            text="\n".join(["# HELP ray_node_cpu_count CPUs", "ray_node_cpu_count 2.0", *lines, ""])
        )

    app = web.Application()
    app.router.add_get(f"{prefix}/metrics", metrics)
    app.router.add_get(f"{prefix}/api/serve/applications/", get)
    app.router.add_put(f"{prefix}/api/serve/applications/", put)
    for method in ("GET", "POST"):
        app.router.add_route(method, f"{prefix}{JOBS}{{rest:.*}}", partial(_answer_job, serve))
    app.router.add_get(f"{prefix}/-/healthz", health)
    return app


async def _answer_job(serve: FakeServe, request: web.Request) -> web.Response:
    head = await _awake(serve, request)
    if (refused := _refused(head, request)) is not None:
        return refused
    path = f"{JOBS}{request.raw_path.partition(JOBS)[2]}"
    body = await request.json() if request.method == "POST" else None
    code, text = head.jobs.answer(request.method, path, body)
    return web.Response(status=code, text=text)


async def _awake(serve: FakeServe, request: web.Request) -> FakeHead:
    """Return the head that a request addresses; if the head is silent, wait for ever."""
    target = request.match_info.get("target", request.host)
    if token := request.headers.get(TOKEN_HEADER, "").removeprefix("Bearer "):
        serve.tokens.add(token)
    head = serve.head(target.partition(":")[0].partition(".")[0])
    await answering(head)
    return head


async def answering(head: FakeHead) -> None:
    """Wait until a head answers: at once, or never."""
    if head.behaviour != "silent":
        return
    head.waiting += 1
    head.kept_waiting += 1
    try:
        await asyncio.Event().wait()
    finally:
        head.waiting -= 1


def _refused(head: FakeHead, request: web.Request) -> web.Response | None:
    """Return the answer of a head that fails, or to a request without the right token; None if the
    request is accepted.
    """
    if head.behaviour == "500":
        return web.Response(status=500, text="boom")
    refusal = head.refusal(request.headers.get(TOKEN_HEADER, "").removeprefix("Bearer ") or None)
    return (
        None
        if refusal is None
        else web.Response(status=int(refusal[:3]), text=refusal.partition(": ")[2])
    )


def _scaled(count: int, capacity: float | None) -> int:
    if capacity is None:
        return count
    return 0 if capacity == 0 else max(1, math.floor(count * capacity / 100 + 0.5))
