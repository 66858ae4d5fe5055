"""What a user got wrong is told in the status within 15 s, on real Ray and a real kubelet; the old version goes on serving."""

import asyncio

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from raybus_cli.demo.watching import NAMESPACE, SERVICE, look
from support.waiting import eventually_true

from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

WITHIN = 15.0


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def serving(rig: Rig) -> Rig:
    """A cluster on which version 1 serves, through all that is asked of it here."""
    async with asyncio.timeout(300):
        await rig.story().serve()
    return rig


async def told(rig: Rig) -> str:
    """Return all that the RayService's conditions say."""
    service = (await look(rig.kube)).service
    return "" if service is None else "; ".join(each.message for each in service.status.conditions)


async def expect_told(rig: Rig, *words: str) -> None:
    async def is_told() -> bool:
        message = await told(rig)
        return all(word in message for word in words)

    await eventually_true(is_told, within=WITHIN, what=f"a condition that names {words}")


async def patch(rig: Rig, body: Json) -> None:
    text = msgspec.json.encode(body).decode()
    await rig.kubectl.run("patch", "rayservice", SERVICE, "-n", NAMESPACE, "--type=merge", "-p", text)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        pytest.param("applications: [", ("serveConfigV2",), id="a Serve config that is not YAML"),
        pytest.param(
            "applications: [{name: greeter, import_path: 'nowhere:app', route_prefix: /}]",
            ("greeter", "nowhere"),
            id="an import path that does not exist",
        ),
    ],
)
async def test_a_wrong_serve_config_is_told(serving: Rig, config: str, words: tuple[str, ...]) -> None:
    await patch(serving, {"spec": {"serveConfigV2": config}})
    await expect_told(serving, *words)


async def test_an_image_that_cannot_be_pulled_is_told_and_the_active_cluster_serves_on(serving: Rig) -> None:
    manifest = (await serving.kubectl.run("kustomize", str(DEPLOY / "demo/v2"))).replace(
        "docker.io/rayproject/ray:2.60.0", "raybus.invalid/ray:none"
    )
    before = (await look(serving.kube)).active
    await serving.kubectl.run("apply", "-f", "-", stdin=manifest)
    await expect_told(serving, "raybus.invalid/ray:none")
    world = await look(serving.kube)
    assert world.active == before
    assert world.service is not None
    assert world.service.is_ready
