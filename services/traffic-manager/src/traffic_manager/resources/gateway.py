"""`<RayService>-gateway`: where the requests of a service come in (spec rayservice §9.1; acceptance 39)."""

from typing import Final

from common import names
from common.api.gateway import Gateway
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.kube.resources import GATEWAY
from common.ray import owner

LISTENER: Final[Json] = {"name": "http", "protocol": "HTTP", "port": 80}


def build(service: ObjectMeta, *, gateway_class: str) -> Json:
    """Return the Gateway of a RayService."""
    return {
        "apiVersion": GATEWAY.api_version,
        "kind": GATEWAY.kind,
        "metadata": {
            "name": names.gateway(service.name),
            "namespace": service.namespace,
            "ownerReferences": owner.reference(service),
        },
        "spec": _spec(gateway_class),
    }


def drift(have: Gateway, *, gateway_class: str) -> str | None:
    """Return why a Gateway must be rewritten; what users and its controller added does not matter."""
    if have.spec.gateway_class_name != gateway_class:
        return f"its class is {have.spec.gateway_class_name or 'not set'} instead of {gateway_class}"
    held = [(each.name, each.protocol, each.port) for each in have.spec.listeners]
    wanted = (LISTENER["name"], LISTENER["protocol"], LISTENER["port"])
    return None if held == [wanted] else "its listeners differ"


def patch(have: Gateway, *, gateway_class: str) -> Json:
    """Return the merge patch that takes a Gateway back to what it should be."""
    return {"metadata": {"resourceVersion": have.metadata.resource_version}, "spec": _spec(gateway_class)}


def _spec(gateway_class: str) -> Json:
    return {"gatewayClassName": gateway_class, "listeners": [dict(LISTENER)]}
