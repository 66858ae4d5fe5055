"""`-w`: watches objects and shows their changes.

A terminal shows a live picture; other output gets a line or document for each change.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from rich.live import Live
from rich.text import Text

from common import errors
from common.kube.client import KubeClient
from raybus_cli import printing, session
from raybus_cli.printing import Output
from raybus_cli.show.changes import ChangeWatcher
from raybus_cli.show.frame import Item, OutputFrame
from raybus_cli.show.sources import ObjectSource

LULL_SECONDS: Final = 0.1
"""Minimum seconds between two frames; more if the last frame took longer to build."""
RETRY_SECONDS: Final = 1.0
"""Seconds between reads while the API server does not answer."""
REDRAW_SECONDS: Final = 1.0
"""Seconds after which ages on a terminal are updated, without a request."""
_TEXT_OUTPUTS: Final = frozenset({Output.TEXT, Output.WIDE})
_UNSHOWN: Final = object()
"""State of an object that the last frame did not have; the state of a deleted object is None."""


async def follow(kube: KubeClient, source: ObjectSource, output: Output) -> None:
    """Show each change until the user presses Ctrl-C.

    If several tasks fail, raise the first error.
    """
    try:
        with session.silence_logs():
            async with asyncio.TaskGroup() as group:
                await _show(kube, source, output, ChangeWatcher(kube, group, source.convert_error))
    except BaseExceptionGroup as met:
        raise session.find_first(met) from met


async def _show(
    kube: KubeClient, source: ObjectSource, output: Output, changes: ChangeWatcher
) -> None:
    console = printing.create_console()
    if console.is_terminal and output in _TEXT_OUTPUTS:
        with Live(console=console, auto_refresh=False) as live:
            async with aclosing(
                _yield_frames(kube, source, changes, redraw=REDRAW_SECONDS)
            ) as frames:
                async for frame in frames:
                    live.update(
                        frame.picture or Text("No resources found.", style="dim"), refresh=True
                    )
    lines = _LinePrinter(output)
    async with aclosing(_yield_frames(kube, source, changes, redraw=float("inf"))) as frames:
        async for frame in frames:
            lines.show(frame)


class _LinePrinter:
    """Prints a line or document for each object that changed since the last frame."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._known: dict[tuple[str, str, str], tuple[Any, str]] = {}
        self._heading = ""

    def show(self, frame: OutputFrame) -> None:
        """Print a line or document for each changed object.

        A text line is not printed if it is equal to the last line of the object.
        """
        before, self._known = self._known, {}
        for item in frame.items:
            text, (state, last) = (
                _format_item(item, self._output),
                before.get(_get_key(item), (_UNSHOWN, "")),
            )
            is_for_people = self._output in _TEXT_OUTPUTS
            is_same = item.state == state or (is_for_people and text == last)
            self._known[_get_key(item)] = (item.state, last if is_same else text)
            if is_same:
                continue
            if is_for_people and item.heading and item.kind.singular != self._heading:
                self._heading = item.kind.singular
                printing.print_message(item.heading)
            printing.print_message(text)


async def _yield_frames(
    kube: KubeClient, source: ObjectSource, changes: ChangeWatcher, *, redraw: float
) -> AsyncGenerator[OutputFrame]:
    """Yield a frame after each change, every `redraw` seconds, and after each periodic refresh."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        began = loop.time()
        if changes.happened.is_set() or began >= due:
            changes.happened.clear()
            due = began + (
                source.resync if await _refresh(kube, source, changes) else RETRY_SECONDS
            )
        if (frame := source.build_frame(session.read_clock())) is not None:
            yield frame
        await asyncio.sleep(max(LULL_SECONDS, loop.time() - began))
        rest = max(0.0, min(redraw, due - loop.time()))
        try:
            async with asyncio.timeout(None if rest == float("inf") else rest):
                await changes.happened.wait()
        except TimeoutError:
            continue


async def _refresh(kube: KubeClient, source: ObjectSource, changes: ChangeWatcher) -> bool:
    """Refresh the source and update the watches; return whether the API server answered."""
    try:
        await source.refresh(kube)
    except errors.RaybusError as problem:
        if session.is_interrupted():
            raise
        changes.report_failure(problem)
        return False
    changes.record_answer()
    changes.watch(source.build_sinks(changes.happened))
    return True


def _get_key(item: Item) -> tuple[str, str, str]:
    return item.kind.singular, item.namespace, item.name


def _format_item(item: Item, output: Output) -> str:
    match output:
        case Output.JSON:
            return printing.encode_line(item.document)
        case Output.YAML:
            return f"---\n{printing.encode_text(item.document, output)}".rstrip("\n")
        case Output.NAME:
            return item.full_name
        case _:
            return item.line
