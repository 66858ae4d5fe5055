"""The cluster under the demo: created, and loaded with its images, by the commands that a user would type."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from common import errors
from localcluster import binaries
from localcluster.driver import DriverName, choose
from localcluster.errors import ClusterError
from localcluster.images import builder
from localcluster.progress import Progress
from localcluster.settings import Settings

RAYBUS_IMAGES = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager", "nats")
IMAGES = (*RAYBUS_IMAGES, "ray")


class Cluster(msgspec.Struct, frozen=True, rename="camel"):
    """The result of `raybus cluster up -o json`."""

    name: str
    driver: str
    kubeconfig: Path


class Gateway(StrEnum):
    """The gateway of a cluster that the demo starts; the value is the option of `raybus cluster up`."""

    NONE = "--no-gateway"
    NOW = "--gateway"
    LATER = "--gateway-api"
    """Only the CRDs, for a gateway that is added to the running cluster."""


def gateway_for(*, in_steps: bool, is_kept: bool, wanted: bool) -> Gateway:
    """Return when a demo's cluster gets a gateway: one that is kept has it too, for upgrades in steps that the user tries next.

    The first answer never waits for it. Raises `InvalidSpec` for an upgrade in steps without one.
    """
    if in_steps and not wanted:
        raise errors.InvalidSpec("--no-gateway excludes --strategy incremental, which moves the traffic by a Gateway")
    return Gateway.LATER if wanted and (in_steps or is_kept) else Gateway.NONE


def start_cluster(
    driver: str,
    name: str | None,
    kubeconfig: Path | None,
    *,
    gateway: Gateway = Gateway.NONE,
    images: Sequence[Path] = (),
) -> Cluster:
    """Create the cluster, or use the running one; a new node loads the images while it starts."""
    options = [gateway, *([Gateway.NONE] if gateway is Gateway.LATER else ())]
    loads = [option for image in images for option in ("--load", str(image))]
    command = ["cluster", "up", "--driver", driver, *options, *loads, *_named(name), "-o", "json"]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    return msgspec.json.decode(_raybus(command), type=Cluster, dec_hook=_path)


async def prepare(driver: str, *, gateway: bool = False, more_images: Sequence[str] = ()) -> list[Path]:
    """Build, at the same time, the node's programs and the images that are not in the cache; return the images.

    Programs keep the processors busy, images mostly the network and the disk.
    """
    progress = Progress.to_stderr()
    programs = [*binaries.NODE, *(binaries.GATEWAY if gateway else ())]
    wanted = (*IMAGES, *more_images)
    try:
        async with asyncio.TaskGroup() as group:
            if await _builds_programs(driver):
                group.create_task(binaries.obtain(programs, Settings.from_environment(), progress))
            images = group.create_task(asyncio.to_thread(builder.ensure, (*wanted, "pause"), progress=progress))
    except* ClusterError as problems:
        raise errors.Rejected(str(problems.exceptions[0])) from problems
    return [archive.path for target, archive in images.result().items() if target in wanted]


async def _builds_programs(driver: str) -> bool:
    if driver == DriverName.AUTO:
        return await choose() is DriverName.BUILT
    return driver == DriverName.BUILT


def load_images(archives: Sequence[Path], name: str | None) -> None:
    """Make the images known to the cluster's node."""
    _raybus(["cluster", "load", *_named(name), *map(str, archives)])


def remove_cluster(name: str | None) -> None:
    """Remove the cluster."""
    _raybus(["cluster", "down", *_named(name)])


def _named(name: str | None) -> list[str]:
    return [] if name is None else ["--name", name]


def _raybus(command: Sequence[str]) -> bytes:
    """Run one of our own commands; its progress goes to the user, its result is returned."""
    done = subprocess.run([sys.executable, "-m", "raybus_cli.main", *command], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise errors.Rejected(f"raybus {' '.join(command[:2])} failed with exit code {done.returncode}")
    return done.stdout


def _path(kind: type[Path], value: str) -> Path:
    return kind(value)
