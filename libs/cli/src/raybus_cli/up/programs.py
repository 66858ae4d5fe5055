"""The command line and environment of each child: pure. Settings of a service: `common.settings`."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from common import feature_gates
from raybus_cli.up.children import Program
from raybus_cli.up.options import MODULES, Options

PROVISIONER: Final = "provisioner"
KEEPER: Final = "keeper"
"""Its user on NATS."""
NATS: Final = "nats"


class BusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How children reach NATS."""

    url: str
    credentials: Path | None = None
    """A folder as `python -m nats_admin.provision credentials --out` writes it; None for a server without users."""


NATS_GO: Final = {"GOGC": "50"}
"""Half of Go's default: with the state of 300 clusters NATS takes 46 to 58 MiB instead of 66, for 2 % of the processor time of all services."""


def nats_server(binary: Path, folder: Path, *, environment: Mapping[str, str], log_dir: Path | None) -> Program:
    """Return the NATS server that reads its configuration from `folder`."""
    return Program(
        name=NATS,
        argv=[str(binary), "--config", str(folder / "nats-server.conf")],
        environment=NATS_GO | dict(environment),
        log=_log(log_dir, NATS),
    )


def provisioner(bus: BusAccess, *, environment: Mapping[str, str], options: Options) -> Program:
    """Return what creates the streams."""
    argv = [sys.executable, "-m", "nats_admin.provision", "streams", "--watch"]
    if bus.credentials is not None:
        argv += ["--outside-seed", str(bus.credentials / "users" / f"{KEEPER}-outside.seed")]
    return Program(
        name=PROVISIONER,
        argv=argv,
        environment=_inherited(environment) | _bus(bus, KEEPER) | {"RAYBUS_LOG_LEVEL": options.log_level},
        log=_log(options.log_dir, PROVISIONER),
    )


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a service."""

    service: str
    name: str
    """Of the process and its log; the service's own name where it has one replica."""
    identity: str
    """The identity of the replica in its Lease; it survives a restart of the process."""
    port: int


def replicas(options: Options, ports: Sequence[int], *, run: str) -> list[Replica]:
    """Return all requested replicas, on free ports; `run` separates this `raybus up` from others."""
    wanted = {name: options.replicas.get(name, 1) for name in MODULES}
    names = [
        (service, service if count == 1 else f"{service}-{number}")
        for service, count in wanted.items()
        for number in range(1, count + 1)
    ]
    return [
        Replica(service=service, name=name, identity=f"{run}-{name}", port=port)
        for (service, name), port in zip(names, ports, strict=True)
    ]


def service(replica: Replica, bus: BusAccess, *, environment: Mapping[str, str], options: Options) -> Program:
    """Return one replica of the four services."""
    settings = {
        "RAYBUS_IDENTITY": replica.identity,
        "RAYBUS_KUBECONFIG": str(options.kubeconfig),
        "RAYBUS_HTTP_PORT": str(replica.port),
        "RAYBUS_NAMESPACE": options.namespace,
        "RAYBUS_WATCH_NAMESPACES": options.watch_namespaces,
        "RAYBUS_FEATURE_GATES": feature_gates.spell(options.gates),
        "RAYBUS_LOG_LEVEL": options.log_level,
        # This process runs outside the cluster's network.
        "RAYBUS_USE_KUBERNETES_PROXY": "true",
    }
    return Program(
        name=replica.name,
        argv=[sys.executable, "-m", MODULES[replica.service]],
        environment=_inherited(environment) | _bus(bus, replica.service) | settings,
        log=_log(options.log_dir, replica.name),
    )


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment (KubeRay's own switches among it) without the variables that are set here."""
    decided = {
        "RAYBUS_NATS_URL",
        "RAYBUS_NATS_SEED_FILE",
        "RAYBUS_NATS_CA_FILE",
        "RAYBUS_KUBECONFIG",
        "RAYBUS_HTTP_PORT",
        "RAYBUS_NAMESPACE",
        "RAYBUS_IDENTITY",
        "RAYBUS_WATCH_NAMESPACES",
        "RAYBUS_FEATURE_GATES",
        "RAYBUS_LOG_LEVEL",
        "RAYBUS_USE_KUBERNETES_PROXY",
    }
    return {name: value for name, value in environment.items() if name not in decided}


def _bus(bus: BusAccess, user: str) -> dict[str, str]:
    settings = {"RAYBUS_NATS_URL": bus.url}
    if bus.credentials is not None:
        settings["RAYBUS_NATS_SEED_FILE"] = str(bus.credentials / "users" / f"{user}.seed")
        settings["RAYBUS_NATS_CA_FILE"] = str(bus.credentials / "ca.crt")
    return settings


def _log(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / f"{name}.log"
