"""Waiting at the terminal: polling with a time limit, and stopping at SIGTERM or Ctrl-C."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, TypeVar

import typer

from common import durations
from raybus_cli import printing, session


class Stopped(Exception):
    """Raised when SIGTERM or SIGINT arrived."""


async def wait() -> NoReturn:
    """Raise `Stopped` at the first SIGTERM or SIGINT; later signals are ignored."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.set)
    await received.wait()
    raise Stopped


POLL_SECONDS: Final = 1.0
"""Seconds between two polls."""

T = TypeVar("T")


def parse_seconds(given: str | int) -> float:
    """Parse a duration option (`10m`, `90s`, `0`) to seconds.

    The option's default may be a number. Raises `BadParameter` for an invalid duration.
    """
    length = durations.parse_or_seconds(str(given))
    if length is None or length.total_seconds() < 0:
        raise typer.BadParameter(f"{given!r} is no duration; write for example 10m, 90s or 0")
    return length.total_seconds()


async def poll_until(
    read: Callable[[], Awaitable[T]], pending: Callable[[T], str], *, limit: float
) -> T:
    """Call `read` until `pending`, applied to its result, is an empty text; return that result.

    After `limit` seconds, the last result is returned. Each change of the pending text is printed
    on standard error. `Unavailable` and `Throttled` errors are retried until the limit and then
    raised.
    """
    loop = asyncio.get_running_loop()
    began, reported = loop.time(), ""
    while True:
        spent = loop.time() - began
        try:
            value = await read()
            text = pending(value)
            if not text or spent >= limit:
                return value
        except session.RETRYABLE_ERRORS as problem:
            if spent >= limit or session.is_interrupted():
                raise
            text = session.format_error(problem)
        if text != reported:
            printing.print_message(f"{spent:6.0f} s  {text}", err=True)
            reported = text
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, limit - spent)))
