"""Traefik, which is controller and data plane in one process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from localcluster import binaries, settings
from support.gateways.program import ADDRESS, GatewayGround, GatewayProgram, build_class, children
from support.servers.programs import prepared


@asynccontextmanager
async def _start(program: GatewayProgram, ground: GatewayGround) -> AsyncGenerator[None]:
    access, authority = ground.control_plane.access, ground.work / "ca.crt"
    authority.write_bytes(access.ca)
    async with ground.control_plane.api() as api:
        await api.apply(build_class(program.name, program.controller_name))
    provider = "--providers.kubernetesgateway"
    async with children(ground) as started:
        started.start(
            "traefik",
            [
                str(prepared(binaries.TRAEFIK)),
                f"--entrypoints.web.address={ADDRESS}:{program.port}",
                f"{provider}=true",
                f"{provider}.endpoint={access.server}",
                f"{provider}.token={access.token}",
                f"{provider}.certauthfilepath={authority}",
                f"{provider}.statusaddress.ip={ADDRESS}",
                "--log.level=INFO",
                "--global.checknewversion=false",
                "--global.sendanonymoususage=false",
            ],
        )
        yield


TRAEFIK: Final = GatewayProgram(
    name="traefik",
    version=settings.TRAEFIK,
    data_plane="Traefik",
    programs=(binaries.TRAEFIK, binaries.GATEWAY_API_OF_TESTS),
    crds=(binaries.GATEWAY_API_OF_TESTS,),
    controller_name="traefik.io/gateway-controller",
    port=80,
    start=_start,
)
