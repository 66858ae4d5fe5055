"""Both adapters of the dashboard and the fake keep the same promises, over HTTP if they use it."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest

from common import errors
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from common.ray.dashboard import Dashboard, DirectDashboard, ProxiedDashboard
from common.ray.ongoing import Ongoing
from support import dashboard_calls as calls
from support.fakes.clock import FakeClock
from support.fakes.serve import API_SERVER_PROXY, FakeServe, http_app
from support.servers.loopback import ToLoopback, served

HEAD = calls.a_head("ns")
POD = calls.a_pod("ns")
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
        async with (
            served(http_app(serve)) as port,
            httpx.AsyncClient(transport=ToLoopback(port)) as client,
        ):
            yield DirectDashboard(domain="cluster.local", client=client, seconds=SECONDS)
    else:
        async with served(http_app(serve, prefix=API_SERVER_PROXY)) as port:
            kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
            yield ProxiedDashboard(kube, seconds=SECONDS)
            await kube.close()


async def test_a_config_that_was_deployed_is_read_back(
    dashboard: Dashboard, serve: FakeServe
) -> None:
    assert (await calls.read(dashboard, HEAD)).applications == {}
    await calls.deploy(dashboard, HEAD, CONFIG)
    assert serve.head(HEAD.name).puts == [CONFIG]
    assert (await calls.read(dashboard, HEAD)).applications["app"].status == "DEPLOYING"


@pytest.mark.parametrize("call", ["read", "deploy"])
async def test_a_clusters_token_comes_with_each_call(
    dashboard: Dashboard, serve: FakeServe, call: str
) -> None:
    head = msgspec.structs.replace(HEAD, token="s3cret")
    await (calls.read(dashboard, head) if call == "read" else calls.deploy(dashboard, head, CONFIG))
    assert serve.tokens == {"s3cret"}


@pytest.mark.parametrize("call", ["read", "deploy"])
@pytest.mark.parametrize(("token", "refusal"), [(None, "401 .*Missing"), ("old", "403 .*Invalid")])
async def test_a_dashboard_that_refuses_the_token_is_no_silent_one_and_no_refusal_of_the_config(
    dashboard: Dashboard, serve: FakeServe, call: str, token: str | None, refusal: str
) -> None:
    serve.head(HEAD.name).expects = "new"
    head = msgspec.structs.replace(HEAD, token=token)
    with pytest.raises(errors.Unauthenticated, match=refusal):
        await (
            calls.read(dashboard, head) if call == "read" else calls.deploy(dashboard, head, CONFIG)
        )
    assert serve.head(HEAD.name).puts == []


async def test_a_schema_error_is_a_refusal_with_the_message_of_ray(dashboard: Dashboard) -> None:
    with pytest.raises(errors.Rejected, match="applications: field required"):
        await calls.deploy(dashboard, HEAD, {"apps": []})


@pytest.mark.parametrize("behaviour", ["500", "silent"])
async def test_a_sick_head_is_unavailable_in_time(
    dashboard: Dashboard, serve: FakeServe, behaviour: str
) -> None:
    serve.head(HEAD.name).behaviour = behaviour
    async with asyncio.timeout(5):
        with pytest.raises(errors.Unavailable):
            await calls.read(dashboard, HEAD)
        with pytest.raises(errors.Unavailable):
            await calls.deploy(dashboard, HEAD, CONFIG)


async def test_a_proxy_is_healthy_only_when_it_reports_so(
    dashboard: Dashboard, serve: FakeServe
) -> None:
    head = serve.head(HEAD.name)
    assert await calls.is_proxy_healthy(dashboard, POD)
    head.proxy_is_healthy = False
    assert not await calls.is_proxy_healthy(dashboard, POD)


async def test_nobody_at_the_other_end_is_unavailable() -> None:
    async with httpx.AsyncClient(transport=ToLoopback(1)) as client:
        direct = DirectDashboard(domain="cluster.local", client=client, seconds=SECONDS)
        with pytest.raises(errors.Unavailable, match="does not answer"):
            await calls.read(direct, HEAD)
        assert not await calls.is_proxy_healthy(direct, POD)


@pytest.mark.parametrize("count", [0, 7, None])
async def test_a_pod_reports_its_ongoing_requests(
    dashboard: Dashboard, serve: FakeServe, count: int | None
) -> None:
    serve.head(HEAD.name).ongoing = count
    assert await calls.ongoing_requests(dashboard, POD) == (
        None if count is None else Ongoing(proxies=count)
    )


async def test_jobs_are_submitted_read_and_stopped(dashboard: Dashboard, serve: FakeServe) -> None:
    with pytest.raises(errors.RaybusError) as unknown:
        await calls.read_job(dashboard, HEAD, "a/b")
    assert unknown.value.answer == errors.HttpAnswer(404, "Job a/b does not exist")
    await calls.submit_job(dashboard, HEAD, {"entrypoint": "true", "submission_id": "a/b"})
    assert (await calls.read_job(dashboard, HEAD, "a/b"))["status"] == "PENDING"
    with pytest.raises(errors.Unavailable) as used:
        await calls.submit_job(dashboard, HEAD, {"entrypoint": "true", "submission_id": "a/b"})
    assert used.value.answer is not None
    assert "Please use a different submission_id" in used.value.answer.body
    assert await calls.stop_job(dashboard, HEAD, "a/b") == {"stopped": True}
    assert serve.head(HEAD.name).jobs.jobs["a/b"].status == "STOPPED"


async def test_a_refused_token_submits_no_job(dashboard: Dashboard, serve: FakeServe) -> None:
    serve.head(HEAD.name).expects = "new"
    with pytest.raises(errors.Unauthenticated, match=r"401 .*Missing"):
        await calls.submit_job(dashboard, HEAD, {"entrypoint": "true", "submission_id": "a"})
    assert serve.head(HEAD.name).jobs.posts == []
