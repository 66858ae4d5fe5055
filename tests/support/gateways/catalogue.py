"""The Gateway controllers that `make e2e-gateways` tries."""

from collections.abc import Mapping
from typing import Final

from localcluster.errors import ClusterError
from support.gateways.contour import CONTOUR
from support.gateways.envoy_gateway import ENVOY_GATEWAY
from support.gateways.istio import ISTIO
from support.gateways.program import GatewayProgram
from support.gateways.traefik import TRAEFIK

GATEWAYS: Final[dict[str, GatewayProgram]] = {
    program.name: program for program in (CONTOUR, TRAEFIK, ISTIO, ENVOY_GATEWAY)
}


def selected(environment: Mapping[str, str]) -> list[GatewayProgram]:
    """Return the controller that the variable `GATEWAY` names; without it, all."""
    name = environment.get("GATEWAY")
    if not name:
        return list(GATEWAYS.values())
    if name not in GATEWAYS:
        raise ClusterError(f"GATEWAY={name}: choose one of {', '.join(GATEWAYS)}")
    return [GATEWAYS[name]]
