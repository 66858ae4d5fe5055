"""`<RayService>-gateway`: where the requests of a service come in (spec rayservice §9.1, §9.6; acceptance 39, 87, 88)."""

from common import names
from common.api.gateway import Gateway
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE
from common.ray import owner
from traffic_manager.resources.routes import GRPC_LISTENER


def build(service: ObjectMeta, gateway_class: str, grpc_port: int | None) -> Json:
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


def corrected(have: Gateway, gateway_class: str, grpc_port: int | None) -> Json | None:
    """Return the merge patch that restores class and listeners; what users and its controller added does not matter."""
    spec = _spec(gateway_class, grpc_port)
    held = [(each.name, each.protocol, each.port) for each in have.spec.listeners]
    wanted = [(each["name"], each["protocol"], each["port"]) for each in spec["listeners"]]
    if (have.spec.gateway_class_name, held) == (gateway_class, wanted):
        return None
    return {"metadata": {"resourceVersion": have.metadata.resource_version}, "spec": spec}


def takes_grpc(have: Gateway | None) -> bool:
    """Return whether a Gateway has the listener of gRPC calls."""
    return have is not None and any(each.name == GRPC_LISTENER for each in have.spec.listeners)


def _spec(gateway_class: str, grpc_port: int | None) -> Json:
    listeners: list[Json] = [{"name": "http", "protocol": "HTTP", "port": 80}]
    if grpc_port is not None:
        kinds = [{"group": GRPC_ROUTE.group, "kind": GRPC_ROUTE.kind}]
        allowed = {"allowedRoutes": {"kinds": kinds}}
        listeners.append({"name": GRPC_LISTENER, "protocol": "HTTP", "port": grpc_port, **allowed})
    return {"gatewayClassName": gateway_class, "listeners": listeners}
