"""How long does part 1 of the tutorial take on a machine without caches, up to the first answer?

    make tutorial-cold

This commit is cloned into a new folder with empty home, cache and state folders, so everything is
built and downloaded anew. Only Debian packages that are already installed are not installed again.
One shell runs the commands of the tutorial's page. In the end, the cluster and all files are
removed.
"""

import argparse
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table

from bench import report
from bench.goals import FigureGoal, judged
from bench.report import emit
from localcluster import binaries
from localcluster.images import debian
from localcluster.images.debian import list_missing
from localcluster.progress import format_duration
from support.docs import commands
from support.manifests import ROOT

PAGE: Final = ROOT / "docs/tutorial/1-first-service.md"
TO: Final = ROOT / "build/bench/tutorial.json"
CLUSTER: Final = "raybus-cold"
LIMIT_MINUTES: Final = 12.0
FIRST_ANSWER: Final = "First answer of the model"
MARK: Final = "\x1e"
_DONE: Final = re.compile(r"✓ (?P<title>.+): done in (?P<seconds>[0-9.]+) s$")
_INHERITED: Final = re.compile(
    r"PATH|LANG|TERM|SSL_\w+|PIP_(?!CACHE)\w+|UV_(?!CACHE)\w+|GOPROXY|GOSUMDB"
    r"|(?i:\w+_proxy)|\w+_CA_BUNDLE|RAYBUS_DEBIAN_MIRROR"
)
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_LOAD_EVERY: Final = 15.0


class TutorialStep(msgspec.Struct, frozen=True, kw_only=True):
    """A command of the page, or a step that a command reported as done."""

    title: str
    seconds: float
    ended: float
    """Seconds from the start of the first command to the end of this step."""


class Measured(msgspec.Struct, kw_only=True):
    """The result of one run of the benchmark."""

    commit: str
    cores: int
    machine: str
    first_answer_seconds: float | None = None
    processor_seconds: float = 0.0
    """Processor seconds up to the first answer, without the programs and pods of the cluster."""
    load: list[float]
    """One-minute load averages of the machine, every 15 s up to the first answer."""
    packages_there: list[str]
    """Debian packages of the tutorial that were already installed."""
    exit_code: int | None = None
    """Exit code of the last command; None with `--first-answer`, which ends earlier."""
    phases: list[TutorialStep]


