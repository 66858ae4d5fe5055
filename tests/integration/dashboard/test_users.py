"""Two users of different rights at one dashboard in a real browser: what each sees, does and is refused; `--update-pictures` keeps it.

User A may change RayServices in namespace a only, user B may only read there; neither may do anything elsewhere.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser

from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from integration.dashboard.shared import (
    CHANGE,
    READ,
    another_namespace,
    kubeconfig_of_the_pod,
    user,
)
from integration.dashboard.test_accessibility import violations
from integration.dashboard.test_controls import PAUSE, upgrading
from integration.dashboard.test_page import named, put
from localcluster.control_plane import ControlPlane
from support.manifests import ROOT
from support.servers import browser, dashboard
from support.servers.browser import Watched

__all__ = ["upgrading"]

pytestmark = [pytest.mark.integration, pytest.mark.long]


@asynccontextmanager
async def opened(window: Browser, address: str, token: str | None) -> AsyncGenerator[Watched]:
    """Open the page as a user: the token is typed into the form."""
    context = await window.new_context(viewport={"width": 1280, "height": 860})
    page = Watched(await context.new_page())
    await page.page.goto(address)
    if token is not None:
        await page.page.fill("#token", token)
        await page.page.keyboard.press("Enter")
    yield page
    await context.close()


async def _is_paused(kube: KubeClient, namespace: str) -> bool:
    found = msgspec.json.decode(await kube.get(RAY_SERVICE, namespace, "demo"))
    return "raybus.io/pause" in found["metadata"].get("annotations", {})


async def test_two_users_see_and_do_what_each_of_them_may(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    upgrading: str,
    tmp_path: Path,
) -> None:
    pictures = (
        ROOT / "docs" / "images"
        if request.config.getoption("--update-pictures")
        else tmp_path / "pictures"
    )
    other = await another_namespace(kube, f"{namespace}-other")
    await put(kube, other, named("hidden"))
    pod = await kubeconfig_of_the_pod(control_plane, kube, namespace)
    ann, bob = (
        await user(kube, namespace, "ann", READ, CHANGE),
        await user(kube, namespace, "bob", READ),
    )
    arguments = ("--kubeconfig", str(pod), "--audience", "raybus-dashboard", "--allow-actions")
    async with dashboard.served(tmp_path, *arguments) as running, browser.opened() as window:
        place = f"{running.address}?namespace={namespace}{upgrading}"
        async with opened(window, place, bob) as page:
            await page.until("#head h2", "demo")
            await page.until("#user", ":bob")
            await page.page.click(PAUSE)
            await page.page.click("#confirm-button")
            await page.until(
                "#controls .answer.bad", f"cannot patch rayservices demo in namespace {namespace}"
            )
            await page.picture(pictures / "dashboard-user-reads.png")
            assert not await _is_paused(kube, namespace)
            await page.page.fill("#namespace", other)
            await page.page.click("#place button")
            await page.until("#gate", f"cannot list rayservices in namespace {other}")
            assert "demo" not in await page.text("body")
            await page.picture(pictures / "dashboard-user-refused.png")
            assert await violations(page) == []
            await page.page.click("#sign-out")
            await page.until("#gate", "Bearer token")
            assert await page.page.evaluate("sessionStorage.length") == 0
        async with opened(window, place, ann) as page:
            await page.until("#head h2", "demo")
            assert "hidden" not in await page.text("body")
            await page.page.click(PAUSE)
            await page.page.click("#confirm-button")
            await page.until("#controls .answer", "demo paused")
            assert await _is_paused(kube, namespace)
            await page.picture(pictures / "dashboard-user-acts.png")
            assert ann not in page.page.url
            assert [each for each in page.asked if ann in each] == []
            await page.page.reload()
            await page.until("#head h2", "demo")
            assert await page.page.evaluate("localStorage.length") == 0


async def test_the_sign_in_form(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    pod = await kubeconfig_of_the_pod(control_plane, kube, namespace)
    async with (
        dashboard.served(tmp_path, "--kubeconfig", str(pod)) as running,
        browser.opened() as window,
        opened(window, running.address, None) as page,
    ):
        await page.until("#gate", "Bearer token")
        assert await page.page.evaluate("document.activeElement.id") == "token"
        for scheme in ("light", "dark"):
            await page.page.emulate_media(color_scheme=scheme)
            assert await violations(page) == []
        await page.page.set_viewport_size({"width": 390, "height": 800})
        assert await violations(page) == []
        await page.page.fill("#token", "not.a.token")
        await page.page.keyboard.press("Enter")
        await page.until("#gate-problem", "the token is not valid, or has expired")
        assert await page.page.evaluate("sessionStorage.length") == 0
        unexpected = [each for each in page.complaints if "401" not in each]
        assert unexpected == []


async def test_a_link_with_a_token_does_not_sign_its_reader_in_as_another_user(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("demo"))
    pod = await kubeconfig_of_the_pod(control_plane, kube, namespace)
    ann, mallory = (
        await user(kube, namespace, "ann", READ),
        await user(kube, namespace, "mallory", READ),
    )
    arguments = ("--kubeconfig", str(pod), "--audience", "raybus-dashboard")
    async with dashboard.served(tmp_path, *arguments) as running, browser.opened() as window:
        place = f"{running.address}?namespace={namespace}"
        async with opened(window, place, ann) as page:
            await page.until("#user", ":ann")
            await page.page.goto(f"{place}&token={mallory}")
            await page.until("#user", ":ann")
            assert page.page.url.startswith(place)
            assert "token" not in page.page.url
        async with opened(window, f"{place}&token={mallory}", None) as page:
            await page.until("#gate", "Bearer token")
