"""An upgrade as somebody sees it in a browser: real services on a real API server and NATS, simulated pods and heads, real Chromium.

Run in a network of its own (`bench.pod_network`) without a way out, where one process plays all Ray heads; takes pictures, and
prints what was to be seen as JSON:

    cd tests && python -m integration.dashboard.seen --pictures DIR --logs DIR
"""

import argparse
import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from playwright.async_api import Browser

from chaos import stack
from chaos.stack import BACKGROUND, Stack
from common import errors, labels
from common.api.opaque import Json
from common.kube.client import PatchRequest
from common.kube.resources import RAY_SERVICE
from integration.isolated import isolate, log_progress, print_result
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)
from support.servers import browser, dashboard
from support.servers.browser import Watched
from support.servers.dashboard import Dashboard
from support.waiting import eventually_true

SERVICES: Final = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)
TIMEOUT: Final = 240.0
HALFWAY: Final = 40
"""Percent of the traffic at which the upgrade is paused, so that there is time to read the page."""
WIDE: Final = (1280, 1060)
NARROW: Final = (390, 844)
CHAT: Final = "chat"
LIVE: Final = "Connected to NATS"


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What was to be read at a moment."""

    head: str
    clusters: str
    lines: list[str]
    """The timeline, newest first."""
    chart: str
    """The text alternative of the picture."""
    curves: int
    """Lines drawn in it."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that was to be seen."""

    list_before: str
    before: str
    middle: Sight
    after: Sight
    receipt: str
    is_wide_enough: dict[str, bool]
    """Whether all fits into the window, by picture."""
    without_bus: str
    without_api_server: str
    reloaded: Sight
    elsewhere: Sight
    """In a dashboard that was started after all was over."""
    code: int
    """With which the dashboard ended."""
    when_ended: str
    asked: list[str]
    """Addresses that pages asked for."""
    address: str
    complaints: list[str]


class Viewer:
    """Somebody at a browser."""

    def __init__(self, found: Stack, page: Watched, pictures: Path) -> None:
        self._found = found
        self._pictures = pictures
        self.page = page
        self.fits: dict[str, bool] = {}

    async def choose(self, name: str) -> None:
        """Choose a RayService in the list."""
        await self.page.page.locator(f'a[href="#/{BACKGROUND}/{name}"]').click()
        await self.page.until("#head h2", name)

    async def sight(self) -> Sight:
        """Read what is there."""
        page = self.page.page
        return Sight(
            head=await self.page.text("#head"),
            clusters=await self.page.text("#clusters"),
            lines=await page.locator("#timeline .text").all_inner_texts(),
            chart=await page.locator("#chart svg").get_attribute("aria-label") or "",
            curves=await page.locator("#chart path.new, #chart path.old").count(),
        )

    async def picture(
        self, name: str, *, scheme: Literal["light", "dark"] = "light", size: tuple[int, int] = WIDE
    ) -> None:
        """Take a picture, and note whether all fits into the window's width."""
        page = self.page.page
        await page.emulate_media(color_scheme=scheme)
        await page.set_viewport_size({"width": size[0], "height": size[1]})
        width = await page.evaluate("document.documentElement.scrollWidth")
        self.fits[name] = width <= size[0]
        await self.page.picture(self._pictures / f"dashboard-{name}.png")
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})

    async def reload(self) -> Sight:
        """Load the page anew."""
        lines = len((await self.sight()).lines)
        await self.page.page.reload()
        await self.page.page.locator("#timeline li").nth(lines - 1).wait_for(timeout=TIMEOUT * 1000)
        return await self.sight()


