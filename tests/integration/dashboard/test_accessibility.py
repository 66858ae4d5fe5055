"""axe-core finds no accessibility violation in any state of the page: light, dark, narrow, with a dialog, without a RayService."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import ViewportSize

from common.kube.client import KubeClient
from integration.dashboard.test_controls import PAUSE, opened_at, upgrading
from integration.dashboard.test_page import named, put
from localcluster.control_plane import ControlPlane
from support.servers.browser import Watched

__all__ = ["upgrading"]

pytestmark = [pytest.mark.integration, pytest.mark.long]

WIDE = ViewportSize(width=1280, height=800)
NARROW = ViewportSize(width=390, height=800)


async def violations(page: Watched) -> list[str]:
    """Return what axe-core finds."""
    axe: Any = Axe()
    found = await axe.run(page.page)
    return [
        f"{each['id']}: {each['help']}: {node['html']}: {node['failureSummary']}"
        for each in found.response["violations"]
        for node in each["nodes"]
    ]


async def test_no_state_of_the_page_has_an_accessibility_violation(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    await put(kube, namespace, named("other"))
    found: dict[str, list[str]] = {}
    async with opened_at(
        control_plane.kubeconfig, tmp_path, namespace, upgrading, "--controls"
    ) as page:
        await page.page.wait_for_selector(PAUSE)
        for size in (WIDE, NARROW):
            for scheme in ("light", "dark"):
                await page.page.set_viewport_size(size)
                await page.page.emulate_media(color_scheme=scheme)
                found[f"{scheme}, {size['width']} wide"] = await violations(page)
        await page.page.click(PAUSE)
        found["dialog"] = await violations(page)
        await page.page.click("#confirm-button")
        await page.until("#controls .answer", "demo paused")
        found["answer"] = await violations(page)
        await page.page.evaluate("location.hash = ''")
        found["list"] = await violations(page)
    assert found == {state: [] for state in found}
