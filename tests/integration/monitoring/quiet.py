"""No alert fires while all is well: an hour of upgrades and rest, under the unchanged rules.

    make quiet [QUIET=60]

A real Prometheus has deploy/monitoring/rules.yaml, and scrapes and evaluates every 15 s. The five
services run as processes on a real API server, etcd and NATS, with simulated pods and fake Ray
heads. Two RayServices are upgraded in turn, one in steps and one at once; every fifth time none is
upgraded. The exit code is 1 if an alert fired or an upgrade did not end.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from bench.programs import Machine
from bench.rig import BACKGROUND
from common import errors
from common.clock import SystemClock
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from generators.monitoring import files
from integration.isolated import isolate, log_progress, print_result
from integration.monitoring import ground, objects
from integration.monitoring.ground import Ground
from localcluster.errors import ClusterError
from support.servers.prometheus import Intervals

OUTPUT: Final = Path(__file__).parents[3] / "build" / "quiet"
SECONDS: Final = 15
"""Seconds between two scrapes, as in deploy/monitoring/scrape.yaml, and between two evaluations."""
PROGRESS_SECONDS: Final = 30.0
MAX_UPGRADE: Final = 600.0
INTERVAL: Final = 5
"""Seconds between two steps of an upgrade."""
DELAY: Final = 30
"""Seconds until an old cluster is deleted."""
REST: Final = 5
"""One in this many rounds has no upgrade."""
SIGNALS: Final = {
    "silence of a watch (s)": ("max(raybus_watch_silence_seconds)", 150.0),
    "longest wait in a queue (s)": ("max(raybus_queue_longest_wait_seconds)", 30.0),
    "wait in a queue, p99 (s)": (
        "max(histogram_quantile(0.99, sum by (controller, le) (rate(workqueue_queue_duration_seconds_bucket[5m]))))",
        10.0,
    ),
    "silence of Serve in an active cluster (s)": (
        'max(raybus_serve_poll_age_seconds{role="active"})',
        180.0,
    ),
    "share of reconciles that fail": (
        "max(sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m]))"
        " / sum by (controller) (rate(controller_runtime_reconcile_total[5m])))",
        0.25,
    ),
}
"""Expressions that alerts compare with a limit, with that limit."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Duration for which a rule's alert was active, in seconds."""

    alert: str
    health: str
    pending: float = 0.0
    firing: float = 0.0


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """How close the metric of an alert came to its limit."""

    what: str
    most: float
    limit: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that one run showed."""

    minutes: float
    upgrades: int
    stuck: list[str] = []
    """Upgrades that did not end in time."""
    slowest_upgrade_seconds: float
    machine_percent: float
    """Utilisation of all processors of the machine, by all programs."""
    targets: dict[str, str]
    rules: list[Standing]
    signals: list[Signal]

    @property
    def broken(self) -> list[str]:
        """Yield the violated expectations."""
        fired = [
            f"{each.alert} fired for {each.firing:.0f} s" for each in self.rules if each.firing
        ]
        unjudged = [
            f"{each.alert} was not judged: {each.health}"
            for each in self.rules
            if each.health != "ok"
        ]
        down = [
            f"{target} is {health}" for target, health in self.targets.items() if health != "up"
        ]
        return (
            fired
            + unjudged
            + down
            + self.stuck
            + ([] if self.upgrades else ["there was no upgrade"])
        )


class Hour:
    """One run."""

    def __init__(self, found: Ground, *, minutes: float, every: float) -> None:
        self._found = found
        self._seconds = minutes * 60
        self._every = every
        self._clock = SystemClock()
        self._took: list[float] = []
        self._stuck: list[str] = []
        self._doing = "rest"

    async def report(self) -> Report:
        """Run it."""
        machine = Machine()
        await self._prepare()
        began = self._clock.monotonic()
        async with asyncio.TaskGroup() as group:
            progress = group.create_task(self._report_progress(began))
            try:
                async with asyncio.timeout(self._seconds):
                    await self._upgrade_again_and_again()
            except TimeoutError:
                pass
            progress.cancel()
        return await self._judged(self._clock.monotonic() - began, machine)

    async def _prepare(self) -> None:
        kube = self._found.stack.kube
        await kube.create(RAY_CLUSTER, BACKGROUND, objects.a_cluster("alone"))
        for name in self._names():
            interval = INTERVAL if name == "steps" else None
            await kube.create(
                RAY_SERVICE, BACKGROUND, objects.a_service(name, interval=interval, delay=DELAY)
            )
        for name in self._names():
            await objects.until_served(kube, name, within=MAX_UPGRADE)
        log_progress("all serve")

    def _names(self) -> list[str]:
        return ["plain", "steps"]

    async def _upgrade_again_and_again(self) -> None:
        names, began = self._names(), self._clock.monotonic()
        for number in count():
            await asyncio.sleep(max(0.0, began + number * self._every - self._clock.monotonic()))
            if number % REST != REST - 1:
                try:
                    await self._upgrade(names[number % len(names)], f"rayproject/ray:2.53.{number}")
                except AssertionError as problem:
                    self._stuck.append(str(problem))
                    log_progress(self._stuck[-1])

    async def _upgrade(self, name: str, image: str) -> None:
        kube, began = self._found.stack.kube, self._clock.monotonic()
        self._doing = f"upgrade of {name}"
        before = await objects.until_served(kube, name, within=MAX_UPGRADE)
        await objects.change(kube, name, objects.a_config(image))
        await objects.until_served(kube, name, within=MAX_UPGRADE, other_than=before)
        self._took.append(self._clock.monotonic() - began)
        self._doing = "rest"

    async def _report_progress(self, began: float) -> None:
        standing: list[str] = []
        while True:
            with suppress(
                httpx.TransportError
            ):  # of a busy machine; what counts is asked for at the end
                standing = sorted(
                    f"{name} {state}" for name, state in await self._found.server.standing()
                )
            since = self._clock.monotonic() - began
            log_progress(
                f"{since:.0f} of {self._seconds:.0f} s | {len(self._took)} upgrades | {self._doing} "
                f"| {', '.join(standing) or 'no alert stands'}"
            )
            await asyncio.sleep(PROGRESS_SECONDS)

    async def _judged(self, seconds: float, machine: Machine) -> Report:
        server, window = self._found.server, f"{seconds:.0f}s"
        stood = await server.query(
            f"max by (alertname, alertstate) (count_over_time(ALERTS[{window}]))"
        )
        times = {
            (each.metric["alertname"], each.metric["alertstate"]): float(each.value[1])
            for each in stood
        }
        standings = [
            Standing(
                alert=rule.name,
                health=rule.last_error or rule.health,
                pending=SECONDS * times.get((rule.name, "pending"), 0.0),
                firing=SECONDS * times.get((rule.name, "firing"), 0.0),
            )
            for rule in await server.rules()
        ]
        assert [each.alert for each in standings] == [each["alert"] for each in files.alerts()]
        signals = [
            Signal(what=what, most=round(await self._most(expression, window), 3), limit=limit)
            for what, (expression, limit) in SIGNALS.items()
        ]
        return Report(
            minutes=round(seconds / 60, 1),
            upgrades=len(self._took),
            stuck=self._stuck,
            slowest_upgrade_seconds=round(max(self._took, default=0.0), 1),
            machine_percent=round(machine.percent, 1),
            targets=await server.scraped(),
            rules=standings,
            signals=signals,
        )

    async def _most(self, expression: str, window: str) -> float:
        found = await self._found.server.query(
            f"max_over_time(({expression})[{window}:{SECONDS}s])"
        )
        return max((float(each.value[1]) for each in found), default=0.0)


@asynccontextmanager
async def _watched(logs: Path, work: Path) -> AsyncGenerator[Ground]:
    intervals = Intervals(scrape=f"{SECONDS}s", evaluation=f"{SECONDS}s")
    async with ground.started(
        work, logs, log_progress, rules=files.RULES, intervals=intervals
    ) as found:
        yield found


async def run(options: argparse.Namespace, work: Path) -> Report:
    """Start everything, and let the time pass; SIGTERM ends it as Ctrl-C does, so that nothing is left behind."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with _watched(options.out, work) as found:
        return await Hour(found, minutes=options.minutes, every=options.every).report()


