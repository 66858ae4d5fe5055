"""Every alert fires when its cause is provoked on the real stack, and falls silent when the cause is gone.

    python -m integration.monitoring.alarmed [ALERT…]

Runs in a network of its own and prints what was seen as JSON; with names, only the causes of these alerts. A real Prometheus scrapes
and judges every second, by the rules of deploy/monitoring in a thirtieth of their time (`support.shortened_rules`).
The two causes that take three minutes by their nature go on while the others are provoked one after the other.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from bench.rig import BACKGROUND
from common.kube.resources import RAY_SERVICE
from generators.monitoring import files
from integration.isolated import isolate, log_progress, print_result
from integration.monitoring import ground, objects
from integration.monitoring.cause import AlarmSetup, Cause
from integration.monitoring.causes_around import AROUND, STALE
from integration.monitoring.causes_of_nats import NATS
from integration.monitoring.causes_of_processes import PROCESSES
from integration.monitoring.causes_of_users import SILENCE, USERS
from integration.monitoring.ground import Ground
from integration.monitoring.objects import Demo
from support import shortened_rules as shortened
from support.servers.prometheus import Prometheus
from support.waiting import eventually_true

LONG: Final = (SILENCE, STALE)
CAUSES: Final = (*LONG, *USERS, *PROCESSES, *AROUND, *NATS)
FIRE_SECONDS: Final = 300.0
"""Timeout in seconds: two alerts wait for three minutes of silence, which is not shortened."""
LOGS: Final = Path(__file__).parents[3] / "build" / "alarmed"


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one cause, in seconds since it was provoked and since it was removed."""

    cause: str
    alerts: list[str]
    fired_after: float
    silent_after: float
    others: list[str]
    """Other alerts that fired meanwhile, of this cause or of one that continues."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What Prometheus knew."""

    before: list[str]
    """Alerts that fired before anything was provoked."""
    fired: list[Fired]
    problems: list[str]
    """Expectations that were not met."""
    texts: list[str]
    """The descriptions of the alerts."""


class Run:
    """One run."""

    def __init__(self, setup: AlarmSetup) -> None:
        self._scene = setup
        self._server: Prometheus = setup.ground.server
        self._fired: list[Fired] = []
        self._problems: list[str] = []
        self._texts: set[str] = set()

    async def execute(self, wanted: Sequence[Cause]) -> Report:
        """Run it."""
        before = sorted(await self._server.firing())
        async with asyncio.TaskGroup() as beside:
            for cause in wanted:
                if cause in LONG:
                    beside.create_task(self._one(cause))
            for cause in wanted:
                if cause in USERS or cause in PROCESSES:
                    await self._one(cause)
        for cause in wanted:
            if cause in AROUND or cause in NATS:
                await self._one(cause)
        return Report(
            before=before, fired=self._fired, problems=self._problems, texts=sorted(self._texts)
        )

    async def _one(self, cause: Cause) -> None:
        log_progress(cause.text)
        others: set[str] = set()
        try:
            await self._until_silent(cause.alerts)
            async with cause.provoked(self._scene):
                began = time.monotonic()
                await self._until_firing(cause, others)
                fired_after = time.monotonic() - began
            ended = time.monotonic()
            await self._until_silent(cause.alerts)
        except AssertionError as problem:
            self._problems.append(f"{cause.text}: {problem}")
            log_progress(f"NOT: {self._problems[-1]}")
            return
        silent_after = time.monotonic() - ended
        log_progress(
            f"fired after {fired_after:.0f} s, silent {silent_after:.0f} s after its end: {', '.join(cause.alerts)}"
        )
        self._fired.append(
            Fired(
                cause=cause.text,
                alerts=sorted(cause.alerts),
                fired_after=round(fired_after, 1),
                silent_after=round(silent_after, 1),
                others=sorted(others),
            )
        )

    async def _until_firing(self, cause: Cause, others: set[str]) -> None:
        async def fires() -> bool:
            firing = await self._server.firing()
            others.update(firing - cause.alerts)
            return cause.alerts <= firing

        await eventually_true(fires, within=FIRE_SECONDS, what=", ".join(cause.alerts))
        self._texts |= await self._server.texts()

    async def _until_silent(self, alerts: frozenset[str]) -> None:
        async def is_silent() -> bool:
            return alerts.isdisjoint(await self._server.firing())

        await eventually_true(
            is_silent, within=ground.TIMEOUT, what=f"the end of {', '.join(alerts)}"
        )


async def run(wanted: Sequence[Cause]) -> Report:
    """Start all servers, and provoke some causes."""
    LOGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="raybus-alarmed-") as folder:
        work = Path(folder)
        rules = work / "rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": shortened.rules(files.groups())}))
        async with ground.started(work, LOGS, log_progress, rules=rules) as found:
            setup = await _prepared(found)
            log_progress("all serve")
            return await Run(setup).execute(wanted)


async def _prepared(found: Ground) -> AlarmSetup:
    kube = found.stack.kube
    demo, silent = Demo(kube, "demo"), "silent"
    await kube.create(RAY_SERVICE, BACKGROUND, objects.a_service(silent, interval=None))
    await demo.begin()
    await objects.until_served(kube, silent, within=ground.TIMEOUT)
    await ground.until(found.server, "count(raybus_partitions_held) by (controller)", count=3)

    async def is_calm() -> bool:
        return not await found.server.standing()

    await eventually_true(is_calm, within=ground.TIMEOUT, what="a moment without an alert")
    return AlarmSetup(ground=found, demo=demo, silent=silent)


def main() -> None:
    """Enter the network of our own and print what was found."""
    named = set(sys.argv[1:])
    if unknown := named - {each["alert"] for each in files.alerts()}:
        raise SystemExit(
            f"alarmed: there is no alert {', '.join(sorted(unknown))}; deploy/monitoring/rules.yaml names them"
        )
    isolate("integration.monitoring.alarmed")
    wanted = [each for each in CAUSES if not named or each.alerts & named]
    print_result(asyncio.run(run(wanted)))


if __name__ == "__main__":
    main()
