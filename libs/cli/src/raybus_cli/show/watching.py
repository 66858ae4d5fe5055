"""`-w`: reads periodically, and shows a live picture on a terminal, else one line or document for each change."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
from rich.live import Live
from rich.text import Text

from common import errors
from raybus_cli.access import problems, session
from raybus_cli.output import printing
from raybus_cli.output.printing import Output
from raybus_cli.show.frame import Frame, Item

POLL_SECONDS: Final = 1.0
"""Seconds between reads while something is watched."""
Read = Callable[[], Awaitable[Frame]]


async def follow(read: Read, output: Output) -> None:
    """Show each read until the user interrupts."""
    console = printing.console()
    if console.is_terminal and output in {Output.TEXT, Output.WIDE}:
        with Live(console=console, auto_refresh=False) as live:
            async for frame in _poll(read):
                live.update(frame.picture or Text("No resources found.", style="dim"), refresh=True)
    known: dict[tuple[str, str, str], Any] = {}
    heading = ""
    async for frame in _poll(read):
        for item in frame.items:
            if _key(item) in known and known[_key(item)] == item.state:
                continue
            if output in {Output.TEXT, Output.WIDE} and item.heading and item.kind.singular != heading:
                heading = item.kind.singular
                printing.message(item.heading)
            printing.message(_text(item, output))
        known = {_key(item): item.state for item in frame.items}


def _key(item: Item) -> tuple[str, str, str]:
    return item.kind.singular, item.namespace, item.name


def _text(item: Item, output: Output) -> str:
    match output:
        case Output.JSON:
            return msgspec.json.encode(item.document).decode()
        case Output.YAML:
            return f"---\n{printing.text_of(item.document, output)}".rstrip("\n")
        case Output.NAME:
            return item.full_name
        case _:
            return item.line


async def _poll(read: Read) -> AsyncIterator[Frame]:
    """Read periodically; an API server that does not answer is reported once and waited for."""
    is_away = False
    while True:
        try:
            yield await read()
            is_away = False
        except (errors.Unavailable, errors.Throttled) as problem:
            if session.is_interrupted():
                raise
            if not is_away:
                printing.message(problems.line(problem), err=True)
            is_away = True
        await asyncio.sleep(POLL_SECONDS)
