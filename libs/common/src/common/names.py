"""The names of all derived objects, with KubeRay's length rules (spec raycluster §2.7)."""

import string
from enum import StrEnum
from typing import Final

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of Kubernetes' random suffixes; without vowels, to avoid offensive words."""


class SideRole(StrEnum):
    """Purpose of an additional HTTPRoute of a RayService; the main one has the traffic weights."""

    MIRROR = "mirror"
    PREVIEW = "preview"


def pod_prefix(prefix: str, node_type: str) -> str:
    """Return the `generateName` of a pod: `demo-small-worker-` for `("demo-small", "worker")`."""
    return f"{prefix[:50]}-{node_type}-".lower()


def checked(name: str) -> str:
    """Shorten a name to its last 50 characters, as KubeRay's CheckName does.

    A leading digit or punctuation character is replaced by `r`.
    """
    name = name[-50:]
    return "r" + name[1:] if name[:1].isdigit() or name[:1] in string.punctuation else name


def checked_label(value: str) -> str:
    """Shorten a label value or Job name to its last 63 characters, as KubeRay's CheckLabel does.

    A leading punctuation character is replaced by `r`.
    """
    value = value[-63:]
    return "r" + value[1:] if value and value[0] in string.punctuation else value


def head_service(cluster: str) -> str:
    """Return the name of the head Service of a cluster or of a RayService."""
    return f"{cluster}-head-svc"


def serve_service(owner: str) -> str:
    """Return the name of the Serve Service of a cluster or of a RayService."""
    return f"{owner}-serve-svc"


def gateway(service: str) -> str:
    """Return the name of a RayService's Gateway."""
    return f"{service}-gateway"


def http_route(service: str) -> str:
    """Return the name of a RayService's HTTPRoute."""
    return f"{service}-httproute"


def grpc_route(service: str) -> str:
    """Return the name of a RayService's GRPCRoute."""
    return f"{service}-grpcroute"


def side_route(service: str, role: SideRole) -> str:
    """Return the name of an additional HTTPRoute of a RayService.

    The name ends with the role, so it never equals the name of a main HTTPRoute.
    """
    return f"{http_route(service)}-{role}"


def former_side_route(service: str, role: SideRole) -> str:
    """Return the name that earlier versions of raybus gave to an additional HTTPRoute.

    It is also the name of the main HTTPRoute of a RayService called `<service>-<role>`.
    """
    return http_route(f"{service}-{role}")


def preview_service(service: str) -> str:
    """Return the name of a RayService's preview Service."""
    return f"{service}-preview-svc"


def headless_service(cluster: str) -> str:
    """Return the name of the headless Service of multi-host workers."""
    return f"{cluster}-headless"


def head_fqdn(head_service_name: str, namespace: str, domain: str) -> str:
    """Return the DNS name of a head Service, for workers and for clients of the dashboard."""
    return f"{head_service_name}.{namespace}.svc.{domain}"


def suffix(number: int) -> str:
    """Encode a number in five characters of the safe alphabet.

    Equal numbers give equal suffixes.
    """
    base = len(SAFE_ALPHABET)
    return "".join(SAFE_ALPHABET[number // base**place % base] for place in range(5))
