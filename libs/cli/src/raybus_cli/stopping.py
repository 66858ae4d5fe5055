"""Ends a command that runs until a signal: SIGTERM, or Ctrl-C."""

import asyncio
import signal
from typing import NoReturn


class Stopped(Exception):
    """A signal arrived."""


async def wait() -> NoReturn:
    """Raise `Stopped` at the first SIGTERM or SIGINT; later ones change nothing."""
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, received.set)
    await received.wait()
    raise Stopped
