"""`<RayService>-gateway`: where the requests of a service come in (spec rayservice §9.1, §9.6; acceptance 39, 87, 88)."""

from typing import Final

from common import names
from common.api.gateway import Gateway
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE
from common.ray import owner
from traffic_manager.resources import grpc_route

LISTENER: Final[Json] = {"name": "http", "protocol": "HTTP", "port": 80}


def build(service: ObjectMeta, *, gateway_class: str, grpc_port: int | None = None) -> Json:
    """Return the Gateway of a RayService; only one that takes gRPC calls has a second listener."""
    return {
        "apiVersion": GATEWAY.api_version,
        "kind": GATEWAY.kind,
        "metadata": {
            "name": names.gateway(service.name),
            "namespace": service.namespace,
            "ownerReferences": owner.reference(service),
        },
        "spec": _spec(gateway_class, grpc_port),
    }


def drift(have: Gateway, *, gateway_class: str, grpc_port: int | None = None) -> str | None:
    """Return why a Gateway must be rewritten; what users and its controller added does not matter."""
    if have.spec.gateway_class_name != gateway_class:
        return f"its class is {have.spec.gateway_class_name or 'not set'} instead of {gateway_class}"
    held = [(each.name, each.protocol, each.port) for each in have.spec.listeners]
    wanted = [(each["name"], each["protocol"], each["port"]) for each in _listeners(grpc_port)]
    return None if held == wanted else "its listeners differ"


def patch(have: Gateway, *, gateway_class: str, grpc_port: int | None = None) -> Json:
    """Return the merge patch that takes a Gateway back to what it should be."""
    return {"metadata": {"resourceVersion": have.metadata.resource_version}, "spec": _spec(gateway_class, grpc_port)}


def takes_grpc(have: Gateway | None) -> bool:
    """Return whether a Gateway has the listener of gRPC calls."""
    return have is not None and any(each.name == grpc_route.LISTENER for each in have.spec.listeners)


def _spec(gateway_class: str, grpc_port: int | None = None) -> Json:
    return {"gatewayClassName": gateway_class, "listeners": _listeners(grpc_port)}


def _listeners(grpc_port: int | None = None) -> list[Json]:
    http = dict(LISTENER)
    if grpc_port is None:
        return [http]
    kinds = [{"group": GRPC_ROUTE.group, "kind": GRPC_ROUTE.kind}]
    own = {"name": grpc_route.LISTENER, "protocol": "HTTP", "port": grpc_port, "allowedRoutes": {"kinds": kinds}}
    return [http, own]
