"""raybus on a control plane with IPv6 addresses only: API server, Services, NATS and probes."""

import asyncio
import ipaddress
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import msgspec
import pytest

from common.api.opaque import Json
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, SERVICE, Resource
from localcluster import components, control_plane
from localcluster.control_plane import ControlPlane, ControlPlaneOptions
from localcluster.progress import Progress
from localcluster.settings import LocalSettings
from nats_admin import credential_folder
from nats_admin.server_conf import ServerConfig
from raybus_cli import child_processes
from raybus_cli.up import programs
from raybus_cli.up.programs import BusAccess, ChildProgram, ServiceProcess
from support.builders import manifests
from support.manifests import DEPLOY
from support.servers.fleet import streams_kept
from support.servers.nats import binary
from support.servers.process import Process
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]

NAMESPACE = "default"
SERVICES = ("watcher", "cluster-reconciler")


@asynccontextmanager
async def a_control_plane(folder: Path) -> AsyncGenerator[ControlPlane]:
    options = ControlPlaneOptions(crds=DEPLOY / "crds")
    found = await control_plane.obtain(
        options, LocalSettings.from_environment(), Progress.to_stderr()
    )
    running = await control_plane.launch(folder, found, options, host="::1")
    try:
        yield running
    finally:
        await running.stop()


@asynccontextmanager
async def a_nats_server(folder: Path) -> AsyncGenerator[BusAccess]:
    """Run a server with the address that it has in a pod, and reach it by IPv6."""
    (port,) = child_processes.find_free_ports(1)
    server = ServerConfig(
        folder=str(folder), store=str(folder / "jetstream"), port=port, monitoring_port=None
    )
    credential_folder.complete_folder(folder, server, names=["::1"], now=SystemClock().now())
    process = Process()
    with (folder / "nats-server.log").open("ab") as log:
        process.spawn([binary(), "-c", str(folder / "nats-server.conf")], out=log)
    try:
        yield BusAccess(url=f"tls://[::1]:{port}", credentials=folder)
    finally:
        process.end(signal.SIGTERM, within=10.0)


@asynccontextmanager
async def services(kubeconfig: Path, server: str, bus: BusAccess) -> AsyncGenerator[list[int]]:
    """Run two of our services; yield the ports of their probes."""
    options = programs.UpOptions(kubeconfig=kubeconfig, server=server, namespace=NAMESPACE)
    environment = {**os.environ, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE": "true"}
    ports = child_processes.find_free_ports(len(SERVICES))
    children = [
        ChildProgram(
            programs.build_service(
                ServiceProcess(service=name, name=name, identity=name, port=port),
                bus,
                environment=environment,
                options=options,
            ),
            print,
        )
        for name, port in zip(SERVICES, ports, strict=True)
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(child.keep()) for child in children]
        try:
            yield ports
        finally:
            for task in tasks:
                task.cancel()
            await programs.stop(children, timeout=10.0)


async def test_a_ray_cluster_is_made_where_there_is_no_ipv4(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("control-plane", "nats", "logs")]
    for folder in folders:
        folder.mkdir()
    async with (
        a_control_plane(folders[0]) as plane,
        a_nats_server(folders[1]) as bus,
        streams_kept(bus, folders[2], print),
        services(plane.kubeconfig, plane.server, bus) as ports,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        assert plane.server.startswith("https://[::1]:")
        for port in ports:
            for host in ("[::1]", "127.0.0.1"):

                async def is_ready(url: str = f"http://{host}:{port}/readyz") -> bool:
                    try:
                        return (await http.get(url)).is_success
                    except httpx.TransportError:
                        return False

                await eventually_true(is_ready, what=f"the probe of {host}:{port}")
        kube = await KubeClient.connect(kubeconfig=plane.kubeconfig, user_agent="test")
        await kube.create(RAY_CLUSTER, NAMESPACE, manifests.a_ray_cluster("c"))

        async def items(resource: Resource) -> list[Json]:
            answer = await kube.list(resource, NAMESPACE, label_selector="ray.io/cluster=c")
            return msgspec.json.decode(answer)["items"]

        async def has_all() -> bool:
            return bool(await items(POD)) and bool(await items(SERVICE))

        await eventually_true(has_all, what="the pods and the Service of the cluster")
        (service,) = await items(SERVICE)
        address = ipaddress.ip_address(service["spec"]["clusterIP"])
        assert address in ipaddress.ip_network(components.IPV6_SERVICE_RANGE)
        await kube.close()
