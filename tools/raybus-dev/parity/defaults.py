"""Sets an API server's defaults in raybus's cases; `kuberay/api_server.go` does so in KubeRay's."""

import zlib
from typing import cast

from common.api.opaque import Body, Json


def defaulted(body: Body) -> Body:
    """Return an object with the defaults that the API server would set in it."""
    spec: Json = body.get("spec", {})
    match body.get("kind"):
        case "Service":
            is_external = spec.get("type") == "ExternalName"
            ports = [
                {"protocol": "TCP", **port, "targetPort": port.get("targetPort") or port["port"]}
                for port in cast("list[Json]", spec.get("ports") or [])
            ]
            chosen = (
                {}
                if spec.get("clusterIP") or is_external
                else {"clusterIP": address(body["metadata"]["name"])}
            )
            return {**body, "spec": {**spec, **chosen, "ports": ports}}
        case "Pod":
            return {
                **body,
                "spec": {**spec, "restartPolicy": spec.get("restartPolicy") or "Always"},
            }
        case "NetworkPolicy":
            rules = {
                field: [_with_protocols(rule) for rule in spec[field]]
                for field in ("ingress", "egress")
                if field in spec
            }
            return {**body, "spec": {**spec, **rules}}
        case _:
            return body


def _with_protocols(rule: Json) -> Json:
    ports = [{"protocol": "TCP", **port} for port in cast("list[Json]", rule.get("ports") or [])]
    return {**rule, "ports": ports} if ports else rule


def address(name: str) -> str:
    """Return a cluster IP that depends only on the Service's name."""
    number = zlib.crc32(name.encode())
    return f"10.96.{number >> 8 & 0xFF}.{number & 0xFF}"