class Run:
    """One run."""

    def __init__(self, found: Stack, window: Browser, work: Path, pictures: Path) -> None:
        self._found = found
        self._window = window
        self._work = work
        self._pictures = pictures

    async def execute(self) -> Report:
        """Run it."""
        await self._prepare()
        async with self._dashboard("first") as running, self._viewer(running) as viewer:
            log_progress("before")
            await viewer.page.until("#feed", LIVE)
            await viewer.choose(CHAT)
            await viewer.page.until("#clusters", "pods of small: 1 of 1 ready")
            listed, before = await viewer.page.text("#list-pane"), await viewer.page.text("#detail")
            await viewer.picture("before")
            middle, without_bus = await self._half(viewer)
            after = await self._whole(viewer)
            receipt = await viewer.page.text("#receipt")
            reloaded = await viewer.reload()
            without_api_server = await self._without_api_server(viewer)
            elsewhere, others = await self._elsewhere()
            complaints = [*viewer.page.complaints, *others]
            log_progress("the dashboard ends")
            code = await running.end()
            await viewer.page.until("#banners", "The dashboard on this machine does not answer.")
            return Report(
                list_before=listed,
                before=before,
                middle=middle,
                after=after,
                receipt=receipt,
                is_wide_enough=viewer.fits,
                without_bus=without_bus,
                without_api_server=without_api_server,
                reloaded=reloaded,
                elsewhere=elsewhere,
                code=code,
                when_ended=await viewer.page.text("#banners"),
                asked=viewer.page.asked,
                address=running.address,
                complaints=complaints,
            )

    async def _prepare(self) -> None:
        log_progress("services come up")
        for service in SERVICES:
            self._found.fleet.scale(service, 1)
        await self._found.fleet.ready()
        steps = a_strategy(surge=25, step=10, interval=1)
        await self._create(CHAT, upgradeStrategy=steps, config=_a_config("rayproject/ray:2.52.0"))
        await self._create("embedder", config=a_cluster_config())
        missing = a_serve_config(import_path="missing:app")
        hurry = {labels.INITIALIZING_TIMEOUT: "5s"}
        await self._create("search", config=a_cluster_config(), serve=missing, annotations=hurry)
        for name in (CHAT, "embedder"):
            await self._until(name, lambda status: status.get("serviceStatus") == "Running")
        await self._until("search", _has_timed_out)

    async def _half(self, viewer: Viewer) -> tuple[Sight, str]:
        """Upgrade half of the traffic, and lose the bus for a while."""
        log_progress("an upgrade begins")
        await self._change({"spec": {"rayClusterConfig": _a_config("rayproject/ray:2.53.0")}})
        await self._until(CHAT, lambda status: _weight(status) >= HALFWAY)
        await self._change({"metadata": {"annotations": {labels.PAUSE: "true"}}})
        await viewer.page.until("#head .badge", "Paused")
        await viewer.page.until("#timeline", "paused (")
        await viewer.page.until("#clusters", "pending")
        middle = await viewer.sight()
        await viewer.picture("middle")
        await viewer.picture("middle-dark", scheme="dark")
        await viewer.picture("middle-narrow", size=NARROW)
        log_progress("the bus goes and comes")
        self._found.nats.kill()
        try:
            await viewer.page.until("#banners", "NATS is not reachable")
            without_bus = await viewer.page.text("#banners")
            await viewer.picture("without-bus")
        finally:
            self._found.nats.start()
        await viewer.page.until("#feed", LIVE)
        await viewer.page.page.locator("#banners .banner").wait_for(state="detached")
        return middle, without_bus

    async def _whole(self, viewer: Viewer) -> Sight:
        log_progress("the upgrade goes on")
        await self._change({"metadata": {"annotations": {labels.PAUSE: None}}})
        await viewer.page.until("#receipt", "Promoted", within=TIMEOUT)
        await viewer.page.until("#head .badge", "Ready")
        await viewer.page.page.locator("#clusters article").nth(1).wait_for(state="detached")
        after = await viewer.sight()
        await viewer.picture("after")
        await viewer.picture("after-dark", scheme="dark")
        await viewer.picture("after-narrow", size=NARROW)
        return after

    async def _without_api_server(self, viewer: Viewer) -> str:
        log_progress("the API server hangs for a while")
        running = self._found.control_plane.running
        pid = next(each.popen.pid for each in running if each.log.stem == "kube-apiserver")
        os.kill(pid, signal.SIGSTOP)
        try:
            await viewer.page.until("#banners", "The API server cannot be read.")
            banners = await viewer.page.text("#banners")
        finally:
            os.kill(pid, signal.SIGCONT)
        await viewer.page.page.locator("#banners .banner").wait_for(
            state="detached", timeout=TIMEOUT * 1000
        )
        return banners

    async def _elsewhere(self) -> tuple[Sight, list[str]]:
        """Return the same of a dashboard that was not there when it happened."""
        log_progress("another dashboard")
        async with self._dashboard("second") as running, self._viewer(running) as viewer:
            await viewer.choose(CHAT)
            await viewer.page.until("#receipt", "Promoted")
            return await viewer.sight(), viewer.page.complaints

    def _dashboard(self, name: str) -> contextlib.AbstractAsyncContextManager[Dashboard]:
        kubeconfig, nats = str(self._found.control_plane.kubeconfig), self._found.nats
        reach = ("--nats", nats.url, "--nats-credentials", str(self._work / "nats"))
        return dashboard.started(
            self._work / name, "--kubeconfig", kubeconfig, "-n", BACKGROUND, *reach
        )

    @asynccontextmanager
    async def _viewer(self, running: Dashboard) -> AsyncGenerator[Viewer]:
        page = Watched(await self._window.new_page(viewport={"width": WIDE[0], "height": WIDE[1]}))
        await page.page.goto(running.address)
        yield Viewer(self._found, page, self._pictures)
        await page.page.close()

    async def _create(
        self, name: str, *, annotations: dict[str, str] | None = None, **fields: Any
    ) -> None:
        quick = {labels.DRAIN_TIMEOUT: "1s", **(annotations or {})}
        body = a_ray_service(
            name=name, annotations=quick, rayClusterDeletionDelaySeconds=1, **fields
        )
        del body["metadata"]["namespace"]
        await self._found.kube.create(RAY_SERVICE, BACKGROUND, body)

    async def _change(self, body: Json) -> None:
        await self._found.kube.patch(RAY_SERVICE, BACKGROUND, CHAT, PatchRequest(body=body))

    async def _until(self, name: str, check: Callable[[Json], bool]) -> None:
        async def holds() -> bool:
            with contextlib.suppress(errors.Retryable):
                body = msgspec.json.decode(
                    await self._found.kube.get(RAY_SERVICE, BACKGROUND, name)
                )
                return check(body.get("status", {}))
            return False

        await eventually_true(holds, within=TIMEOUT, every=0.1, what=f"RayService {name}")


def _a_config(image: str) -> Json:
    return a_cluster_config(
        a_group(minReplicas=1, replicas=1), image=image, enableInTreeAutoscaling=True
    )


def _has_timed_out(status: Json) -> bool:
    return any(each["reason"] == "InitializingTimeout" for each in status.get("conditions", []))


def _weight(status: Json) -> int:
    return status.get("pendingServiceStatus", {}).get("trafficRoutedPercent") or 0


async def run(options: argparse.Namespace, work: Path) -> Report:
    """Start everything, and run it."""
    async with stack.started(work, options.logs, log_progress) as found, browser.opened() as window:
        return await Run(found, window, work, options.pictures).execute()


def main() -> None:
    """Enter a network of our own and print what was to be seen."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pictures", type=Path, required=True, metavar="DIR", help="where the pictures go"
    )
    parser.add_argument(
        "--logs", type=Path, required=True, metavar="DIR", help="where the logs of the processes go"
    )
    options = parser.parse_args()
    isolate("integration.dashboard.seen")
    with tempfile.TemporaryDirectory(prefix="raybus-seen-") as work:
        print_result(asyncio.run(run(options, Path(work))))


if __name__ == "__main__":
    main()
