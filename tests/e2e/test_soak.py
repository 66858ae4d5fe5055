"""Upgrade after upgrade in steps, under load, while parts of raybus are killed with -9 at random moments; ends with a table.

`make soak SOAK=n SEED=m`. Each upgrade changes the cluster and the Serve config, so a config that is sent to the wrong cluster shows.
"""

import asyncio
import contextlib
import hashlib
import os
import random
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from common import errors
from localcluster.demo import tally
from localcluster.demo.cluster_state import NAMESPACE, DemoState
from localcluster.demo.tally import LoadAnswer, UpgradeWindow
from support import victims
from support.waiting import eventually_true

from . import raybus, upgrade_status
from .conftest import Rig
from .greeter import Greeter, Options, serving_in_steps, settle, show

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.soak]

VICTIMS = ("traffic-manager", "service-reconciler", "watcher", "nats")
POINTS = ("named", "capacity", "share 25", "share 50", "share 75", "promoted")
KILLS = 2
"""Kills per upgrade."""
DEADLINE = 300
"""Seconds that one upgrade may take."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One upgrade."""

    number: int
    kills: str
    requests: int
    failures: list[str]
    clusters: list[str]
    """Every cluster that was seen meanwhile."""
    configs: int
    """How many different Serve configs the active cluster was seen with; 1 is right."""
    times: upgrade_status.Times

    def __str__(self) -> str:
        """Return it as one line of the table."""
        seconds = self.times
        return (
            f"{self.number:3} {self.kills:58} {self.requests:6} {len(self.failures):6} {len(self.clusters):8} "
            f"{self.configs:7} {seconds.ready:6.1f} {seconds.carrying:8.1f} {seconds.moving:6.1f}"
        )


HEADING = f"{'no.':>3} {'killed':58} {'sent':>6} {'failed':>6} {'clusters':>8} {'configs':>7} {'ready':>6} {'carrying':>8} {'moving':>6}"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with upgrades in steps."""
    async with serving_in_steps(rig, Options()) as greeter:
        yield greeter


async def test_upgrades_while_parts_of_raybus_die(rig: Rig, service: Greeter) -> None:
    chance = random.Random(int(os.environ.get("SEED", "1")))
    rows: list[Row] = []
    show(f"\n{HEADING}")
    for number in range(1, 1 + int(os.environ.get("SOAK", "20"))):
        plan = [
            (chance.choice(VICTIMS), chance.choice(POINTS), chance.uniform(0, 2))
            for _ in range(KILLS)
        ]
        row = await one_upgrade(rig, service, number, plan)
        rows.append(row)
        show(row, *row.failures[:20])
    assert [row.number for row in rows if row.failures] == []
    assert [row.number for row in rows if len(row.clusters) != 2] == []
    assert [row.number for row in rows if row.configs != 1] == []


async def one_upgrade(
    rig: Rig, service: Greeter, number: int, plan: list[tuple[str, str, float]]
) -> Row:
    """Upgrade once under load, killing as planned, until the end state is reached."""
    seen: set[str] = set()
    configs: set[str] = set()
    async with asyncio.timeout(DEADLINE):
        async with service.followed() as history, service.under_load(rate=50.0) as answers:
            await settle(answers)
            old = await service.upgrade()
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch(rig, service, old, seen, configs))
                killings = [group.create_task(kill(rig, service, old, *each)) for each in plan]
                new = await service.wait_for_promotion(old)
                await asyncio.wait(killings)
                watching.cancel()
            await settle(answers)
        await eventually_true(
            lambda: raybus.is_well(rig), within=90, what="raybus being well again"
        )
    return Row(
        number=number,
        kills=", ".join(f"{victim} {delay:.1f} s after {point}" for victim, point, delay in plan),
        requests=len(answers),
        failures=failures(answers),
        clusters=sorted(seen),
        configs=len(configs),
        times=upgrade_status.times(history, service.moves, new),
    )


def failures(answers: list[LoadAnswer]) -> list[str]:
    """Return a description of each request that failed or was sent twice."""
    assert tally.count(answers, UpgradeWindow()).requests > 0
    return [str(answer) for answer in answers if answer.failed or answer.retries]


async def kill(rig: Rig, service: Greeter, old: str, victim: str, point: str, delay: float) -> None:
    """Kill one part of raybus some time after a point of the upgrade."""
    await service.wait(point, lambda state: has_reached(state, old, point), within=DEADLINE)
    await asyncio.sleep(delay)
    pod = await raybus.pod_of(rig, victim)
    victims.kill(pod.metadata.uid, raybus.COMMANDS[victim])


def has_reached(state: DemoState, old: str, point: str) -> bool:
    """Return whether an upgrade is at a point or beyond."""
    if state.service is None:
        return False
    pending = state.service.status.pending_service_status
    if state.active != old:
        return True
    match point.split():
        case ["named"]:
            return bool(pending.ray_cluster_name)
        case ["capacity"]:
            return bool(pending.target_capacity)
        case ["share", percent]:
            return (pending.traffic_routed_percent or 0) >= int(percent)
        case _:
            return False


async def watch(rig: Rig, service: Greeter, active: str, seen: set[str], configs: set[str]) -> None:
    """Note every cluster, and every Serve config of the active one, until cancelled."""
    path = f"/api/v1/namespaces/{NAMESPACE}/services/{active}-head-svc:8265/proxy/api/serve/applications/"
    while True:
        state = await service.state()
        seen.update(state.clusters)
        if state.active == active:
            with contextlib.suppress(errors.RaybusError):
                configs.add(config_hash(await rig.kube.request("GET", path)))
        await asyncio.sleep(1)


def config_hash(details: bytes) -> str:
    """Return what differs between Serve configs; the capacity is no part of it."""
    read: dict[str, Any] = msgspec.json.decode(details)
    deployed = {name: each["deployed_app_config"] for name, each in read["applications"].items()}
    return hashlib.sha256(msgspec.json.encode(deployed, order="deterministic")).hexdigest()
