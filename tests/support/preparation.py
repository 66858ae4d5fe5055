"""Builds and installs all that test suites need, with progress, before pytest begins; what is there
already takes no time.

raybus-dev prepare test         # what `make test` needs
raybus-dev prepare long-running # and what the long-running tests need
raybus-dev prepare third-party  # what `make test` needs, and the controllers that users run beside raybus
raybus-dev prepare containers   # what `make test` needs, the images of raybus, a Docker engine and Docker Compose
raybus-dev prepare gateways     # what `make test` needs, and the Gateway controllers; GATEWAY=contour: only this one
raybus-dev prepare e2e          # what `make test` and a node with real Ray need
raybus-dev prepare e2e-all      # and what runs beside Ray in the tests on demand
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Final

from localcluster import binaries
from localcluster.demo import demo_cluster
from localcluster.errors import ClusterError
from localcluster.images import builder, debian
from localcluster.progress import Progress, format_duration
from localcluster.settings import LocalSettings
from support.gateways import catalogue
from support.servers import browser, docker, prometheus

PROGRAMS: Final = (
    *binaries.CONTROL_PLANE,
    "kube-scheduler",
    *binaries.SIMULATED_NODES,
    "kubectl",
    binaries.GATEWAY_CRDS,
)
PACKAGES: Final[debian.Packages] = {
    **browser.PACKAGES,
    "iproute2": ("ip",),
    "nftables": ("nft",),
    "util-linux": ("unshare",),
}
NODE_IMAGES: Final = ("pause", "envoy", "envoy-gateway")
E2E_IMAGES: Final = (*demo_cluster.IMAGES, "redis")


async def for_tests(progress: Progress) -> None:
    """Install what tests on real servers without pods need: the programs, a browser, Prometheus."""
    async with asyncio.TaskGroup() as group:
        group.create_task(binaries.obtain(PROGRAMS, LocalSettings.from_environment(), progress))
        group.create_task(asyncio.to_thread(_debian, progress))


async def for_long_running(progress: Progress) -> None:
    """Install also what the long-running tests need: the tools of a user."""
    await for_tests(progress)
    await binaries.obtain(binaries.TOOLS, LocalSettings.from_environment(), progress)


async def for_third_party(progress: Progress) -> None:
    """Install also what the tests with other controllers need: cert-manager, Kueue and an S3 store."""
    await for_tests(progress)
    await binaries.obtain(binaries.THIRD_PARTY, LocalSettings.from_environment(), progress)


async def for_containers(progress: Progress) -> None:
    """Install also what the tests of docker-compose.yml need, and a Docker engine unless one
    answers.
    """
    await for_tests(progress)
    async with asyncio.TaskGroup() as group:
        settings = LocalSettings.from_environment()
        group.create_task(binaries.obtain([binaries.DOCKER_COMPOSE], settings, progress))
        group.create_task(asyncio.to_thread(docker.install, progress))
        images = demo_cluster.RAYBUS_IMAGES
        group.create_task(asyncio.to_thread(builder.ensure, images, progress=progress))


async def for_gateways(progress: Progress) -> None:
    """Install also the Gateway controllers, or the one that `GATEWAY` names."""
    await for_tests(progress)
    names = [name for program in catalogue.selected(os.environ) for name in program.programs]
    await binaries.obtain(list(dict.fromkeys(names)), LocalSettings.from_environment(), progress)


async def for_e2e(progress: Progress) -> None:
    """Install also what a whole node needs: its programs and packages, and all images."""
    await for_tests(progress)
    async with asyncio.TaskGroup() as group:
        names = [*binaries.NODE, *binaries.GATEWAY]
        programs = group.create_task(
            binaries.obtain(names, LocalSettings.from_environment(), progress)
        )
        group.create_task(asyncio.to_thread(debian.install, binaries.PACKAGES, progress))
        group.create_task(asyncio.to_thread(builder.ensure, E2E_IMAGES, progress=progress))
    await asyncio.to_thread(
        builder.ensure, NODE_IMAGES, progress=progress, files=programs.result().paths
    )


async def for_e2e_all(progress: Progress) -> None:
    """Install also what the end-to-end tests on demand need: cert-manager, an S3 store and Helm."""
    await for_e2e(progress)
    names = [*binaries.BESIDE_RAY, binaries.HELM]
    await binaries.obtain(names, LocalSettings.from_environment(), progress)


def _debian(progress: Progress) -> None:
    debian.install(PACKAGES, progress)
    prometheus.install(progress)


SUITES: Final[dict[str, Callable[[Progress], Coroutine[None, None, None]]]] = {
    "test": for_tests,
    "long-running": for_long_running,
    "third-party": for_third_party,
    "containers": for_containers,
    "gateways": for_gateways,
    "e2e": for_e2e,
    "e2e-all": for_e2e_all,
}


def main(arguments: list[str]) -> int:
    """Install what a suite needs; return the exit code."""
    if len(arguments) != 1 or arguments[0] not in SUITES:
        sys.stderr.write(f"name one of {', '.join(SUITES)}\n")
        return 2
    began = time.monotonic()
    problems: list[str] = []
    try:
        asyncio.run(SUITES[arguments[0]](Progress.to_stderr()))
    except* ClusterError as group:
        problems = [f"error: {each}\n" for each in group.exceptions]
    if problems:
        sys.stderr.writelines(problems)
        return 1
    sys.stderr.write(
        f"all that the tests need is there ({format_duration(time.monotonic() - began)})\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