def show(found: Report, console: Console) -> None:
    """Print the rules, what came near to a limit, and the verdict."""
    rules = Table(
        "alert",
        "pending (s)",
        "firing (s)",
        title=f"{found.minutes:g} minutes, {found.upgrades} upgrades",
    )
    for each in found.rules:
        rules.add_row(each.alert, f"{each.pending:.0f}", f"{each.firing:.0f}")
    console.print(rules)
    signals = Table("metrics of alerts", "most", "limit")
    for each in found.signals:
        signals.add_row(each.what, f"{each.most:g}", f"{each.limit:g}")
    console.print(signals)
    console.print(
        f"slowest upgrade {found.slowest_upgrade_seconds:g} s; the machine was {found.machine_percent:g} % busy"
    )
    for line in found.broken:
        console.print(f"broken: {line}")
    console.print("verdict: no alert fired" if not found.broken else "verdict: not quiet")


def asked(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m integration.monitoring.quiet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it goes on (60)")
    parser.add_argument(
        "--every", type=float, default=120.0, help="seconds from one upgrade to the next (120)"
    )
    parser.add_argument(
        "-o", choices=["text", "json"], default="text", help="how to print the report"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=OUTPUT, help="where logs go (build/quiet)"
    )
    found = parser.parse_args(arguments)
    for option, value in (("--minutes", found.minutes), ("--every", found.every)):
        if value <= 0:
            parser.error(f"{option} {value:g}: must be greater than 0")
    return found


def main() -> int:
    """Run and report; return 1 if an alert fired."""
    options = asked(sys.argv[1:])
    isolate("integration.monitoring.quiet")
    options.out.mkdir(parents=True, exist_ok=True)
    log_progress(f"logs: {options.out}")
    try:
        with tempfile.TemporaryDirectory(prefix="raybus-quiet-") as work:
            found = asyncio.run(run(options, Path(work)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        log_progress("ended before its time")
        return 130
    except (ClusterError, errors.RaybusError) as problem:
        raise SystemExit(f"quiet: {problem}") from None
    (options.out / "report.json").write_bytes(msgspec.json.encode(found) + b"\n")
    if options.o == "json":
        print_result(found)
    else:
        show(found, Console(width=120))
    return 1 if found.broken else 0


if __name__ == "__main__":
    sys.exit(main())
