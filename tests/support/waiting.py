"""The one way in which a test waits for something real: a condition and a deadline, never a fixed time."""

import asyncio
from collections.abc import Callable
from typing import Final

POLL_SECONDS: Final = 0.01


async def eventually(check: Callable[[], object], *, within: float = 10.0, what: str = "the condition") -> None:
    """Return as soon as a check is true; fail, naming what was waited for, when it is not within some seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not check():
        assert loop.time() < deadline, f"{what} did not come true within {within:g} s"
        await asyncio.sleep(POLL_SECONDS)
