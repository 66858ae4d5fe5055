"""A watcher with a wire of its own to NATS, and another one to the API server."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from common import errors
from common.kube import resources
from common.kube.client import KubeClient
from common.kube.resources import Resource
from localcluster import kubeconfig as kubeconfigs
from support.servers.relayed import Secured, Watcher
from support.servers.wire import Wire

KINDS: Final[dict[Resource, str]] = {resources.RAY_CLUSTER: "", resources.SERVICE: "ray.io/cluster"}
"""What tests create and compare, with the selector that the watcher follows it by."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """A watcher and its wires."""

    watcher: Watcher
    to_nats: Wire
    to_api: Wire

    async def metric(self, name: str, labels: str = "") -> float:
        """Return the largest sample of a metric with some text in its labels."""
        _, text = await self.watcher.get("/metrics")
        samples = re.findall(rf"^{name}({{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        return max((float(value) for found, value in samples if labels in found), default=0.0)

    async def leads(self, kube: KubeClient, namespace: str) -> bool:
        try:
            lease = msgspec.json.decode(
                await kube.get(resources.LEASE, namespace, "ray-operator-leader")
            )
        except errors.NotFound:
            return False
        return bool(lease["spec"].get("holderIdentity") == self.watcher.name)


def kubeconfig_through(wire: Wire, kubeconfig: Path, to: Path) -> Path:
    access = kubeconfigs.read_access(kubeconfig)
    return kubeconfigs.write(
        to, "wired", msgspec.structs.replace(access, server=f"https://127.0.0.1:{wire.port}")
    )


@asynccontextmanager
async def replica(
    secured: Secured, kubeconfig: Path, namespace: str, through: Path
) -> AsyncGenerator[Replica]:
    api = urlsplit(kubeconfigs.read_access(kubeconfig).server).port or 443
    async with Wire(secured.server.port).laid() as to_nats, Wire(api).laid() as to_api:
        watcher = Watcher(
            secured,
            kubeconfig_through(to_api, kubeconfig, through),
            namespace,
            nats_url=f"tls://127.0.0.1:{to_nats.port}",
        )
        watcher.start()
        try:
            yield Replica(watcher=watcher, to_nats=to_nats, to_api=to_api)
        finally:
            watcher.kill()
