"""Dashboards that ask for a token: the user's rights get it, it goes to the head's own Service alone, and it is printed nowhere."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from raybus_cli.logs import finding
from raybus_cli.logs.reading import LogReader
from raybus_cli.logs.selection import LineFormat, LogChoice, LogExtent
from raybus_cli.reading import kinds, reader
from raybus_cli.reading.kinds import NamedTarget
from support.builders import snapshots
from support.builders.snapshots import BLUE, a_cluster, a_config, a_side
from support.servers.loopback import served
from support.tables import cases

TOKEN = "s3cr3t-0f-the-cluster"
NAMESPACE = "/api/v1/namespaces/default"
SECRET = f"{NAMESPACE}/secrets/{BLUE}"
ISSUE = f"{NAMESPACE}/serviceaccounts/raybus-dashboard/token"
HEAD = f"{BLUE}-head-svc"
SERVE = {
    "applications": {
        "app": {
            "name": "app",
            "status": "RUNNING",
            "deployments": {
                "d": {
                    "replicas": [{"node_id": "abc", "log_file_path": "/serve/replica_app_d_x.log"}]
                }
            },
        }
    }
}
BY_SECRET: Json = {"mode": "token"}
BY_KUBERNETES: Json = {"mode": "token", "enableK8sTokenAuth": True}


class Cluster:
    """An API server with one RayService, and the dashboard of its cluster behind it."""

    def __init__(self, options: Json) -> None:
        self.asked: list[tuple[str, str]] = []
        self.shown: list[str] = []
        """Tokens that were sent to the dashboard."""
        self.forbidden = ""
        self.accepts = TOKEN
        self.cluster = a_cluster(BLUE, a_config(authOptions=options))
        owner = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": BLUE,
            "uid": f"uid-{BLUE}",
        }
        self.service: Body = {
            "metadata": {"name": HEAD, "namespace": "default", "ownerReferences": [owner]},
            "spec": {"selector": {"ray.io/cluster": BLUE}},
        }

    def answer(self, method: str, path: str) -> Body | None:
        token = {"status": {"token": TOKEN}}
        return {
            ("GET", "/apis/ray.io/v1/namespaces/default/rayservices/demo"): snapshots.a_service(
                active=a_side(BLUE)
            ),
            ("GET", "/apis/ray.io/v1/namespaces/default/rayclusters"): {"items": [self.cluster]},
            ("GET", f"/apis/ray.io/v1/namespaces/default/rayclusters/{BLUE}"): self.cluster,
            ("GET", f"{NAMESPACE}/services/{HEAD}"): self.service,
            ("GET", SECRET): {"data": {"auth_token": base64.b64encode(TOKEN.encode()).decode()}},
            ("POST", ISSUE): token,
        }.get((method, path))

    async def handle(self, request: web.Request) -> web.Response:
        self.asked.append((request.method, request.path))
        if request.path == self.forbidden:
            status = {"kind": "Status", "message": "forbidden: no right", "reason": "Forbidden"}
            return web.json_response(status, status=403)
        if "/proxy/" in request.path:
            self.shown.append(given := request.headers.get("x-ray-authorization", ""))
            if given != f"Bearer {self.accepts}":
                return web.Response(status=401, text=f"not {given}")
            return (
                web.json_response(SERVE)
                if "applications" in request.path
                else web.Response(text=f"1 {given}\n2\n")
            )
        body = self.answer(request.method, request.path)
        if body is None:
            return (
                web.json_response({"items": []})
                if request.path.endswith("s")
                else web.Response(status=404)
            )
        return web.json_response(body)

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[KubeClient]:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self.handle)
        async with served(app) as port:
            kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
            try:
                yield kube
            finally:
                await kube.close()

    async def logs(self) -> bytes:
        """Read the logs of an application."""
        target, choice, written = (
            NamedTarget(kinds.SERVICE, "demo"),
            LogChoice(app="app"),
            list[bytes](),
        )
        async with self.client() as kube:
            found = await finding.find(kube, "default", target, choice, LogExtent(), report=print)
            form = LineFormat(is_prefixed=False)
            reading = LogReader(
                kube, "default", form, is_following=False, report=print, headers=found.headers
            )
            assert await reading.copy(found.logs, written.append) == 0
        return b"".join(written)

    async def unseen(self) -> str:
        """Return the parts of Serve's state that a snapshot could not read."""
        async with self.client() as kube:
            found = await reader.read(kube, "default", "demo")
        return next((each for each in found.unseen if each.startswith("Serve of")), "")


@pytest.mark.parametrize(
    ("options", "source"),
    [
        pytest.param(BY_SECRET, ("GET", SECRET), id="of the Secret"),
        pytest.param(BY_KUBERNETES, ("POST", ISSUE), id="issued by Kubernetes"),
    ],
)
async def test_the_token_lets_logs_and_states_be_read_and_is_printed_nowhere(
    options: Json, source: tuple[str, str]
) -> None:
    cluster = Cluster(options)
    logs = await cluster.logs()
    assert logs.splitlines()[1] == b"2"
    assert TOKEN.encode() not in logs
    assert await cluster.unseen() == ""
    assert set(cluster.shown) == {f"Bearer {TOKEN}"}
    assert len(cluster.shown) == 3
    assert cluster.asked.count(source) == 2


async def test_a_dashboard_without_authentication_gets_no_token() -> None:
    cluster = Cluster({})
    assert await cluster.unseen() == f"Serve of {BLUE}: 401 not"
    assert cluster.shown == [""]
    assert {("GET", SECRET), ("POST", ISSUE)}.isdisjoint(cluster.asked)


@cases(
    ("options", "path", "right"),
    {
        "Secret": (
            BY_SECRET,
            SECRET,
            f"you need the right to get Secret {BLUE} in namespace default",
        ),
        "ServiceAccount": (
            BY_KUBERNETES,
            ISSUE,
            "you need the right to create serviceaccounts/token of raybus-dashboard in namespace default",
        ),
    },
)
async def test_a_missing_right_is_named_and_nothing_is_sent_without_a_token(
    options: Json, path: str, right: str
) -> None:
    cluster = Cluster(options)
    cluster.forbidden = path
    with pytest.raises(errors.Unauthenticated, match=right):
        await cluster.logs()
    assert right in await cluster.unseen()
    assert cluster.shown == []


async def test_no_token_goes_to_a_service_that_may_lead_elsewhere() -> None:
    cluster = Cluster(BY_SECRET)
    changes: tuple[Json, Json] = (
        {"type": "ExternalName", "externalName": "thief.example"},
        {"selector": {}},
    )
    for change in changes:
        service = msgspec.json.decode(msgspec.json.encode(cluster.service))
        cluster.service["spec"].update(change)
        with pytest.raises(errors.Unauthenticated, match=f"not asked through Service {HEAD}"):
            await cluster.logs()
        cluster.service = service
    cluster.service["metadata"]["ownerReferences"] = []
    assert "it is not owned by RayCluster" in await cluster.unseen()
    assert cluster.shown == []
    assert ("GET", SECRET) not in cluster.asked


async def test_a_refused_token_is_reported_with_the_remedy_and_without_the_token() -> None:
    cluster = Cluster(BY_KUBERNETES)
    cluster.accepts = "another"
    with pytest.raises(errors.Unauthenticated) as caught:
        await cluster.logs()
    assert "refuses the request" in str(caught.value)
    assert "grant ServiceAccount default/raybus-dashboard the verb ray:write" in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert TOKEN not in await cluster.unseen()
