"""Settings of a service from environment variables; no other module reads `RAYBUS_*`.

An illegal value stops the process with one line that names the variable, the value and the legal
values.
"""

import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Final, NamedTuple, get_args
from urllib.parse import urlsplit

import msgspec

from common import errors, feature_gates, targets
from common.feature_gates import BETA, Gates
from common.targets import Origin

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
TRUE: Final = frozenset({"1", "true", "yes", "on"})
FALSE: Final = frozenset({"", "0", "false", "no", "off"})
OPERATOR_FILE: Final = "RAYBUS_OPERATOR_CONFIG"
"""Path of a configuration file, like KubeRay's `--config`; only cluster-reconciler reads it."""
SCHEMES: Final = frozenset({"nats", "tls"})


class Variable(NamedTuple):
    """The environment variable of a setting.

    `read` gets the name and the value, and raises `InvalidSpec` for an illegal value.
    """

    name: str
    read: Callable[[str, str], Any] = lambda _name, value: value


def _url(variable: str, value: str) -> str:
    value = ",".join(part.strip() for part in value.split(","))
    for part in map(urlsplit, value.split(",")):
        if part.scheme not in SCHEMES or not part.hostname:
            raise errors.InvalidSpec(
                f"{variable}={value!r}: expected nats://HOST:PORT or tls://HOST:PORT, or "
                "several with commas"
            )
    return value


def _file(variable: str, value: str) -> Path:
    if not Path(value).is_file():
        raise errors.InvalidSpec(
            f"{variable}={value!r}: no such file; name a readable file or unset it"
        )
    return Path(value)


def _output(variable: str, value: str) -> Path:
    """Return the path of a file that will be created; its folder must exist."""
    if not Path(value).parent.is_dir():
        raise errors.InvalidSpec(
            f"{variable}={value!r}: there is no such folder; name a file in one that exists"
        )
    return Path(value)


def _number(variable: str, value: str, *, least: int = 0, most: int) -> int:
    if not value.isdecimal() or not least <= int(value) <= most:
        raise errors.InvalidSpec(
            f"{variable}={value!r}: expected a whole number from {least} to {most}"
        )
    return int(value)


def _names(_variable: str, value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(str.strip, value.split(",")))))


def _level(variable: str, value: str) -> str:
    if value.upper() not in LEVELS:
        raise errors.InvalidSpec(
            f"{variable}={value.upper()!r}: expected one of {', '.join(LEVELS)}"
        )
    return value.upper()


def _switch(variable: str, value: str) -> bool:
    if value.lower() not in TRUE | FALSE:
        raise errors.InvalidSpec(f"{variable}={value.lower()!r}: expected true or false")
    return value.lower() in TRUE


def _parsed(parse: Callable[[str], Any], variable: str, value: str) -> Any:
    """Parse the value of a variable with `parse`, and add the variable's name to its errors."""
    try:
        return parse(value)
    except (errors.InvalidSpec, ValueError) as problem:
        raise errors.InvalidSpec(f"{variable}: {problem}") from problem


