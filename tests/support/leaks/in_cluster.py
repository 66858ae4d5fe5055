"""The whole check against raybus as it is installed in a cluster: keys from its Secrets, NATS through kubectl's port-forward."""

import base64
import re
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from common.kube.client import Kube
from common.kube.resources import SECRET
from raybus_cli.demo.kubectl import Kubectl
from support.leaks import check, reading
from support.leaks.reading import As
from support.leaks.scan import Leak
from support.leaks.sought import Secret

NAMESPACE: Final = "raybus"
READERS: Final = ("watcher", "subscriber", "provisioner")
FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:([0-9]+)")


async def leaks(kube: Kube, kubectl: Kubectl, *, namespace: str = NAMESPACE) -> list[Leak]:
    """Return what the NATS of a cluster says that it must not."""
    async with _users(kube, kubectl, namespace) as user:
        return await check.leaks(kube, user)


@asynccontextmanager
async def _users(kube: Kube, kubectl: Kubectl, namespace: str) -> AsyncGenerator[As]:
    with tempfile.TemporaryDirectory(prefix="nats-users-") as name:
        folder = Path(name)
        (folder / "users").mkdir()
        for reader in READERS:
            files = await _files(kube, namespace, f"nats-user-{reader}")
            (folder / "users" / f"{reader}.seed").write_bytes(files["seed"])
            (folder / "ca.crt").write_bytes(files["ca.crt"])
        async with kubectl.follow("-n", namespace, "port-forward", "service/nats", ":4222") as lines:
            yield reading.users_of(folder, f"tls://127.0.0.1:{await _port(lines)}")


async def _files(kube: Kube, namespace: str, name: str) -> dict[str, bytes]:
    secret = msgspec.json.decode(await kube.get(SECRET, namespace, name), type=Secret)
    return {file: base64.b64decode(text) for file, text in secret.data.items()}


async def _port(lines: AsyncIterator[str]) -> int:
    async for line in lines:
        if found := FORWARDING.match(line):
            return int(found[1])
    raise AssertionError("kubectl port-forward ended without a word")
