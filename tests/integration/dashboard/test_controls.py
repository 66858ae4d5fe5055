"""The page's controls in a real browser: two users of different rights, and a page without controls."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Resource
from integration.dashboard.test_page import named, put
from localcluster.control_plane import ControlPlane
from support.builders.snapshots import BLUE, GREEN, READY, UPGRADING, a_side
from support.servers import browser, dashboard
from support.servers.browser import Watched

pytestmark = [pytest.mark.integration, pytest.mark.long]

READ: Body = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
CHANGE: Body = {"apiGroups": ["ray.io"], "resources": ["rayservices"], "verbs": ["patch"]}
PAUSE = "#controls button:text-is('Pause')"


@pytest.fixture
async def upgrading(kube: KubeClient, namespace: str) -> str:
    """Make a RayService in an upgrade; return its place in the page's address."""
    active, pending = a_side(BLUE, capacity=70, weight=70), a_side(GREEN, capacity=30, weight=30)
    await put(kube, namespace, named("demo", READY, UPGRADING, active=active, pending=pending))
    return f"#/{namespace}/demo"


async def _user(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, name: str, *rules: Body
) -> Path:
    """Make a user with rights in a namespace; return its kubeconfig."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    made: list[tuple[Resource, Body]] = [
        (SERVICE_ACCOUNT, {}),
        (ROLE, {"rules": list(rules)}),
        (ROLE_BINDING, {"roleRef": role, "subjects": [subject]}),
    ]
    for resource, body in made:
        await kube.create(resource, namespace, {"metadata": {"name": name}, **body})
    return await control_plane.kubeconfig_for_service_account(namespace, name)


@asynccontextmanager
async def opened_at(
    config: Path, folder: Path, namespace: str, place: str, *arguments: str
) -> AsyncGenerator[Watched]:
    """Open the page of one user at a RayService."""
    common = ("--kubeconfig", str(config), "-n", namespace, "--nats", "nats://127.0.0.1:9")
    async with (
        dashboard.started(folder, *common, *arguments) as running,
        browser.opened() as window,
    ):
        context = await window.new_context(
            viewport={"width": 1280, "height": 800},
            permissions=["clipboard-read", "clipboard-write"],
        )
        page = Watched(await context.new_page())
        await page.page.goto(running.address + place)
        await page.until("#head h2", "demo")
        yield page


async def _annotations(kube: KubeClient, namespace: str) -> dict[str, str]:
    found = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, "demo"))
    return found["metadata"].get("annotations", {})


async def test_a_user_with_the_right_pauses_an_upgrade_after_a_confirmation(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    config = await _user(control_plane, kube, namespace, "editor", READ, CHANGE)
    async with opened_at(config, tmp_path, namespace, upgrading, "--controls") as page:
        assert "token" not in page.page.url
        await page.page.click(PAUSE)
        await page.until("#confirm", "The upgrade is paused")
        assert await page.text("#confirm-command") == f"raybus pause demo -n {namespace}"
        assert await page.page.evaluate("document.activeElement.textContent") == "Cancel"
        await page.page.keyboard.press("Escape")
        assert "raybus.io/pause" not in await _annotations(kube, namespace)
        await page.page.click(PAUSE)
        await page.page.click("#confirm-button")
        await page.until("#controls .answer", "demo paused")
        assert (await _annotations(kube, namespace))["raybus.io/pause"] == "true"
        await page.page.reload()
        await page.page.wait_for_selector("#controls button:text-is('Resume')")
        assert await page.page.locator(PAUSE).count() == 0
        assert page.complaints == []


async def test_a_user_without_the_right_gets_the_reason_and_changes_nothing(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    config = await _user(control_plane, kube, namespace, "viewer", READ)
    async with opened_at(config, tmp_path, namespace, upgrading, "--controls") as page:
        await page.page.click(PAUSE)
        await page.page.click("#confirm-button")
        await page.until("#controls .answer.bad", "cannot patch resource")
        assert "raybus.io/pause" not in await _annotations(kube, namespace)


async def test_without_controls_the_page_offers_the_command_alone(
    control_plane: ControlPlane, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    async with opened_at(control_plane.kubeconfig, tmp_path, namespace, upgrading) as page:
        await page.page.click("#controls button:has-text('raybus pause')")
        await page.until("#controls", "Copied")
        copied = await page.page.evaluate("navigator.clipboard.readText()")
        assert copied == f"raybus pause demo -n {namespace}"
        assert await page.page.locator(PAUSE).count() == 0
        assert page.complaints == []
