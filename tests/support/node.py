"""A one-node Kubernetes with every image that the tests need, for the duration of a `with` block."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from localcluster import driver
from localcluster.demo import demo_cluster
from localcluster.driver import ClusterRecord
from localcluster.settings import LocalSettings


@contextmanager
def cleaned_up(*command: str, environment: Mapping[str, str] = {}) -> Generator[None]:
    """Run a command if this process ends within the block, in whatever way, because the thing to
    remove outlives the process, as nodes do.
    """
    script = (
        'cat > /dev/null; exec "$@"'  # its standard input is open for as long as this process lives
    )
    guard = subprocess.Popen(
        ["sh", "-c", script, "sh", *command],
        stdin=subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.communicate()


def removal(name: str) -> list[str]:
    """Return the command that removes a node."""
    return [sys.executable, "-m", "localcluster", "down", "--purge", "--name", name]


@contextmanager
def running(
    prefix: str,
    *,
    more_images: Sequence[str] = (),
    archives: Sequence[Path] = (),
    gateway: bool = True,
) -> Generator[ClusterRecord]:
    """Start a cluster whose name begins with a prefix, and remove it in any case.

    The node gets the images of a user, `more_images` by their targets, and `archives`.
    """
    settings = LocalSettings.from_environment()
    name = settings.layout(None).name.replace("raybus", prefix)
    images = asyncio.run(demo_cluster.prepare("auto", gateway=gateway, more_images=more_images))
    timing = demo_cluster.GatewayTiming.NOW if gateway else demo_cluster.GatewayTiming.NONE
    with cleaned_up(*removal(name)):
        try:
            demo_cluster.start_cluster("auto", name, None, gateway=timing)
            demo_cluster.load_images([*images, *archives], name)
            known = driver.read(settings.layout(name))
            assert known is not None
            yield known
        finally:
            demo_cluster.remove_cluster(name)
