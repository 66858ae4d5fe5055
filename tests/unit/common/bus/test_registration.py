"""A process registers its key and learns the trusted keys, even if the API server is temporarily
unreachable.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest

from common import errors
from common.bus.access import Registration
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import Resource
from common.settings import Settings
from nats_admin import certificates

CERTIFICATE = certificates.make_ca(now=datetime(2026, 1, 1, tzinfo=UTC)).certificate.decode()
SETTINGS = Settings(
    service="watcher", namespace="raybus", identity="watcher-0", kubeconfig=Path("none")
)


class Maps:
    """The ConfigMaps of one namespace."""

    def __init__(self) -> None:
        self.data: dict[str, dict[str, str | None]] = {"nats-keys-watcher": {}, "nats-servers": {}}
        self.patches = 0
        self.is_away = False

    async def get(self, _resource: Resource, _namespace: str, name: str) -> bytes:
        if self.is_away:
            raise errors.Unavailable("the API server is away")
        if name not in self.data:
            raise errors.NotFound(name)
        return msgspec.json.encode({"data": self.data[name]})

    async def patch(
        self, _resource: Resource, _namespace: str, name: str, patch: PatchRequest
    ) -> None:
        self.patches += 1
        body = msgspec.convert(patch.body, type=dict[str, dict[str, str | None]])
        self.data[name] |= body["data"]

    async def connect(self) -> KubeClient:
        return cast("KubeClient", self)


async def test_a_key_is_registered_once_and_again_when_its_entry_was_removed() -> None:
    maps = Maps()
    maps.data["nats-servers"]["nats-0"] = CERTIFICATE
    registration = Registration(SETTINGS, maps.connect)
    for _ in range(3):
        assert await registration.announce() == CERTIFICATE
    assert (maps.data["nats-keys-watcher"], maps.patches) == ({"watcher-0": registration.public}, 1)

    del maps.data["nats-keys-watcher"]["watcher-0"]
    await registration.announce()
    assert maps.data["nats-keys-watcher"] == {"watcher-0": registration.public}


async def test_a_named_subscriber_registers_among_all_of_them_under_its_name() -> None:
    maps = Maps()
    maps.data |= {"nats-servers": {"nats-0": CERTIFICATE}, "nats-keys-named-subscribers": {}}
    registration = Registration(SETTINGS, maps.connect, named_subscriber="slack")
    await registration.announce()
    assert maps.data["nats-keys-named-subscribers"] == {"slack.watcher-0": registration.public}


async def test_what_was_learned_is_used_while_the_api_server_is_away() -> None:
    maps = Maps()
    maps.data["nats-servers"]["nats-0"] = CERTIFICATE
    registration = Registration(SETTINGS, maps.connect)
    maps.is_away = True
    with pytest.raises(errors.Unavailable, match="the key for NATS cannot be registered"):
        await registration.announce()
    maps.is_away = False
    await registration.announce()
    maps.is_away = True
    assert await registration.announce() == CERTIFICATE


async def test_a_server_that_has_not_registered_yet_is_waited_for() -> None:
    with pytest.raises(errors.Unavailable, match="no NATS server has registered its certificate"):
        await Registration(SETTINGS, Maps().connect).announce()


async def test_a_missing_configmap_is_named() -> None:
    maps = Maps()
    del maps.data["nats-keys-watcher"]
    with pytest.raises(
        errors.NotFound, match="namespace raybus has no ConfigMap nats-keys-watcher"
    ):
        await Registration(SETTINGS, maps.connect).announce()
