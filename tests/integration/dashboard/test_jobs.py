"""The jobs on the page in a real browser: tables of all jobs, one job, and the links between the
views.
"""

from pathlib import Path

import msgspec
import pytest

from raybus_dashboard import server
from raybus_dashboard.board import Board, EventFeed, PageSources
from support.manifests import ROOT
from support.servers import browser
from support.servers.browser import Watched
from unit.dashboard.test_feed import a_list, a_row
from unit.dashboard.test_jobs import COMPLETE, FAILED_JOB, RUNNING, a_cron_job, a_job, show

pytestmark = pytest.mark.integration

RUN = {"labels": {"ray.io/cronjob-name": "hourly"}}


def a_board() -> Board:
    """Return a board with a RayService, a running job, and a cron job with two runs."""
    board = Board(PageSources(namespace="default", event_feed=EventFeed.OFF))
    board.list(a_list(a_row("chat")))
    board.show_jobs(
        show(
            a_job("train", RUNNING, hour=10),
            a_job("hourly-1", COMPLETE, hour=9, **RUN),
            a_job("hourly-0", {**FAILED_JOB, "failed": 2}, hour=8, **RUN),
            cron_jobs=(a_cron_job(timeZone="Europe/Paris"),),
        )
    )
    return board


async def test_jobs_are_listed_and_one_is_opened(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    images = ROOT / "docs" / "images"
    pictures = images if request.config.getoption("--update-pictures") else tmp_path
    board = a_board()
    async with server.serve(server.listen(0), board) as address, browser.opened() as window:
        page = Watched(await window.new_page(viewport={"width": 1100, "height": 560}))
        await page.page.goto(f"{address}#/jobs")
        await page.until("#jobs-pane", "hourly-0")
        assert not await page.page.is_visible("#detail-pane")
        assert await page.text("#view-jobs") == "Jobs (4)"
        rows = (await page.text("#jobs-pane")).splitlines()
        assert any("train" in row and "1/2" in row for row in rows)
        assert await page.page.locator(".runs a").count() == 2
        assert await page.overflowing() == []
        await page.picture(pictures / "dashboard-jobs.png")
        await page.page.click("#jobs-pane td a >> text=hourly-0")
        await page.until("#jobs-pane h2", "hourly-0")
        await page.until("#jobs-pane", "Job entrypoint command failed with exit code 1")
        assert "2 of 2" in await page.text("#jobs-pane")
        assert await page.page.title() == "default/hourly-0 · raybus"
        board.show_jobs(show(a_job("train", COMPLETE)))
        await page.until("#jobs-pane", "RayJob default/hourly-0 does not exist (any more).")
        await page.page.click("#view-services")
        await page.until("#head h2", "chat")
        assert not await page.page.is_visible("#jobs-pane")
        assert page.complaints == []


async def test_a_job_that_is_not_listed_may_exist() -> None:
    board = a_board()
    listed = show(a_job("train", RUNNING))
    board.show_jobs(msgspec.structs.replace(listed, omitted=3))
    async with server.serve(server.listen(0), board) as address, browser.opened() as window:
        page = Watched(await window.new_page())
        await page.page.goto(f"{address}#/jobs/default/old")
        await page.until("#jobs-pane", "raybus get rayjob/old -n default")
        assert "does not exist" not in await page.text("#jobs-pane")
        board.show_jobs(msgspec.structs.replace(show(), problem="rayjobs: forbidden"))
        await page.until("#jobs-pane", "rayjobs: forbidden")
        assert "does not exist" not in await page.text("#jobs-pane")
        await page.page.goto(f"{address}#/jobs")
        await page.until("#jobs-pane h2", "Jobs")
        await page.until("#jobs-pane", "rayjobs: forbidden")
        assert "No RayJob" not in await page.text("#jobs-pane")
        assert page.complaints == []


async def test_a_status_cannot_turn_the_text_around_it() -> None:
    board = a_board()
    board.show_jobs(show(a_job("train", {**RUNNING, "jobDeploymentStatus": "\u202eelbatS"})))
    async with server.serve(server.listen(0), board) as address, browser.opened() as window:
        page = Watched(await window.new_page())
        await page.page.goto(f"{address}#/jobs")
        await page.until("#jobs-pane .badge", "elbatS")
        assert await page.text("#jobs-pane .badge .text") == "\u202eelbatS"
