"""How a command that runs until it is told to stop hears of that: SIGTERM, or Ctrl-C."""

import asyncio
import signal
from typing import NoReturn


class Stopped(Exception):
    """We were told to end."""


async def told() -> NoReturn:
    """Raise `Stopped` at the first SIGTERM or SIGINT; later ones change nothing."""
    loop = asyncio.get_running_loop()
    heard = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard.set)
    await heard.wait()
    raise Stopped
