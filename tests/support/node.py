"""A one-node Kubernetes with every image that the tests need, for the length of a `with` block."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from localcluster import driver
from localcluster.driver import Record
from localcluster.settings import Settings
from raybus_cli.demo import demo_cluster


@contextmanager
def running(prefix: str, *, more_images: Sequence[str] = ()) -> Generator[Record]:
    """Bring a cluster with a gateway up, named after a prefix, and take it down, whatever happens."""
    settings = Settings.from_environment()
    name = settings.layout(None).name.replace("raybus", prefix)
    archives = asyncio.run(demo_cluster.prepare("auto", gateway=True, more_images=more_images))
    try:
        demo_cluster.start_cluster("auto", name, None, gateway=demo_cluster.Gateway.NOW)
        demo_cluster.load_images(archives, name)
        known = driver.read(settings.layout(name))
        assert known is not None
        yield known
    finally:
        demo_cluster.remove_cluster(name)
