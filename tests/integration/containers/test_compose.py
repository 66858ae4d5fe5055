"""docker-compose.yml as a user runs it: up, used, killed part by part, scaled, down.

The tests share one installation, and run in their order.
"""

import asyncio
import subprocess
import sys
from itertools import chain

import msgspec
import pytest

from common.bus.subjects import PARTITIONS
from raybus_cli.doctor.check import Check, CheckState
from support.waiting import eventually_true

from .conftest import PARTS, Installation, Users

pytestmark = [pytest.mark.integration]

REPLICAS = 3


async def test_up_waits_until_raybus_reconciles(installation: Installation, users: Users) -> None:
    done = await asyncio.to_thread(installation.up)
    assert done.returncode == 0, done.stderr
    assert set(installation.health().values()) == {"healthy", "running"}
    assert len(installation.health()) == len(PARTS)
    await users.until_served("first", within=30.0)


def test_doctor_reports_no_failure(installation: Installation) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "raybus_cli.main", "doctor", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    checks = msgspec.json.decode(done.stdout, type=list[Check])
    assert [check for check in checks if check.state is CheckState.FAILED] == []
    assert done.returncode == 0
    text = next(check.text for check in checks if check.name == "installation")
    assert text == "outside the cluster, with Leases in namespace default"


@pytest.mark.parametrize("part", PARTS)
async def test_a_killed_container_recovers(
    installation: Installation, users: Users, part: str
) -> None:
    before = installation.started_at(part)
    await asyncio.to_thread(installation.crash, part)
    await users.until_served(f"without-{part}", within=90.0)

    async def is_well() -> bool:
        return installation.started_at(part) > before and set(installation.health().values()) == {
            "healthy",
            "running",
        }

    await eventually_true(is_well, within=60.0, what=f"the health of {part}")


async def test_replicas_divide_the_partitions(installation: Installation, users: Users) -> None:
    scaled = ("--no-recreate", "--scale", f"cluster-reconciler={REPLICAS}")
    done = await asyncio.to_thread(installation.up, *scaled)
    assert done.returncode == 0, done.stderr

    async def are_divided() -> bool:
        held = await users.read_partitions("cluster-reconciler")
        return (
            len(held) == REPLICAS
            and all(held)
            and sum(map(len, held)) == len(set(chain(*held))) == PARTITIONS
        )

    await eventually_true(are_divided, what="a division among the replicas")
    await users.until_served("scaled")


def test_down_leaves_nothing(installation: Installation) -> None:
    assert installation.list_leftovers()
    installation.compose.stop()
    assert installation.list_leftovers() == []


async def test_up_does_not_succeed_without_the_api_server(installation: Installation) -> None:
    await installation.control_plane.stop_api_server()
    done = await asyncio.to_thread(installation.up, "--wait-timeout", "20")
    assert done.returncode != 0
    assert "not healthy after 20s" in done.stderr
