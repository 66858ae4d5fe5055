"""Settings of a service: the only reader of `RAYBUS_*`.

A wrong value ends the process with one line that names the variable, the value and what is allowed.
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from common import errors, feature_gates
from common.feature_gates import BETA, Gates

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"", "0", "false", "no", "off"})
OPERATOR_FILE: Final = "RAYBUS_OPERATOR_CONFIG"
"""Names a configuration file as KubeRay's `--config` does; only cluster-reconciler reads it."""
SCHEMES: Final = frozenset({"nats", "tls"})


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all services share; a service with more of its own keeps them beside these."""

    service: str
    """Name of the service; also its NATS user, its field manager and the name in its log."""
    nats_url: str = "nats://127.0.0.1:4222"
    """Where NATS is; with several servers of one cluster, all of them with commas between."""
    nats_seed_file: Path | None = None
    """NKEY seed; None only for a server without users."""
    nats_ca_file: Path | None = None
    """The authority that signed the server's certificate; None means no TLS, unless the URL is `tls://`."""
    nats_register_key: bool = False
    """Make a key at the start and register it in the ConfigMap `nats-keys-SERVICE` of `namespace`, in place of the two files."""
    kubeconfig: Path | None = None
    """None means the pod's own ServiceAccount."""
    http_port: int = 8080
    namespace: str = "default"
    """Where our Leases live."""
    lease_namespace: str = ""
    """Where the watchers' Lease lives, if elsewhere: KubeRay's namespace, so that the two exclude each other."""
    identity: str = ""
    """Identity of the replica; empty means the host's name, outside a cluster with the process id."""
    watch_namespaces: tuple[str, ...] = ()
    """The namespaces that are watched; empty means all."""
    log_level: str = "INFO"
    feature_gates: Gates = BETA
    workers: int = 4
    """Reconciles that run at once."""
    cluster_domain: str = "cluster.local"
    use_kubernetes_proxy: bool = False
    """Reach Ray dashboards through the API server, from outside the cluster."""
    traces_file: Path | None = None
    """Append spans to this file; OpenTelemetry's own `OTEL_*` variables work beside it."""

    @classmethod
    def from_environment(cls, service: str, environ: Mapping[str, str]) -> "Settings":
        """Read `RAYBUS_*`; raise `InvalidSpec` for the first value that cannot be meant."""
        read = _Reader(environ)
        return cls(
            service=service,
            nats_url=read.url("RAYBUS_NATS_URL", "nats://127.0.0.1:4222"),
            nats_seed_file=read.file("RAYBUS_NATS_SEED_FILE"),
            nats_ca_file=read.file("RAYBUS_NATS_CA_FILE"),
            nats_register_key=read.switch("RAYBUS_NATS_REGISTER_KEY"),
            kubeconfig=read.file("RAYBUS_KUBECONFIG"),
            http_port=read.number("RAYBUS_HTTP_PORT", 8080, most=65535),
            namespace=read.text("RAYBUS_NAMESPACE", "default"),
            lease_namespace=read.text("RAYBUS_LEASE_NAMESPACE", ""),
            identity=read.text("RAYBUS_IDENTITY", ""),
            watch_namespaces=read.names("RAYBUS_WATCH_NAMESPACES"),
            log_level=read.choice("RAYBUS_LOG_LEVEL", "INFO", LEVELS),
            feature_gates=read.gates("RAYBUS_FEATURE_GATES"),
            workers=read.number("RAYBUS_WORKERS", 4, least=1, most=1000),
            cluster_domain=read.text("RAYBUS_CLUSTER_DOMAIN", "cluster.local"),
            use_kubernetes_proxy=read.switch("RAYBUS_USE_KUBERNETES_PROXY"),
            traces_file=read.output("RAYBUS_TRACES"),
        )


def identity_of(settings: Settings) -> str:
    """Return the name of a process among the replicas of its service, which is the name on its Lease: the one given, or else one of its own.

    A container that restarts in its pod is the same replica and goes on at once; outside a cluster, where many processes share a
    machine, each one is a replica of its own.
    """
    host = socket.gethostname()
    return settings.identity or (host if settings.kubeconfig is None else f"{host}-{os.getpid()}")


class _Reader:
    """Typed reads of an environment; each error names the variable."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, variable: str, default: str) -> str:
        return self._environ.get(variable, "").strip() or default

    def url(self, variable: str, default: str) -> str:
        value = ",".join(part.strip() for part in self.text(variable, default).split(","))
        for part in map(urlsplit, value.split(",")):
            if part.scheme not in SCHEMES or not part.hostname:
                raise errors.InvalidSpec(
                    f"{variable}={value!r}: expected nats://HOST:PORT or tls://HOST:PORT, or several with commas"
                )
        return value

    def file(self, variable: str) -> Path | None:
        value = self.text(variable, "")
        if value and not Path(value).is_file():
            raise errors.InvalidSpec(f"{variable}={value!r}: no such file; name a readable file or unset it")
        return Path(value) if value else None

    def output(self, variable: str) -> Path | None:
        """Return a file that may come to be."""
        value = self.text(variable, "")
        if value and not Path(value).parent.is_dir():
            raise errors.InvalidSpec(f"{variable}={value!r}: there is no such folder; name a file in one that exists")
        return Path(value) if value else None

    def number(self, variable: str, default: int, *, least: int = 0, most: int) -> int:
        value = self.text(variable, str(default))
        if not value.isdecimal() or not least <= int(value) <= most:
            raise errors.InvalidSpec(f"{variable}={value!r}: expected a whole number from {least} to {most}")
        return int(value)

    def names(self, variable: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.text(variable, "").split(",")))))

    def choice(self, variable: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(variable, default).upper()
        if value not in allowed:
            raise errors.InvalidSpec(f"{variable}={value!r}: expected one of {', '.join(allowed)}")
        return value

    def switch(self, variable: str) -> bool:
        value = self.text(variable, "").lower()
        if value not in TRUE | FALSE:
            raise errors.InvalidSpec(f"{variable}={value!r}: expected true or false")
        return value in TRUE

    def gates(self, variable: str) -> Gates:
        try:
            return feature_gates.resolve(feature_gates.parse(self.text(variable, "")))
        except errors.InvalidSpec as problem:
            raise errors.InvalidSpec(f"{variable}: {problem}") from problem
