"""The dashboard's two adapters and the fake keep the same promises, over real HTTP where there is any."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest
from kubernetes_asyncio.client import Configuration

from common import errors
from common.kube.client import KubeClient
from common.ray.dashboard import Dashboard, DirectDashboard, Head, ProxiedDashboard, ProxyPod
from common.ray.ongoing import Ongoing
from support.fakes.clock import FakeClock
from support.fakes.serve import API_SERVER_PROXY, FakeServe, http_app
from support.servers.loopback import ToLoopback, served

HEAD = Head(namespace="ns", service="demo-head-svc", port=8265)
POD = ProxyPod(namespace="ns", name="demo-head", ip="127.0.0.1", port=8000)
CONFIG = {"applications": [{"name": "app", "import_path": "app:main"}]}
SECONDS = 0.3


@pytest.fixture
def serve() -> FakeServe:
    return FakeServe(FakeClock())


@pytest.fixture(params=["fake", "direct", "proxied"])
async def dashboard(request: pytest.FixtureRequest, serve: FakeServe) -> AsyncGenerator[Dashboard]:
    """Offer the fake itself, and both adapters in front of it."""
    if request.param == "fake":
        yield serve
    elif request.param == "direct":
        async with served(http_app(serve)) as port, httpx.AsyncClient(transport=ToLoopback(port)) as client:
            yield DirectDashboard(domain="cluster.local", client=client, seconds=SECONDS)
    else:
        async with served(http_app(serve, prefix=API_SERVER_PROXY)) as port:
            kube = KubeClient(Configuration(host=f"http://127.0.0.1:{port}"), user_agent="test")
            yield ProxiedDashboard(kube, seconds=SECONDS)
            await kube.close()


async def test_a_config_that_was_deployed_is_read_back(dashboard: Dashboard, serve: FakeServe) -> None:
    assert (await dashboard.read(HEAD)).applications == {}
    await dashboard.deploy(HEAD, CONFIG)
    assert serve.head(HEAD.service).puts == [CONFIG]
    assert (await dashboard.read(HEAD)).applications["app"].status == "DEPLOYING"


@pytest.mark.parametrize("call", ["read", "deploy"])
async def test_a_clusters_token_comes_with_each_call(dashboard: Dashboard, serve: FakeServe, call: str) -> None:
    head = msgspec.structs.replace(HEAD, token="s3cret")
    await (dashboard.read(head) if call == "read" else dashboard.deploy(head, CONFIG))
    assert serve.tokens == {"s3cret"}


async def test_a_schema_error_is_a_refusal_with_the_message_of_ray(dashboard: Dashboard) -> None:
    with pytest.raises(errors.Rejected, match="applications: field required"):
        await dashboard.deploy(HEAD, {"apps": []})


@pytest.mark.parametrize("behaviour", ["500", "silent"])
async def test_a_sick_head_is_unavailable_in_time(dashboard: Dashboard, serve: FakeServe, behaviour: str) -> None:
    serve.head(HEAD.service).behaviour = behaviour
    async with asyncio.timeout(5):
        with pytest.raises(errors.Unavailable):
            await dashboard.read(HEAD)
        with pytest.raises(errors.Unavailable):
            await dashboard.deploy(HEAD, CONFIG)


async def test_a_proxy_is_healthy_only_when_it_reports_so(dashboard: Dashboard, serve: FakeServe) -> None:
    head = serve.head(HEAD.service)
    assert await dashboard.is_proxy_healthy(POD)
    head.proxy_is_healthy = False
    assert not await dashboard.is_proxy_healthy(POD)


async def test_nobody_at_the_other_end_is_unavailable() -> None:
    async with httpx.AsyncClient(transport=ToLoopback(1)) as client:
        direct = DirectDashboard(domain="cluster.local", client=client, seconds=SECONDS)
        with pytest.raises(errors.Unavailable, match="does not answer"):
            await direct.read(HEAD)
        assert not await direct.is_proxy_healthy(POD)


@pytest.mark.parametrize("count", [0, 7, None])
async def test_a_pod_reports_its_ongoing_requests(dashboard: Dashboard, serve: FakeServe, count: int | None) -> None:
    serve.head(HEAD.service).ongoing = count
    assert await dashboard.ongoing_requests(POD) == (None if count is None else Ongoing(proxies=count))