class _Run:
    """Runs the page's commands in a shell in the clone, and reads their output."""

    def __init__(self, folder: Path, measured: Measured) -> None:
        self._folder = folder
        self._measured = measured
        self._environment = _create_environment(folder)
        self._began = time.monotonic()
        self._command: tuple[str, float] | None = None
        self._ended = threading.Event()

    def clone(self) -> None:
        """Clone this checkout's commit into the folder of the run."""
        command = [
            "git",
            "clone",
            "--quiet",
            "--no-hardlinks",
            str(ROOT),
            str(self._folder / "clone"),
        ]
        subprocess.run(command, check=True)

    def type(self, typed: Sequence[str], *, until_first_answer: bool) -> None:
        """Run the commands in one shell that stops at the first failure.

        With `until_first_answer`, interrupt the shell when a model has answered.
        """
        script = (
            "".join(
                f"printf '{MARK}%s\\n' {shlex.quote(command)}\n{command}\n" for command in typed
            )
            + f"printf '{MARK}\\n'\n"
        )
        self._began = time.monotonic()
        process = subprocess.Popen(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=self._folder / "clone",
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        watching = threading.Thread(target=self._watch_load, daemon=True)
        watching.start()
        try:
            for line in process.stdout or ():
                self._take(line.rstrip("\n"), process.pid)
                if until_first_answer and self._measured.first_answer_seconds is not None:
                    return
            self._measured.exit_code = process.wait()
        finally:
            self._ended.set()
            _interrupt(process)

    def clean_up(self) -> None:
        """Remove the cluster, then all files of the run."""
        raybus = self._folder / "clone/.venv/bin/raybus"
        if raybus.exists():
            command = [str(raybus), "cluster", "down", "--purge"]
            subprocess.run(command, cwd=self._folder / "clone", env=self._environment, check=False)
        # Go makes its module cache read-only.
        subprocess.run(["chmod", "-R", "u+w", str(self._folder)], check=False)
        shutil.rmtree(self._folder)

    def _take(self, line: str, shell: int) -> None:
        now = time.monotonic() - self._began
        if line.startswith(MARK):
            if self._command is not None:
                title, began = self._command
                self._measured.phases.append(
                    TutorialStep(
                        title=f"$ {title}", seconds=round(now - began, 1), ended=round(now, 1)
                    )
                )
            self._command = (line.removeprefix(MARK), now)
        elif (step := _DONE.search(line)) is not None:
            self._measured.phases.append(
                TutorialStep(
                    title=step["title"], seconds=float(step["seconds"]), ended=round(now, 1)
                )
            )
        if FIRST_ANSWER in line and self._measured.first_answer_seconds is None:
            self._measured.first_answer_seconds = round(now, 1)
            self._measured.processor_seconds = round(processor_seconds(shell), 1)
            self._measured.phases.append(
                TutorialStep(title=FIRST_ANSWER, seconds=round(now, 1), ended=round(now, 1))
            )
        emit(f"{now:7.1f}  {line.replace(MARK, '$ ')}")

    def _watch_load(self) -> None:
        while self._measured.first_answer_seconds is None:
            self._measured.load.append(round(os.getloadavg()[0], 2))
            if self._ended.wait(_LOAD_EVERY):
                return


def processor_seconds(pid: int) -> float:
    """Return the processor seconds of a process and of its ended and running descendants."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    # utime, stime, cutime, cstime: fields 14 to 17 of proc(5); the command's name may hold spaces.
    own = sum(int(field) for field in stat[stat.rindex(")") + 2 :].split()[11:15]) / _TICKS
    return own + sum(processor_seconds(int(child)) for child in below)


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Interrupt the shell and its children; kill them if they have not ended after a minute."""
    for number, seconds in ((signal.SIGINT, 60.0), (signal.SIGKILL, 10.0)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                continue


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a new user also has: programs, locale and network access."""
    return {name: value for name, value in environment.items() if _INHERITED.fullmatch(name)}


def _create_environment(folder: Path) -> dict[str, str]:
    """Create empty folders for a new user, and return the user's environment variables.

    They point to the folders, and include the variables that `inherited` selects.
    """
    kept = inherited(os.environ)
    ours = str(ROOT / ".venv")
    path = os.pathsep.join(
        folder for folder in kept["PATH"].split(os.pathsep) if not folder.startswith(ours)
    )
    home = folder / "home"
    places = {
        "HOME": home,
        "XDG_CACHE_HOME": home / ".cache",
        "XDG_STATE_HOME": home / ".local/state",
        "TMPDIR": folder / "tmp",
    }
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    shown = {
        "RAYBUS_CLUSTER": CLUSTER,
        "NO_COLOR": "1",
        "COLUMNS": "110",
        "TERM": "dumb",
        "RAYBUS_DEMO_RATE": "20",
    }
    return {**kept, **{name: str(place) for name, place in places.items()}, **shown, "PATH": path}


def _list_commands(*, until_first_answer: bool) -> Iterator[str]:
    """Yield the commands of the tutorial's page, except the removal of the cluster.

    With `until_first_answer`, stop after the demo, which serves a model and so gives the first
    answer.
    """
    for command in commands.of(PAGE):
        if command.text.startswith("raybus cluster down"):
            continue
        yield command.text
        if until_first_answer and command.text.startswith("raybus demo"):
            return


def table(measured: Measured) -> Table:
    """Build the table of steps in the order in which they ended."""
    shown = Table(
        "ended after",
        "seconds",
        "phase",
        title="Part 1 of the tutorial on an empty machine",
        title_justify="left",
    )
    for column in shown.columns[:2]:
        column.justify = "right"
    for phase in measured.phases:
        shown.add_row(format_duration(phase.ended), f"{phase.seconds:.1f}", phase.title)
    return shown


def summary(measured: Measured) -> Iterator[str]:
    """Yield the lines that are printed below the table."""
    if measured.first_answer_seconds is None:
        yield "there was no answer"
        return
    limit = measured.processor_seconds / measured.cores
    busiest = max(measured.load, default=0.0)
    yield f"first answer of a model after {format_duration(measured.first_answer_seconds)}"
    yield (
        f"{measured.processor_seconds:.0f} s of processor time for it: no less than "
        f"{format_duration(limit)} on {measured.cores} cores"
    )
    yield (
        f"load average {min(measured.load, default=0.0)} to {busiest}; installed before: "
        f"{', '.join(measured.packages_there) or 'nothing'}"
    )


def goals(measured: Measured) -> list[FigureGoal]:
    """Return the goal for the first answer.

    The goal is missed if there was no answer or a command failed.
    """
    first = measured.first_answer_seconds
    value = "none" if first is None else format_duration(first)
    return [
        FigureGoal(
            figure="the first answer of a model on an empty machine",
            value=value + (", and a command failed" if measured.exit_code else ""),
            goal=f"{LIMIT_MINUTES:.0f} min",
            is_reached=first is not None and first <= LIMIT_MINUTES * 60 and not measured.exit_code,
        )
    ]


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def measure(*, until_first_answer: bool) -> Measured:
    """Run the page's commands as on an empty machine."""
    packages = {**binaries.PACKAGES, **debian.TOOLS}
    there = sorted({*packages} - {*list_missing(packages)})
    cores = os.cpu_count() or 1
    measured = Measured(
        commit=_commit(),
        cores=cores,
        machine=platform.machine(),
        load=[],
        packages_there=there,
        phases=[],
    )
    run = _Run(Path(tempfile.mkdtemp(prefix="raybus-cold-", dir="/var/tmp")), measured)
    try:
        run.clone()
        run.type(
            [*_list_commands(until_first_answer=until_first_answer)],
            until_first_answer=until_first_answer,
        )
    finally:
        run.clean_up()
    return measured


def main(arguments: Sequence[str]) -> int:
    """Measure and print the figures. Return 1 if the goal is missed, else 0."""
    parser = argparse.ArgumentParser(prog="make tutorial-cold")
    parser.add_argument("--first-answer", action="store_true", help="end at the first answer")
    options = parser.parse_args(arguments)
    measured = measure(until_first_answer=options.first_answer)
    TO.parent.mkdir(parents=True, exist_ok=True)
    TO.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
    report.show(measured, lambda: table(measured), form="text")
    for line in summary(measured):
        emit(line)
    return judged("tutorial-cold", goals(measured))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
