"""The page in a real browser where things are odd: nothing there, five hundred of them, names and messages meant to do harm."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from common.api import ray_service
from common.api.opaque import Body
from common.api.ray_service import RayService
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from localcluster.control_plane import ControlPlane
from support.builders.snapshots import (
    BLUE,
    READY,
    a_cluster,
    a_condition,
    a_config,
    a_service,
    a_side,
)
from support.servers import browser, dashboard
from support.servers.browser import Watched

pytestmark = [pytest.mark.integration, pytest.mark.long]

MANY: Final = 500
AT_ONCE: Final = 20
EVIL: Final = (
    '<img src=x onerror="alert(1)"><script>alert(2)</script></textarea>javascript:alert(3)'
)
ANSWER_MILLISECONDS: Final = 1000
"""How long the filter may take among five hundred on a machine that is busy; alone it takes some ten."""
FILTERED: Final = """() => {
    const began = performance.now(), box = document.getElementById("filter");
    box.value = "s123";
    box.dispatchEvent(new Event("input"));
    document.body.getBoundingClientRect();
    return performance.now() - began;
}"""

WITHOUT_DETAILS: Final = """(() => {
    const send = window.fetch, held = [];
    let isReleased = false, rest = "";
    const filter = () => new TransformStream({
        transform(chunk, passed) {
            const blocks = (rest + chunk).split("\\n\\n");
            rest = blocks.pop();
            for (const each of blocks) {
                const pass = () => passed.enqueue(`${each}\\n\\n`);
                if (each.startsWith("event: detail") && !isReleased) held.push(pass); else pass();
            }
        },
    });
    window.fetch = async (path, options) => {
        const answer = await send(path, options);
        if (!String(path).startsWith("events")) return answer;
        const through = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(filter()).pipeThrough(new TextEncoderStream());
        return new Response(through, answer);
    };
    window.release = () => { isReleased = true; held.forEach((each) => each()); };
})()"""
"""Holds the details of the selected RayService back until `release()`."""

Opened = Callable[[str], AbstractAsyncContextManager[Watched]]


@pytest.fixture
def page_of(control_plane: ControlPlane, nobodys_bus: tuple[str, ...], tmp_path: Path) -> Opened:
    """Return what opens a dashboard's page of a namespace for the length of a block."""

    @asynccontextmanager
    async def opened(namespace: str) -> AsyncGenerator[Watched]:
        arguments = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace, *nobodys_bus)
        async with dashboard.started(tmp_path, *arguments) as running, browser.opened() as window:
            page = Watched(await window.new_page(viewport={"width": 1280, "height": 800}))
            await page.page.goto(running.address)
            yield page
            assert page.complaints == []
            assert [each for each in page.asked if not each.startswith(running.address)] == []

    return opened


