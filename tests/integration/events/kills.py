"""Upgrades while processes are killed, with real services, API server and NATS.

    cd tests && python -m integration.events.kills --upgrades 50 --seed 1

Pods and heads are simulated. Half of the RayServices move their traffic in steps, if this machine
has the CRDs of the Gateway API. No consumer is connected meanwhile: the external consumer comes at
the end, and reads the mirror of its own account. The published events are printed on standard
output as JSON.
"""

import argparse
import asyncio
import contextlib
import random
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec

from chaos import stack
from chaos.stack import BACKGROUND, Stack
from common import errors
from common.api.opaque import Body, Json
from common.bus import subjects
from common.bus.consumer import StreamSource, consume, from_sequence
from common.bus.nats import StoredMessage, connect
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from integration.events.reported import Run, Upgraded
from integration.isolated import isolate, log_progress, print_result
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)
from support.servers.relayed import Secured
from support.waiting import eventually_true

SERVICES: Final = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)
REST: Final = {
    "service-reconciler": 4.0,
    "traffic-manager": 8.0,
    "job-reconciler": 8.0,
    "nats": 15.0,
    "watcher": 60.0,
}
"""Minimum seconds between two kills of the same process.

A restarted watcher, for example, waits for the Lease of its predecessor."""
LULL: Final = (0.2, 3.0)
"""Shortest and longest time in seconds between two kills."""
TIMEOUT: Final = 600.0
ENVIRONMENTS: Final = 5
"""Number of RayServices that are upgraded side by side."""
STEPS: Final[Json] = a_strategy(surge=50, step=25, interval=1)


class Environment:
    """One RayService and its upgrades."""

    def __init__(self, found: Stack, number: int) -> None:
        self._kube = found.kube
        self.name = f"s{number}"
        self._in_steps = number % 2 == 1
        self._version = 0

    async def begin(self) -> None:
        """Create the RayService, and wait until it serves."""
        strategy: Json = {"upgradeStrategy": STEPS} if self._in_steps else {}
        body = a_ray_service(name=self.name, **strategy, **self._spec())
        body["metadata"] = {"name": self.name}
        await self._kube.create(RAY_SERVICE, BACKGROUND, body)
        await eventually_true(self._serves, within=TIMEOUT, what=f"{self.name} to serve")

    async def upgrade(self) -> Upgraded:
        """Change its spec, and wait until the old cluster is gone."""
        old = await self._active()
        self._version += 1
        changed = self._spec()
        spec = {"rayClusterConfig": changed["config"], "serveConfigV2": changed["serve"]}
        await self._kube.patch(
            RAY_SERVICE, BACKGROUND, self.name, PatchRequest(body={"spec": spec})
        )

        async def is_over() -> bool:
            with contextlib.suppress(
                errors.Retryable
            ):  # the API server of a busy machine is late at times
                return await self._active() not in {"", old} and len(await self._clusters()) == 1
            return False

        await eventually_true(
            is_over, within=TIMEOUT, what=f"upgrade {self._version} of {self.name}"
        )
        return Upgraded(service=self.name, old=old, new=await self._active())

    def _spec(self) -> dict[str, Any]:
        groups = [a_group(minReplicas=1, replicas=1)] if self._in_steps else []
        scaled: Json = {"enableInTreeAutoscaling": True} if self._in_steps else {}
        config: Body = a_cluster_config(
            *groups, image=f"rayproject/ray:2.{50 + self._version}.0", **scaled
        )
        return {
            "config": {**config, "workerGroupSpecs": groups},
            "serve": a_serve_config(message=f"v{self._version}"),
            "rayClusterDeletionDelaySeconds": 0,
        }

    async def _serves(self) -> bool:
        with contextlib.suppress(errors.Retryable):
            return (await self._status()).get("serviceStatus") == "Running"
        return False

    async def _active(self) -> str:
        return (await self._status()).get("activeServiceStatus", {}).get("rayClusterName", "")

    async def _status(self) -> Json:
        body = msgspec.json.decode(await self._kube.get(RAY_SERVICE, BACKGROUND, self.name))
        return body.get("status", {})

    async def _clusters(self) -> list[str]:
        listed = msgspec.json.decode(await self._kube.list(RAY_CLUSTER, BACKGROUND))["items"]
        names = [each["metadata"]["name"] for each in listed]
        return [each for each in names if each.startswith(f"{self.name}-")]


