"""`NATS_CONTAINER=2.11.0` runs the servers of these tests as containers of that version."""

import os
from collections.abc import Generator
from typing import Final

import pytest

from support.servers import nats_containers

CONTAINER: Final = "NATS_CONTAINER"


@pytest.fixture(scope="session", autouse=True)
def nats_servers(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Choose between processes and containers."""
    version = os.environ.get(CONTAINER)
    if not version:
        yield
        return
    with nats_containers.used(tmp_path_factory.mktemp("engine"), version):
        yield
