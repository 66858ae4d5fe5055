"""The live view of the demo: clusters, pods, traffic share by version, failed requests.

If the output is no terminal, it prints plain lines.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from localcluster.demo import cluster_state
from localcluster.demo.cluster_state import DemoState
from localcluster.demo.tally import LoadFigures

BAR: Final = 30
PLAIN_EVERY: Final = 4.0
"""Seconds between plain lines, so that the output is never silent for five seconds."""


class DemoFrame(msgspec.Struct, frozen=True, kw_only=True):
    """The data that the view shows at one moment. `share` is the fraction of traffic by version."""

    step: str
    elapsed: float
    state: DemoState
    share: dict[str, float]
    figures: LoadFigures


class View:
    """Shows frames on standard error; standard output is reserved for the result."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._last_line = -PLAIN_EVERY

    @contextmanager
    def drawing(self) -> Generator[None]:
        """Show the live picture during the `with` block, if standard error is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def draw(self, frame: DemoFrame) -> None:
        """Show a frame. Without a terminal, print at most one line in `PLAIN_EVERY` seconds."""
        if self._live is not None:
            self._live.update(draw(frame))
        elif frame.elapsed - self._last_line >= PLAIN_EVERY:
            self._last_line = frame.elapsed
            print(format_line(frame), file=sys.stderr, flush=True)


def format_line(frame: DemoFrame) -> str:
    """Format a frame as one plain line."""
    share = (
        ", ".join(f"version {version} {100 * part:.0f} %" for version, part in frame.share.items())
        or "no answers yet"
    )
    clusters = (
        ", ".join(f"{name} {frame.state.find_role(name)}" for name in frame.state.clusters)
        or "no cluster"
    )
    return (
        f"{frame.elapsed:6.1f} s  {frame.step}: {share}; "
        f"{frame.figures.requests} requests, {frame.figures.failed} failed; {clusters}"
    )


def draw(frame: DemoFrame) -> RenderableType:
    """Format a frame as a picture for a terminal."""
    head = Text(f"{frame.step}  {frame.elapsed:.0f} s", style="bold")
    failed = Text(
        f"{frame.figures.requests} requests, {frame.figures.failed} failed, "
        f"{frame.figures.retried} retried",
        style="red" if frame.figures.failed else "green",
    )
    return Group(head, _draw_shares(frame), _draw_pods(frame), failed)


def _draw_shares(frame: DemoFrame) -> RenderableType:
    lines = Text()
    for version, part in frame.share.items():
        filled = round(BAR * part)
        lines.append(f"version {version} ")
        lines.append("█" * filled, style="cyan")
        lines.append("░" * (BAR - filled) + f" {100 * part:3.0f} %\n")
    return lines


def _draw_pods(frame: DemoFrame) -> Table:
    table = Table("cluster", "role", "pod", "state")
    for pod in frame.state.pods:
        cluster = pod.metadata.labels.get("ray.io/cluster", "")
        table.add_row(
            cluster,
            frame.state.find_role(cluster),
            pod.metadata.name,
            cluster_state.describe_pod_state(pod),
        )
    for pod in frame.state.raybus:
        table.add_row("", "raybus", pod.metadata.name, cluster_state.describe_pod_state(pod))
    return table
