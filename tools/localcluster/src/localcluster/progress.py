"""Shows the progress of long work: steps with their elapsed time and remaining time.

A terminal shows one live line per running step. Other streams get plain lines, at least one every 4
seconds while a step runs. Steps may run concurrently in threads or tasks, each with its own
estimate.

    progress = Progress.to_stderr()
    with progress.step("building kube-apiserver", estimate=160) as step:
        step.note("compiling")
"""

import fcntl
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

HEARTBEAT_SECONDS = 4.0
"""Maximum seconds without a line of output while a step runs."""

_REFRESH_PER_SECOND = 4

_MEASURED_SECONDS = 15.0
"""Minimum estimate, in seconds, of a step from which the machine's speed is learnt."""


class Speed:
    """How long steps take on this machine, relative to their estimates.

    It is learnt from finished steps.
    """

    def __init__(self) -> None:
        self._estimated = 0.0
        self._taken = 0.0

    def learn(self, *, estimated: float | None, taken: float) -> None:
        """Add the estimate and the actual duration of a finished step, in seconds."""
        if estimated is not None and estimated >= _MEASURED_SECONDS:
            self._estimated += estimated
            self._taken += taken

    def adapt(self, estimate: float | None) -> float | None:
        """Scale an estimate to the speed of this machine.

        Short estimates and None are returned unchanged.
        """
        if estimate is None or estimate < _MEASURED_SECONDS or self._estimated == 0:
            return estimate
        return estimate * self._taken / self._estimated


class ProgressStep:
    """A running step. `note` sets the text that describes its present activity."""

    def __init__(self, title: str, estimate: float | None, started: float) -> None:
        self.title = title
        self.estimate = estimate
        self.started = started
        self.detail = ""

    def note(self, detail: str) -> None:
        self.detail = detail


def estimate_time_left(step: ProgressStep, *, now: float) -> float | None:
    """Return the remaining seconds of a step, at least 1.

    None if the step has no estimate, or has taken longer than its estimate.
    """
    elapsed = now - step.started
    if step.estimate is None or elapsed >= step.estimate:
        return None
    return max(step.estimate - elapsed, 1.0)


def describe(step: ProgressStep, *, now: float) -> str:
    """Format a running step as one line."""
    elapsed = now - step.started
    left = estimate_time_left(step, now=now)
    remaining = f", usually {format_duration(step.estimate)}" if step.estimate is not None else ""
    if left is not None:
        remaining = f", about {format_duration(left)} left"
    detail = f" ({step.detail})" if step.detail else ""
    return f"{step.title}{detail}: {format_duration(elapsed)}{remaining}"


def format_duration(seconds: float) -> str:
    """Format seconds as `8 s` or `2 min 05 s`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s"


class Progress:
    """The display of all steps of a command. It may be used from several threads."""

    def __init__(self, stream: TextIO, *, quiet: bool = False, live: bool | None = None) -> None:
        self._quiet = quiet
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._live_wanted = self._console.is_terminal if live is None else live
        self._steps: list[ProgressStep] = []
        self._speed = Speed()
        self._lock = threading.RLock()
        self._live: Live | None = None
        self._stopped = threading.Event()
        self._heart: threading.Thread | None = None

    @classmethod
    def to_stderr(cls) -> "Progress":
        """Return a display on standard error. Standard output is reserved for results."""
        return cls(sys.stderr)

    @classmethod
    def silent(cls) -> "Progress":
        """Return a display that shows nothing."""
        return cls(sys.stderr, quiet=True)

    def report(self, line: str) -> None:
        """Print a line above the steps. It stays visible."""
        if self._quiet:
            return
        with self._lock:
            self._console.print(line, markup=False)

    @contextmanager
    def step(self, title: str, *, estimate: float | None = None) -> Generator[ProgressStep]:
        """Show a step during the `with` block, then its duration and whether it failed.

        `estimate` is in seconds.
        """
        step = ProgressStep(title, self._speed.adapt(estimate), time.monotonic())
        self._begin(step)
        outcome = "failed after"
        try:
            yield step
            outcome = "done in"
            self._speed.learn(estimated=estimate, taken=time.monotonic() - step.started)
        finally:
            self._end(step, outcome)

    @contextmanager
    def locked(self, path: Path, waiting: str) -> Generator[None]:
        """Hold a file lock during the `with` block.

        While another process holds the lock, a step with the title `waiting` is shown.
        """
        with path.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with self.step(waiting):
                    fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _begin(self, step: ProgressStep) -> None:
        if self._quiet:
            return
        with self._lock:
            self._steps.append(step)
            if not self._live_wanted:
                self._console.print(f"  … {describe(step, now=time.monotonic())}", markup=False)
            if self._heart is None:
                self._start()

    def _end(self, step: ProgressStep, outcome: str) -> None:
        if self._quiet:
            return
        with self._lock:
            self._steps.remove(step)
            elapsed = time.monotonic() - step.started
            mark = "✓" if outcome == "done in" else "✗"
            self._console.print(f"  {mark} {step.title}: {outcome} {elapsed:.1f} s", markup=False)
            last = not self._steps
        if last:
            self._stop()

    def _start(self) -> None:
        self._stopped = threading.Event()
        if self._live_wanted:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=_REFRESH_PER_SECOND,
                transient=True,
            )
            self._live.start()
        self._heart = threading.Thread(
            target=self._show_periodically, args=(self._stopped,), name="progress", daemon=True
        )
        self._heart.start()

    def _stop(self) -> None:
        with self._lock:
            if self._steps:
                return
            heart, self._heart = self._heart, None
            live, self._live = self._live, None
            self._stopped.set()
        if live is not None:
            live.stop()
        if heart is not None:
            heart.join(timeout=1)

    def _show_periodically(self, stopped: threading.Event) -> None:
        while not stopped.wait(HEARTBEAT_SECONDS):
            if self._live_wanted:
                continue
            with self._lock:
                now = time.monotonic()
                for step in self._steps:
                    self._console.print(f"  … {describe(step, now=now)}", markup=False)

    def _render(self) -> Text:
        with self._lock:
            now = time.monotonic()
            return Text("\n".join(f"  … {describe(step, now=now)}" for step in self._steps))
