"""The only way in which tests wait for real events: a condition and a deadline, never a fixed time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

POLL_SECONDS: Final = 0.01


async def eventually(
    check: Callable[[], object], *, within: float = 10.0, what: str = "the condition"
) -> None:
    """Return as soon as a check is true; fail with the name of the condition if it is not true
    within some seconds.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not check():
        assert loop.time() < deadline, f"{what} did not come true within {within:g} s"
        await asyncio.sleep(POLL_SECONDS)


async def eventually_true(
    ask: Callable[[], Awaitable[object]],
    *,
    within: float = 60.0,
    every: float = 0.5,
    what: str = "the condition",
) -> None:
    """Query something over the network until the answer is true; fail with the name of the
    condition if it is not true in time.
    """
    try:
        async with asyncio.timeout(within):
            while not await ask():  # noqa: ASYNC110  (no event can be set: the condition is about a server)
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {within:g} s") from None