def _gates(text: str) -> Gates:
    return feature_gates.resolve(feature_gates.parse(text))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that all services share."""

    service: str
    """Name of the service; also its NATS user, its field manager and its name in logs."""
    nats_url: Annotated[str, Variable("RAYBUS_NATS_URL", _url)] = "nats://127.0.0.1:4222"
    """URL of NATS; URLs of several servers are separated by commas."""
    nats_seed_file: Annotated[Path | None, Variable("RAYBUS_NATS_SEED_FILE", _file)] = None
    """File with the NKEY seed; None only for a server without authentication."""
    nats_ca_file: Annotated[Path | None, Variable("RAYBUS_NATS_CA_FILE", _file)] = None
    """File with the CA of the server's certificate; None disables TLS, unless the URL is
    `tls://`."""
    nats_register_key: Annotated[bool, Variable("RAYBUS_NATS_REGISTER_KEY", _switch)] = False
    """Generate a key at startup instead of reading the seed file and the CA file.

    The public key is registered in the ConfigMap `nats-keys-SERVICE` of `namespace`.
    """
    kubeconfig: Annotated[Path | None, Variable("RAYBUS_KUBECONFIG", _file)] = None
    """Kubeconfig file; None to use the pod's ServiceAccount."""
    http_port: Annotated[int, Variable("RAYBUS_HTTP_PORT", partial(_number, most=65535))] = 8080
    http_port_file: Annotated[Path | None, Variable("RAYBUS_HTTP_PORT_FILE", _output)] = None
    """File to which the process writes its HTTP port.

    With a file, the process takes the next free port if `http_port` is in use, so that replicas
    with the same settings can share a network.
    """
    namespace: Annotated[str, Variable("RAYBUS_NAMESPACE")] = "default"
    """Namespace of raybus itself: of its Leases and of the ConfigMaps with NATS keys."""
    lease_namespace: Annotated[str, Variable("RAYBUS_LEASE_NAMESPACE")] = ""
    """Namespace of the watchers' Lease; empty means `namespace`.

    Set it to KubeRay's namespace, so that KubeRay and raybus exclude each other.
    """
    identity: Annotated[str, Variable("RAYBUS_IDENTITY")] = ""
    """Identity of the replica.

    If empty, the host name is used; outside a cluster, a random suffix is added.
    """
    watch_namespaces: Annotated[tuple[str, ...], Variable("RAYBUS_WATCH_NAMESPACES", _names)] = ()
    """Namespaces to watch; empty means all."""
    log_level: Annotated[str, Variable("RAYBUS_LOG_LEVEL", _level)] = "INFO"
    feature_gates: Annotated[Gates, Variable("RAYBUS_FEATURE_GATES", partial(_parsed, _gates))] = (
        BETA
    )
    workers: Annotated[int, Variable("RAYBUS_WORKERS", partial(_number, least=1, most=1000))] = 4
    """Number of concurrent reconciles."""
    cluster_domain: Annotated[
        str, Variable("RAYBUS_CLUSTER_DOMAIN"), Variable("CLUSTER_DOMAIN")
    ] = "cluster.local"
    """DNS domain of the Kubernetes cluster; `CLUSTER_DOMAIN` is KubeRay's variable."""
    use_kubernetes_proxy: Annotated[bool, Variable("RAYBUS_USE_KUBERNETES_PROXY", _switch)] = False
    """Whether to reach Ray dashboards through the API server, as needed outside the cluster."""
    gate_targets: Annotated[
        tuple[Origin, ...], Variable("RAYBUS_GATE_TARGETS", partial(_parsed, targets.read))
    ] = ()
    """Servers to which gates of UpgradePolicies may send requests; empty means none."""
    kubernetes_host: Annotated[str, Variable("KUBERNETES_SERVICE_HOST")] = ""
    """In-cluster address of the API server, set by Kubernetes; gates may not send requests there.
    """
    traces_file: Annotated[Path | None, Variable("RAYBUS_TRACES", _output)] = None
    """File to append spans to; OpenTelemetry's `OTEL_*` variables work in addition."""

    @classmethod
    def from_environment(cls, service: str, environ: Mapping[str, str]) -> "Settings":
        """Read the environment variables.

        Raises `InvalidSpec` for the first illegal value, and if two variables of one setting
        differ.
        """
        read: dict[str, Any] = {}
        for field in msgspec.structs.fields(cls):
            variables = [
                variable for variable in get_args(field.type) if isinstance(variable, Variable)
            ]
            given = {variable: environ.get(variable.name, "").strip() for variable in variables}
            if len({text for text in given.values() if text}) > 1:
                texts = " and ".join(
                    f"{variable.name}={text!r}" for variable, text in given.items()
                )
                raise errors.InvalidSpec(f"{texts} differ: set one of them")
            for variable, text in given.items():
                if text:
                    read[field.name] = variable.read(variable.name, text)
        return cls(service=service, **read)


_RUN: Final = token_hex(4)
"""Random suffix that distinguishes this process from others with the same host name."""


def identity_of(settings: Settings) -> str:
    """Return the identity of this process on its Lease: the configured one, or a generated one.

    In a pod the identity is the host name, so a restarted container is the same replica and
    continues at once. Outside a cluster a random suffix is added, since many processes share a
    machine. The process id does not suffice: containers in the network of one machine have the
    same host name, and the process in each of them has the id 1.
    """
    host = socket.gethostname()
    return settings.identity or (host if settings.kubeconfig is None else f"{host}-{_RUN}")
