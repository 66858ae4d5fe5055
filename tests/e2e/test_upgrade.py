"""`raybus demo` upgrades a model under load, in either way, and no client notices.

Then a user makes mistakes on the demo's service. Each is reported in the status within 15 s, while
the old version continues to serve.
"""

import asyncio

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from localcluster.demo.cluster_state import NAMESPACE, SERVICE, observe
from localcluster.demo.demo_cluster import Load
from localcluster.demo.scenario import DemoOptions, DemoStrategy
from support.tables import cases
from support.waiting import eventually_true

from . import raybus
from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

REQUESTS = 1000
"""Number of requests; the upgrade alone lasts about as long. `raybus demo` sends 3,000."""
WITHIN = 15.0


@pytest.mark.parametrize(
    "strategy",
    [DemoStrategy.BLUE_GREEN, pytest.param(DemoStrategy.INCREMENTAL, marks=pytest.mark.soak)],
    ids=str,
)
async def test_the_demo_upgrades_under_load_without_a_failed_request(
    rig: Rig, strategy: DemoStrategy
) -> None:
    if strategy is DemoStrategy.INCREMENTAL:
        rig.need_gateway()
    scenario = rig.scenario(
        DemoOptions(
            manifests=DEPLOY, strategy=strategy, load=Load(rate=20.0), least_requests=REQUESTS
        )
    )
    async with asyncio.timeout(500):
        await scenario.serve()
        receipt = await scenario.run_upgrade()
    assert receipt.traffic.failures == []
    assert receipt.problem is None
    assert receipt.traffic.requests >= REQUESTS
    assert {"version 1, status 200", "version 2, status 200"} == set(receipt.traffic.by_answer)
    assert receipt.new_cluster != receipt.old_cluster
    assert await raybus.is_well(rig)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def serving(rig: Rig) -> Rig:
    """A cluster with a service: the one that the demo left, or version 1."""
    service = (await observe(rig.kube)).service
    if service is None or not service.is_ready or service.is_upgrading:
        async with asyncio.timeout(300):
            await rig.scenario().serve()
    return rig


async def conditions_of(rig: Rig) -> str:
    """Return the text of all conditions of the RayService."""
    service = (await observe(rig.kube)).service
    return "" if service is None else "; ".join(each.message for each in service.status.conditions)


async def expect_reported(rig: Rig, *texts: str) -> None:
    async def is_reported() -> bool:
        message = await conditions_of(rig)
        return all(text in message for text in texts)

    await eventually_true(is_reported, within=WITHIN, what=f"a condition that names {texts}")


async def patch(rig: Rig, body: Json) -> None:
    text = msgspec.json.encode(body).decode()
    await rig.kubectl.run(
        "patch", "rayservice", SERVICE, "-n", NAMESPACE, "--type=merge", "-p", text
    )


@cases(
    ("config", "texts"),
    {
        "a Serve config that is not YAML": ("applications: [", ("serveConfigV2",)),
        "an import path that does not exist": (
            "applications: [{name: greeter, import_path: 'nowhere:app', route_prefix: /}]",
            ("greeter", "nowhere"),
        ),
    },
)
async def test_a_wrong_serve_config_is_reported(
    serving: Rig, config: str, texts: tuple[str, ...]
) -> None:
    await patch(serving, {"spec": {"serveConfigV2": config}})
    await expect_reported(serving, *texts)


@pytest.mark.ondemand  # part 3 of the tutorial applies such an image, too
async def test_an_image_that_cannot_be_pulled_is_reported_and_the_active_cluster_serves_on(
    serving: Rig,
) -> None:
    manifest = (await serving.kubectl.run("kustomize", str(DEPLOY / "demo/v2"))).replace(
        "docker.io/rayproject/ray:2.60.0", "raybus.invalid/ray:none"
    )
    before = (await observe(serving.kube)).active
    await serving.kubectl.run("apply", "-f", "-", stdin=manifest)
    await expect_reported(serving, "raybus.invalid/ray:none")
    state = await observe(serving.kube)
    assert state.active == before
    assert state.service is not None
    assert state.service.is_ready
