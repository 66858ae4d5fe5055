"""A user's error is reported in the status within 15 s, while the old version continues to serve.

Real Ray and a real kubelet are used.
"""

import asyncio

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from localcluster.demo.cluster_state import NAMESPACE, SERVICE, observe
from support.tables import cases
from support.waiting import eventually_true

from .conftest import DEPLOY, Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

WITHIN = 15.0


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def serving(rig: Rig) -> Rig:
    """A cluster on which version 1 serves during all tests."""
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