async def put(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Create a RayService with the status that it has, and return it."""
    kept = {key: value for key, value in body["metadata"].items() if key in {"name", "annotations"}}
    made: Body = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": kept,
        "spec": body["spec"],
    }
    await kube.create(RAY_SERVICE, namespace, made)
    patch = PatchRequest(body={"status": body["status"]}, subresource="status")
    return ray_service.decode(await kube.patch(RAY_SERVICE, namespace, kept["name"], patch))


def named(name: str, *conditions: Any, **fields: Any) -> Body:
    """Return a RayService of a name that serves, except with other conditions."""
    body = a_service(
        *(conditions or (READY,)), active=fields.pop("active", None) or a_side(BLUE), **fields
    )
    body["metadata"]["name"] = name
    return body


async def background(kube: KubeClient, namespace: str, bodies: Sequence[Body]) -> None:
    """Create many, some at once."""
    left = iter(bodies)

    async def work() -> None:
        for each in left:
            await put(kube, namespace, each)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def test_nothing_there(kube: KubeClient, namespace: str, page_of: Opened) -> None:
    async with page_of(namespace) as page:
        await page.until("#empty", f"No RayService in namespace {namespace}")
        assert "raybus dashboard -A" in await page.text("#empty")
        await put(kube, namespace, named("first"))
        await page.until("#tone-good", "first")
        await page.until("#head h2", "first")
        assert not await page.page.locator("#empty").is_visible()
        await kube.delete(RAY_SERVICE, namespace, "first")
        await page.until("#hint", f"RayService {namespace}/first does not exist (any more).")


async def test_what_the_list_has_is_shown_while_the_rest_is_read(
    kube: KubeClient, namespace: str, page_of: Opened
) -> None:
    await put(kube, namespace, named("slow"))
    async with page_of(namespace) as page:
        await page.page.add_init_script(WITHOUT_DETAILS)
        await page.page.reload()
        await page.until("#head h2", "slow")
        await page.until("#loading", "Loading its clusters and upgrades…")
        assert not await page.page.locator("#details").is_visible()
        await page.page.evaluate("release()")
        await page.until("#details", "Clusters")
        assert not await page.page.locator("#loading").is_visible()


async def test_text_from_the_cluster_stays_text(
    kube: KubeClient, namespace: str, page_of: Opened
) -> None:
    side = a_side(BLUE)
    side["applicationStatuses"] = {
        EVIL: {"status": "UNHEALTHY", "message": EVIL, "serveDeploymentStatuses": {}}
    }
    stalled = a_condition("UpgradeStalled", reason="Evil", message=f"stalled: {EVIL}")
    bad = named("bad", READY, stalled, active=side, annotations={"raybus.io/upgrade-receipt": EVIL})
    cluster = a_cluster(BLUE, a_config())
    marks = {"ray.io/originated-from-cr-name": "bad", "ray.io/originated-from-crd": "RayService"}
    cluster["metadata"] = {"name": BLUE, "labels": marks}
    await kube.create(RAY_CLUSTER, namespace, cluster)
    await put(kube, namespace, bad)
    async with page_of(namespace) as page:
        await page.until("#clusters", EVIL)
        await page.until("#causes-list", EVIL)
        made = 'document.querySelectorAll(\'img:not([src="icon.svg"]), script:not([src="page.js"]), textarea, iframe\').length'
        assert await page.page.evaluate(made) == 0
        refused = "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done' } catch (e) { return e.name } })()"
        assert await page.page.evaluate(refused) == "TypeError"
        page.complaints.clear()


async def test_five_hundred_stay_usable(kube: KubeClient, namespace: str, page_of: Opened) -> None:
    stalled = a_condition("UpgradeStalled", reason="Nothing", message="no node")
    await background(
        kube,
        namespace,
        [
            named(f"s{number:03}", *([READY, stalled] if number % 100 == 7 else []))
            for number in range(MANY)
        ],
    )
    async with page_of(namespace) as page:
        await page.until("#count", "500 RayServices")
        assert await page.page.locator("#tone-bad li").count() == 5
        assert await page.page.locator("#tone-good li").count() == 495
        assert await page.page.evaluate(FILTERED) < ANSWER_MILLISECONDS
        await page.until("#count", "1 of 500 RayServices")
        await page.page.locator("#tone-good a").first.click()
        await page.until("#head h2", "s123")
        await page.page.locator("#filter").fill("nobody is called so")
        await page.until("#none-found", "No RayService matches")
        await page.page.locator("#filter").fill("")
        await kube.patch(
            RAY_SERVICE,
            namespace,
            "s200",
            PatchRequest(body={"status": {"conditions": [stalled]}}, subresource="status"),
        )
        await page.until("#tone-bad", "s200")
        assert "s123" in await page.text("#head h2")


async def test_it_can_be_worked_with_the_keyboard(
    kube: KubeClient, namespace: str, page_of: Opened
) -> None:
    for name in ("one", "two"):
        await put(kube, namespace, named(name))
    async with page_of(namespace) as page:
        await page.until("#head h2", "one")
        await page.page.locator("#filter").focus()
        for _ in range(2):
            await page.page.keyboard.press("Tab")
        await page.page.keyboard.press("Enter")
        await page.until("#head h2", "two")
        assert "two" in await page.text('a[aria-current="true"]')
