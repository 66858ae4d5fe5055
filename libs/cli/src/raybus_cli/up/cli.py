"""`raybus up`: the options, and the exit code of each error."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from common import errors
from raybus_cli.up import options as checks
from raybus_cli.up.options import Options
from raybus_cli.up.run import Up


def up(
    kubeconfig: Annotated[Path, typer.Option(help="Kubeconfig of the cluster. Its CRDs must be installed.")],
    nats: Annotated[str | None, typer.Option(help="Address of a running NATS server; default: a new one.")] = None,
    nats_credentials: Annotated[
        Path | None, typer.Option(help="Folder with the seeds for --nats, made by nats_admin.provision.")
    ] = None,
    gates: Annotated[str, typer.Option("--feature-gates", help="As KubeRay's: Name=true,Other=false.")] = "",
    replicas: Annotated[
        str, typer.Option(help="Replicas by service, such as cluster-reconciler=3; default: 1 of each.")
    ] = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the Leases; it must exist.")] = "default",
    watch_namespace: Annotated[str, typer.Option(help="Namespaces to watch (comma list); default: all.")] = "",
    log_dir: Annotated[Path | None, typer.Option(help="Folder for one log per process; default: stderr.")] = None,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Folder for the streams and keys of the new NATS server; default: a temporary one."),
    ] = None,
) -> None:
    """Run NATS and the four services as local processes.

    Prints one JSON line on standard output when all are ready: {"ready": true, "pids": {"nats": 1, "provisioner": 2,
    "watcher": 3, …}}. A service with one replica has its pid as a number, one with more a list. Ends within 10 s of
    SIGTERM or SIGINT with exit code 0.

    Examples:
    $ raybus up --kubeconfig ~/.kube/config
    $ raybus up --kubeconfig test.yaml --replicas watcher=2 --log-dir logs
    """
    try:
        chosen = Options(
            server=checks.check_kubeconfig(kubeconfig),
            kubeconfig=kubeconfig.absolute(),
            nats=checks.check_nats(nats),
            nats_credentials=checks.check_credentials(nats_credentials),
            gates=checks.check_gates(gates),
            replicas=checks.check_replicas(replicas),
            namespace=namespace,
            watch_namespaces=watch_namespace,
            log_dir=checks.check_folder("--log-dir", log_dir),
            log_level=checks.check_level(log_level),
            data_dir=checks.check_folder("--data-dir", data_dir),
        )
    except errors.InvalidSpec as problem:
        _fail(problem)
    try:
        asyncio.run(Up(chosen, os.environ).run())
    except* errors.RaybusError as problems:
        _fail(next(errors.leaves(problems)))


def _fail(problem: BaseException) -> NoReturn:
    typer.echo(f"error: {problem}", err=True)
    raise SystemExit(2 if isinstance(problem, errors.InvalidSpec) else 1)
