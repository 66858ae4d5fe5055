"""Every object name that we derive, and the length rules that KubeRay applies to it (spec raycluster §2.7)."""

import string
from enum import StrEnum
from typing import Final

SAFE_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of Kubernetes' random suffixes: no vowels, so that nothing offensive appears."""


class SideRole(StrEnum):
    """What an HTTPRoute beside the weighted one is for."""

    MIRROR = "mirror"
    PREVIEW = "preview"


def pod_prefix(prefix: str, node_type: str) -> str:
    """Return the generated part of a pod's name: `pod_prefix("demo-small", "worker")` is `demo-small-worker-`."""
    return f"{prefix[:50]}-{node_type}-".lower()


def checked(name: str) -> str:
    """Shorten a name to its last 50 characters that start with a letter (KubeRay's CheckName)."""
    name = name[-50:]
    return "r" + name[1:] if name[:1].isdigit() or name[:1] in string.punctuation else name


def checked_label(value: str) -> str:
    """Shorten a label value, or a Job's name, to its last 63 characters (KubeRay's CheckLabel and TrimJobName)."""
    value = value[-63:]
    return "r" + value[1:] if value and value[0] in string.punctuation else value


def head_service(cluster: str) -> str:
    """Return the name of a cluster's head Service, or of a RayService's own."""
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
    """Return the name of an HTTPRoute beside the weighted one.

    No weighted route ends like this, whatever its RayService is called.
    """
    return f"{http_route(service)}-{role}"


def former_side_route(service: str, role: SideRole) -> str:
    """Return the name that earlier versions of raybus gave to a side route.

    A RayService called `<service>-<role>` has its weighted route under the same name.
    """
    return http_route(f"{service}-{role}")


def preview_service(service: str) -> str:
    """Return the name of the Service of previews."""
    return f"{service}-preview-svc"


def headless_service(cluster: str) -> str:
    """Return the name of the headless Service of multi-host workers."""
    return f"{cluster}-headless"


def head_fqdn(head_service_name: str, namespace: str, domain: str) -> str:
    """Return the DNS name that workers and dashboards' callers use for a head."""
    return f"{head_service_name}.{namespace}.svc.{domain}"


def suffix(number: int) -> str:
    """Spell a number in five characters of the safe alphabet; the same number gives the same suffix."""
    base = len(SAFE_ALPHABET)
    return "".join(SAFE_ALPHABET[number // base**place % base] for place in range(5))
