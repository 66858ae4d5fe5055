"""Debian's Chromium without a window, driven by Playwright without its own browsers, which are never downloaded."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, Page, async_playwright

from localcluster.images import debian
from support import pictures
from support.servers.programs import REMEDY

PROGRAM: Final = "chromium"
FONT: Final = "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"
PACKAGES: Final = {PROGRAM: (PROGRAM,), "fonts-dejavu-core": (FONT,)}
FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
)
"""Flags with which Chromium works as root, and sends requests only to the page's server."""
TIMEOUT: Final = 90.0
"""Maximum seconds of each wait; a busy machine takes long to start a browser."""

OVERFLOWING: Final = """
[...document.querySelectorAll("li > *, dt, dd, td, th")]
  .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth + 1)
  .map((each) => each.textContent)
"""


class Watched:
    """A page in the browser, with its requests and errors, which are not visible on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.asked: list[str] = []
        """Addresses that the page requested."""
        self.complaints: list[str] = []
        """Complaints of the browser: errors of scripts, and actions that the page was not allowed
        to take."""
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.on(
            "console",
            lambda line: self.complaints.append(line.text) if line.type == "error" else None,
        )
        page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    async def text(self, selector: str) -> str:
        """Return the visible text of a part of the page."""
        return (await self.page.locator(selector).inner_text()).strip()

    async def overflowing(self) -> list[str]:
        """Return the texts that need more room than their row or table cell has, so that they cover
        their neighbours.
        """
        found: list[str] = await self.page.evaluate(OVERFLOWING)
        return found

    async def until(self, selector: str, text: str, *, within: float = TIMEOUT) -> None:
        """Wait until a visible part of the page has a text."""
        found = self.page.locator(selector).filter(has_text=text).first
        await found.wait_for(state="visible", timeout=within * 1000)

    async def picture(self, path: Path) -> None:
        """Take a screenshot of the window."""
        path.parent.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=path, animations="disabled")
        if path.parent == pictures.IMAGES:
            pictures.record(path.name)


@asynccontextmanager
async def opened() -> AsyncGenerator[Browser]:
    """Run a browser for the duration of a block."""
    lacking = debian.list_missing(PACKAGES)
    assert not lacking, f"{', '.join(lacking)} is not installed: {REMEDY}"
    program = shutil.which(PROGRAM)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=list(FLAGS), timeout=TIMEOUT * 1000
        )
        try:
            yield browser
        finally:
            await browser.close()
