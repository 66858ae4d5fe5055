"""The token of a cluster comes from a Secret of its own namespace in any spec; tried on a real client and server."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from common import errors
from common.api.core import Service, ServicePort, ServiceSpec
from common.api.meta import Condition, ObjectMeta, OwnerReference
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from common.ray.serve_api import ServeApi
from common.ray.view import Reading, ServeView
from common.runtime.cache import Cache
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.clock import FakeClock
from support.fakes.serve import FakeServe
from support.servers.loopback import served

OWN = "/api/v1/namespaces/ns/secrets/own"
PREY = "/api/v1/namespaces/tenant-b/secrets/prod-ray"
HEAD = Service(
    metadata=ObjectMeta(
        name="c-head-svc",
        namespace="ns",
        owner_references=[
            OwnerReference(kind="RayCluster", name="c", uid="uid-of-c", controller=True)
        ],
    ),
    spec=ServiceSpec(
        selector={"ray.io/cluster": "c"}, ports=[ServicePort(name="dashboard", port=8265)]
    ),
)


def of_tokens(name: str) -> RayCluster:
    cluster = a_ray_cluster(
        auth_options={"mode": "token", "secretName": name}, ray_version="2.52.0"
    )
    is_ready = Condition(
        type="HeadPodReady",
        status="True",
        reason="",
        message="",
        last_transition_time=FakeClock().now(),
    )
    return replace(cluster, status=replace(cluster.status, conditions=(is_ready,)))


async def polled(api: ServeApi, cluster: RayCluster) -> Reading:
    return (await api.poll(ServeView(cluster=cluster), max_age=1.0, now=FakeClock().now())).serve


@asynccontextmanager
async def secrets(
    service: Service = HEAD, **held: str
) -> AsyncGenerator[tuple[ServeApi, FakeServe, list[str]]]:
    """Provide a ServeApi with an API server that has Secrets by path, and the list of the paths
    that were read.
    """
    paths: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        if "/controllerrevisions" in request.path:
            return web.json_response({"items": []})
        paths.append(request.raw_path)
        token = {OWN: held.get("own"), PREY: held.get("prey")}.get(request.path)
        if token is None:
            return web.json_response({"message": "not found", "reason": "NotFound"}, status=404)
        return web.json_response({"data": {"auth_token": token}})

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    clock = FakeClock()
    serve, cache = FakeServe(clock), Cache()
    cache.put(service)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        yield ServeApi(serve, kube, cache, clock), serve, paths
        await kube.close()


async def test_the_token_of_the_own_secret_is_sent() -> None:
    async with secrets(own="czNjcmV0", prey="c3RvbGVu") as (api, serve, paths):
        assert (await polled(api, of_tokens("own"))).details is not None
    assert serve.tokens == {"s3cret"}
    assert paths == [OWN]


@pytest.mark.parametrize(
    "name",
    [
        "../../tenant-b/secrets/prod-ray",
        "x/../../../tenant-b/secrets/prod-ray",
        "%2e%2e/%2e%2e/tenant-b/secrets/prod-ray",
        "..%2f..%2ftenant-b%2fsecrets%2fprod-ray",
        "?x=/../../../tenant-b/secrets/prod-ray",
    ],
)
async def test_the_token_of_another_namespace_is_neither_read_nor_sent(name: str) -> None:
    async with secrets(own="czNjcmV0", prey="c3RvbGVu") as (api, serve, paths):
        reading = await polled(api, of_tokens(name))
    assert reading.problem.startswith("authOptions.secretName is not the name of a Secret: ")
    assert (serve.tokens, paths) == (set(), [])


@pytest.mark.parametrize(
    "stored", ["Zm9vCmJhcg==", "w6Q=", "/////w==", ""], ids=["two lines", "ä", "bytes", "nothing"]
)
async def test_a_token_that_no_header_can_carry_is_a_problem_and_not_a_crash(stored: str) -> None:
    async with secrets(own=stored) as (api, serve, _):
        reading = await polled(api, of_tokens("own"))
    assert "is not a text that a header can carry" in reading.problem
    assert serve.tokens == set()


@pytest.mark.parametrize(
    ("spec", "owners", "problem"),
    [
        ({"type": "ExternalName"}, None, "its type is ExternalName"),
        ({"selector": {}}, None, "it has no selector"),
        ({}, [], "it is not owned by RayCluster c"),
        (
            {},
            [OwnerReference(kind="RayCluster", name="c", uid="of-another")],
            "it is not owned by RayCluster c",
        ),
    ],
    ids=["a name elsewhere", "endpoints by hand", "nobody's", "another cluster's"],
)
async def test_a_service_that_may_lead_elsewhere_is_asked_nothing(
    spec: Json, owners: list[OwnerReference] | None, problem: str
) -> None:
    service = replace(HEAD, spec=replace(HEAD.spec, **spec))
    if owners is not None:
        service = replace(service, metadata=replace(HEAD.metadata, owner_references=owners))
    async with secrets(service, own="czNjcmV0") as (api, serve, paths):
        reading = await polled(api, of_tokens("own"))
        with pytest.raises(errors.InvalidSpec, match=problem):
            await api.submit(of_tokens("own"), "applications: []")
    assert problem in reading.problem
    assert (serve.tokens, serve.head("c-head-svc").puts, paths) == (set(), [], [])
