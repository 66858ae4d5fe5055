"""A one-node Kubernetes with every image that the tests need, for the length of a `with` block."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from localcluster import driver
from localcluster.demo import demo_cluster
from localcluster.driver import Record
from localcluster.settings import Settings


@contextmanager
def cleaned_up(*command: str, environment: Mapping[str, str] = {}) -> Generator[None]:
    """Have a command run if this process ends within the block, however it does: what it is to end outlives it, as nodes do."""
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
def running(prefix: str, *, more_images: Sequence[str] = ()) -> Generator[Record]:
    """Bring a cluster with a gateway up, named after a prefix, and take it down, whatever happens."""
    settings = Settings.from_environment()
    name = settings.layout(None).name.replace("raybus", prefix)
    archives = asyncio.run(demo_cluster.prepare("auto", gateway=True, more_images=more_images))
    with cleaned_up(*removal(name)):
        try:
            demo_cluster.start_cluster("auto", name, None, gateway=demo_cluster.Gateway.NOW)
            demo_cluster.load_images(archives, name)
            known = driver.read(settings.layout(name))
            assert known is not None
            yield known
        finally:
            demo_cluster.remove_cluster(name)
