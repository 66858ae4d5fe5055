"""The time range of the history, by keyboard, and the log of a pod, in a real browser."""

from pathlib import Path

import pytest

from common.kube.client import KubeClient
from integration.dashboard.shared import a_placed_head
from integration.dashboard.test_accessibility import violations
from integration.dashboard.test_controls import opened_at, upgrading
from localcluster.control_plane import ControlPlane
from support.builders.snapshots import BLUE
from support.waiting import eventually_true

__all__ = ["upgrading"]

pytestmark = [pytest.mark.integration, pytest.mark.long]

TWO_HOURS_LATER = "(() => { const now = Date.now; Date.now = () => now() + 7_200_000; })()"


async def test_the_history_of_the_last_minutes_is_chosen_by_keyboard(
    control_plane: ControlPlane, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    async with opened_at(control_plane.kubeconfig, tmp_path, namespace, upgrading) as page:
        await page.page.wait_for_selector("#timeline li .text")
        await page.page.evaluate(TWO_HOURS_LATER)
        await page.page.focus("#range")
        await page.page.keyboard.press("End")
        await page.until("#timeline", "No event in this range.")
        assert await page.page.locator("#range").input_value() == "900"
        await page.page.click("#table-holder summary")
        assert await page.page.locator("#table tbody tr").count() == 1, (
            "the value that holds at the beginning"
        )
        await page.page.focus("#range")
        await page.page.keyboard.press("Home")
        await page.page.wait_for_selector("#timeline li .text")
        assert "No event" not in await page.text("#timeline")


async def test_the_log_of_a_pod_or_the_reason_why_there_is_none(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    async with opened_at(
        control_plane.kubeconfig, tmp_path, namespace, upgrading, "--logs"
    ) as page:
        head = await a_placed_head(
            kube, namespace, BLUE
        )  # Kubernetes deletes the pod of an unknown node after 40 s
        await page.page.click(f"button[aria-label='Logs of {BLUE}']")
        assert await page.page.locator("#logs-pod").input_value() == head

        async def is_read() -> bool:
            return await page.text("#logs-note") not in {"", "Loading…"}

        await eventually_true(is_read, within=60, what="a log or a reason")
        # No kubelet runs here: the answer of the API server about the pod, or its node, is shown.
        note = await page.text("#logs-note")
        assert head in note or "nowhere" in note, note
        assert await violations(page) == []
        await page.page.keyboard.press("Escape")
        assert not await page.page.locator("#logs").is_visible()


async def test_without_the_option_no_logs_are_offered(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, upgrading: str, tmp_path: Path
) -> None:
    async with opened_at(control_plane.kubeconfig, tmp_path, namespace, upgrading) as page:
        await a_placed_head(kube, namespace, BLUE)
        await page.until("#clusters", "pods of head")
        assert await page.page.locator("#clusters button").count() == 0