async def run(options: argparse.Namespace, work: Path) -> Run:
    """Carry out the run."""
    rng = random.Random(options.seed)
    began = time.monotonic()
    async with stack.started(work, options.logs, log_progress) as found:
        for service in SERVICES:
            found.fleet.scale(service, 1)
        for each in found.fleet.all():
            await eventually_true(each.is_ready, within=TIMEOUT, what=f"{each.name} to be ready")
        environments = [
            Environment(found, number) for number in range(min(ENVIRONMENTS, options.upgrades))
        ]
        async with asyncio.TaskGroup() as group:
            for each in environments:
                group.create_task(each.begin())
        log_progress(f"{len(environments)} services serve; {options.upgrades} upgrades begin")
        done: list[Upgraded] = []
        killed: Counter[str] = Counter()
        async with asyncio.TaskGroup() as group:
            killer = group.create_task(_kill(found, rng, killed))
            async with asyncio.TaskGroup() as users:
                for number, environment in enumerate(environments):
                    count = len(range(number, options.upgrades, len(environments)))
                    users.create_task(_upgrade(environment, count, done))
            killer.cancel()
        log_progress(f"all upgrades are over after {sum(killed.values())} deaths")
        found.nats.thaw()
        events = await _read(Secured(found.nats, work / "nats"), len(done))
    seconds = round(time.monotonic() - began)
    return Run(upgrades=done, killed=dict(killed), events=events, seconds=seconds)


async def _upgrade(environment: Environment, count: int, done: list[Upgraded]) -> None:
    for _ in range(count):
        done.append(await environment.upgrade())
        log_progress(f"{len(done)}: {done[-1].service} is upgraded")


async def _kill(found: Stack, rng: random.Random, killed: Counter[str]) -> None:
    """Kill processes that are drawn at random, until cancelled.

    Each process restarts by itself, NATS after a moment. A process that has not restarted yet is
    left alone, so that a slow machine sees as many kills per upgrade as a fast one.
    """
    alone_until = dict.fromkeys(REST, 0.0)
    while True:
        await asyncio.sleep(rng.uniform(*LULL))
        victim = rng.choice(list(REST))
        needed = list(found.fleet.all()) if victim == "nats" else found.fleet.of(victim)
        if time.monotonic() < alone_until[victim] or not all(
            [await each.is_ready() for each in needed]
        ):
            continue
        alone_until[victim] = time.monotonic() + REST[victim]
        killed[victim] += 1
        log_progress(f"{victim} dies")
        if victim != "nats":
            needed[0].send_signal(signal.SIGKILL)
            continue
        found.nats.kill()
        try:
            await asyncio.sleep(0.3)
        finally:
            found.nats.start()


async def _read(secured: Secured, count: int) -> list[str]:
    """Read the mirror from its beginning until all upgrades have ended.

    This is what an external consumer does that was away all the time.
    """
    reported: list[str] = []

    def take(stored: StoredMessage) -> None:
        reported.append(stored.payload.decode())

    def has_ended() -> bool:
        return len({each for each in reported if ".completed.v1" in each}) >= count

    async with connect(secured.settings("subscriber")) as outside:
        await outside.session()
        source = StreamSource(
            stream=subjects.EVENTS_STREAM,
            filter=subjects.ALL_EVENTS,
            name="away",
            begin=from_sequence(1),
        )
        async with consume(outside, source, take=take, read=lambda: None):
            for _ in range(600):
                if has_ended():
                    break
                await asyncio.sleep(0.1)
            await asyncio.sleep(1.0)
    return reported


def main() -> None:
    """Enter a network of our own and print what was published."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--upgrades", type=int, default=50, help="how many upgrades (50)")
    parser.add_argument("--seed", type=int, default=1, help="what deaths are drawn from (1)")
    parser.add_argument(
        "--logs", type=Path, required=True, metavar="DIR", help="where the logs of the processes go"
    )
    options = parser.parse_args()
    isolate("integration.events.kills")
    with tempfile.TemporaryDirectory(prefix="raybus-kills-") as work:
        print_result(asyncio.run(run(options, Path(work))))


if __name__ == "__main__":
    main()
