"""Upgrades of RayServices while all five services are rolled between two builds, on a real API
server and a real NATS.

    cd tests && RAYBUS_EARLIER_CHECKOUT=FOLDER python -m integration.builds.rolled --upgrades 4 --seed 1 --logs DIR

Heads and the gateway are fakes, so no request is sent. What was found stands on standard output as
JSON.
"""

import argparse
import asyncio
import random
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from chaos import stack
from chaos.stack import BACKGROUND
from common.bus.messages import ObjectMessage, ObjectState
from common.kube.resources import RAY_CLUSTER
from integration.events.kills import SERVICES, TIMEOUT, Environment
from integration.isolated import isolate, log_progress, print_result
from support.fakes.api_feed import ApiFeed
from support.fakes.listener import Recorder
from support.servers import builds
from support.servers.builds import THIS
from support.servers.fleet import Fleet
from support.waiting import eventually_true

ENVIRONMENTS: Final = 4
"""RayServices that are upgraded side by side; half of them in steps."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    other_build: str
    upgrades: int
    rolls: int
    clusters: int
    """RayClusters that there ever were."""


class _Clusters(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.made: set[str] = set()

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        super().take(message, trace=trace)
        if isinstance(message, ObjectState):
            self.made.add(message.uid)


async def run(options: argparse.Namespace, work: Path) -> Found:
    """Do it all."""
    other = builds.earlier() or THIS
    clusters, over, done = _Clusters(), asyncio.Event(), 0
    async with stack.started(work, options.logs, log_progress) as found:
        for service in SERVICES:
            found.fleet.scale(service, 1, environment=other.environment)
        for each in found.fleet.all():
            await eventually_true(each.is_ready, within=TIMEOUT, what=f"{each.name} to be ready")
        environments = [Environment(found, number) for number in range(ENVIRONMENTS)]
        async with asyncio.TaskGroup() as group:
            feed = ApiFeed(found.kube, {RAY_CLUSTER.kind: RAY_CLUSTER}, namespace=BACKGROUND)
            watching = group.create_task(feed.follow(0, clusters))
            async with asyncio.TaskGroup() as users:
                for each in environments:
                    users.create_task(each.begin())
            rolling = group.create_task(
                _roll(found.fleet, random.Random(options.seed), other.environment, over)
            )
            async with asyncio.TaskGroup() as users:
                for each in environments:
                    users.create_task(_upgrade(each, options.upgrades))
            done = len(environments) * options.upgrades
            over.set()
            rolls = await rolling
            await asyncio.sleep(2)
            watching.cancel()
    return Found(other_build=other.name, upgrades=done, rolls=rolls, clusters=len(clusters.made))


async def _upgrade(environment: Environment, count: int) -> None:
    for number in range(1, count + 1):
        await environment.upgrade()
        log_progress(f"{environment.name} is upgraded for the {number}. time")


async def _roll(
    fleet: Fleet, rng: random.Random, other: dict[str, str], over: asyncio.Event
) -> int:
    """Roll one service after the other, in any order, to this build and back until all is over; return how often."""
    rolls = 0
    while True:
        for environment in ({}, other):
            for service in rng.sample(SERVICES, len(SERVICES)):
                if over.is_set():
                    return rolls
                await fleet.roll(service, environment)
                rolls += 1
                log_progress(f"{service} is rolled {'back' if environment else 'forward'}")


def main() -> None:
    """Enter a network of our own and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--upgrades", type=int, default=4, help="how many upgrades of each of four RayServices (4)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="what the order of rolls is drawn from (1)"
    )
    parser.add_argument(
        "--logs", type=Path, required=True, metavar="DIR", help="where the logs of the processes go"
    )
    options = parser.parse_args()
    isolate("integration.builds.rolled")
    with tempfile.TemporaryDirectory(prefix="raybus-rolled-") as work:
        print_result(asyncio.run(run(options, Path(work))))


if __name__ == "__main__":
    main()
