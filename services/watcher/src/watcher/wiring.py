"""Build the parts of the watcher and run them."""

import asyncio
from secrets import token_hex

import msgspec

from common import feature_gates
from common.api.opaque import Json
from common.bus import feed
from common.bus.nats import Bus
from common.clock import SystemClock
from common.feature_gates import Gates
from common.kube.client import KubeClient
from common.kube.installation import Installation
from common.observability import health
from common.settings import Settings, identity_of
from watcher.adapters.bus import NatsStream
from watcher.adapters.lease import Leadership, ReachCheck
from watcher.session import Sessions


async def serve(settings: Settings) -> None:
    """Run the watcher until cancelled: publish while it holds the Lease, otherwise stand by."""
    kube = await KubeClient.connect(
        kubeconfig=settings.kubeconfig, user_agent=f"raybus-{settings.service}"
    )
    bus = Bus(settings)
    installation = Installation(kube, settings.namespace)
    stream = NatsStream(bus, installation, may_write=lambda: leadership.has_valid_lease)
    reach = ReachCheck(stream)
    held_in = settings.lease_namespace or settings.namespace
    leadership = Leadership(kube, SystemClock(), reach, namespace=held_in, me=identity_of(settings))
    namespaces = settings.watch_namespaces
    sessions = Sessions(
        kube, stream, namespaces, new_epoch=lambda: feed.new_epoch(installation.known, token_hex(8))
    )

    def ready() -> str | None:
        unwell = bus.problem or reach.problem
        return (
            unwell if leadership.standing_by else leadership.problem or unwell or sessions.problem
        )

    def note() -> str | None:
        return f"standing by: {leadership.standing_by}" if leadership.standing_by else None

    try:
        await _check_gates(kube, settings.feature_gates)
        async with asyncio.TaskGroup() as group:
            group.create_task(
                health.serve(
                    settings.http_port,
                    live=lambda: sessions.stuck,
                    ready=ready,
                    note=note,
                    port_file=settings.http_port_file,
                )
            )
            group.create_task(bus.run())
            group.create_task(reach.run())
            while True:
                await leadership.lead(sessions.run, is_complete=lambda: sessions.problem is None)
    finally:
        await kube.close()


async def _check_gates(kube: KubeClient, gates: Gates) -> None:
    """Raise `InvalidSpec` if the API server is too old for a feature gate, as in KubeRay."""
    if gates & feature_gates.MIN_KUBERNETES.keys():
        answer: Json = msgspec.json.decode(await kube.request("GET", "/version"))
        feature_gates.check_kubernetes(gates, str(answer.get("gitVersion", "")))
