"""The servers of a run: API server, etcd, controllers and NATS with users and TLS are real.

Pods, Ray heads and, unless the caller starts one, the gateway are simulated.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec

from bench import heads
from bench.heads import Heads
from chaos import audit_trail
from common.api.opaque import Body
from common.feature_gates import FeatureGate
from common.kube import resources
from common.kube.client import KubeClient
from common.ray import ports
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from localcluster.control_plane import ControlPlane
from raybus_cli.up.programs import BusAccess
from support.servers.fleet import NAMESPACE, Fleet, Ground, Observed, streams_kept
from support.servers.gateway_controller import GatewayController
from support.servers.nats import NatsServer
from support.servers.programs import prepared
from support.servers.relayed import secured_nats

CRDS: Final = Path(__file__).parents[3] / "deploy" / "crds"
BACKGROUND: Final = "background"
"""The namespace of the simulated users' objects."""
PROBES: Final = "probes"
USER_AGENT: Final = "chaos"
ROUTES: Final = frozenset({"Gateway", "HTTPRoute", "GRPCRoute"})


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """The running servers and simulated parts of a chaos run, and the fleet of services."""

    control_plane: ControlPlane
    kube: KubeClient
    nats: NatsServer
    observed: Observed
    """The NATS server as a scrape target for metrics."""
    fleet: Fleet
    heads: Heads


@asynccontextmanager
async def started(
    work: Path,
    logs: Path,
    emit: Callable[[str], None],
    *,
    is_audited: bool = True,
    gateway_crds: Sequence[Path] = (),
    metrics_port: int = ports.METRICS,
) -> AsyncGenerator[Stack]:
    """Start all servers, yield them as a `Stack`, and stop them after the `with` block.

    The stack's `fleet`, which runs raybus's services, is still empty. `logs` is the folder of
    the processes' logs. `is_audited` adds the bodies of requests to the audit log. With
    `gateway_crds`, folders of CRDs, no gateway is simulated.
    """
    observed = Observed.on_free_ports("nats-0")
    async with (
        heads.played(metrics_port=metrics_port) as played,
        ControlPlane.started(
            work / "cp",
            crds=CRDS,
            scheduler=True,
            kwok_nodes=1,
            completes_jobs=False,
            audit=is_audited,
        ) as control_plane,
        secured_nats(work / "nats", monitor=observed.monitor) as secured,
    ):
        if is_audited:
            await _configure_audit(control_plane)
        await _add_routes(control_plane, gateway_crds)
        kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent=USER_AGENT)
        bus = BusAccess(url=secured.server.url, credentials=work / "nats")
        ground = Ground(
            access=control_plane.access,
            bus=bus,
            work=work,
            log_dir=logs,
            gates={FeatureGate.CRON_JOB: True},
        )
        try:
            for name in (NAMESPACE, BACKGROUND, PROBES):
                await add_namespace(kube, name)
            kept = streams_kept(bus, logs, emit, observed=observed)
            async with kept, AsyncExitStack() as simulated, Fleet(ground, emit).manned() as fleet:
                if not gateway_crds:
                    await simulated.enter_async_context(_simulate_gateways(kube))
                yield Stack(
                    control_plane=control_plane,
                    kube=kube,
                    nats=secured.server,
                    observed=observed,
                    fleet=fleet,
                    heads=played,
                )
        finally:
            await kube.close()


async def add_namespace(kube: KubeClient, name: str) -> None:
    """Create a namespace."""
    body: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await kube.create(resources.NAMESPACE, None, body)


async def _configure_audit(control_plane: ControlPlane) -> None:
    """Make the API server write the bodies of requests and answers to the audit log.

    The default policy omits them.
    """
    (control_plane.audit_log.parent / "audit.yaml").write_text(audit_trail.POLICY)
    await control_plane.restart_api_server()


async def _add_routes(control_plane: ControlPlane, folders: Sequence[Path]) -> None:
    """Install the CRDs in these folders; without folders, those of the simulated gateway."""
    kind = "CustomResourceDefinition"
    definitions = [manifest for folder in folders for manifest in read_manifests(folder, kind=kind)]
    if not folders:
        definitions = [
            manifest
            for manifest in read_manifests(prepared(GATEWAY_CRDS))
            if manifest["spec"]["names"]["kind"] in ROUTES
        ]
    async with control_plane.api() as api:
        await api.apply_definitions(definitions)


@asynccontextmanager
async def _simulate_gateways(kube: KubeClient) -> AsyncGenerator[None]:
    """Simulate the gateway controller of two namespaces during the `with` block."""
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(GatewayController(kube, namespace).run())
            for namespace in (BACKGROUND, PROBES)
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
