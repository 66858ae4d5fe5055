"""Contour with Envoy, for the one Gateway that its configuration names.

Contour's provisioner would start Contour and Envoy in pods instead.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import yaml

from localcluster import binaries, processes, settings
from raybus_cli import child_processes
from support.gateways.program import (
    ADDRESS,
    GatewayGround,
    GatewayProgram,
    build_class,
    children,
    find_envoy,
)
from support.servers.programs import prepared


@asynccontextmanager
async def _start(program: GatewayProgram, ground: GatewayGround) -> AsyncGenerator[None]:
    contour = str(prepared(binaries.CONTOUR))
    configuration, bootstrap = ground.work / "contour.yaml", ground.work / "envoy.json"
    gateway = {"namespace": ground.namespace, "name": ground.gateway}
    configuration.write_text(yaml.safe_dump({"gateway": {"gatewayRef": gateway}}))
    async with ground.control_plane.api() as api:
        await api.apply(build_class(program.name, program.controller_name))
    xds, health, metrics, debug, stats = child_processes.find_free_ports(5)
    await processes.run_checked(
        "writing Envoy's bootstrap",
        [
            contour,
            "bootstrap",
            str(bootstrap),
            f"--xds-address={ADDRESS}",
            f"--xds-port={xds}",
            f"--admin-address={ground.work / 'envoy.sock'}",
            f"--resources-dir={ground.work / 'envoy-resources'}",
        ],
    )
    async with children(ground) as started:
        started.start(
            "contour",
            [
                contour,
                "serve",
                f"--config-path={configuration}",
                f"--kubeconfig={ground.control_plane.kubeconfig}",
                "--disable-leader-election",
                f"--ingress-status-address={ADDRESS}",
                "--insecure",
                f"--xds-address={ADDRESS}",
                f"--xds-port={xds}",
                f"--health-address={ADDRESS}",
                f"--health-port={health}",
                f"--http-address={ADDRESS}",
                f"--http-port={metrics}",
                f"--debug-http-address={ADDRESS}",
                f"--debug-http-port={debug}",
                f"--stats-address={ADDRESS}",
                f"--stats-port={stats}",
            ],
        )
        started.start(
            "envoy",
            [
                find_envoy(),
                "--config-path",
                str(bootstrap),
                "--service-cluster",
                "contour",
                "--service-node",
                "envoy",
                "--concurrency",
                "1",
                "--log-level",
                "warning",
            ],
        )
        yield


CONTOUR: Final = GatewayProgram(
    name="contour",
    version=settings.CONTOUR,
    data_plane="Envoy",
    programs=(binaries.CONTOUR, binaries.CONTOUR_CRDS),
    crds=(binaries.CONTOUR_CRDS,),
    controller_name="projectcontour.io/gateway-controller",
    port=8080,
    start=_start,
)
