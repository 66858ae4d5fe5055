"""`raybus cluster`: create, use and remove a local Kubernetes cluster.

Exit codes: 0 success, 1 failure, 2 invalid command. Standard output carries results only; progress
and errors go to standard error.
"""

import asyncio
import fcntl
import os
import shutil
import sys
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec
import typer

from localcluster import binaries, driver, drivers, processes, settings
from localcluster.driver import ClusterRecord, ClusterRequest, DriverName
from localcluster.errors import ClusterError, MisuseError
from localcluster.progress import Progress
from localcluster.settings import Layout, LocalSettings

HELP: Final = """Run a real Kubernetes cluster on this machine.

Examples:
$ raybus cluster up
$ raybus cluster kubectl -- get pods -A
$ export KUBECONFIG=$(raybus cluster kubeconfig)
"""
app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False)


class ClusterOutput(StrEnum):
    """The formats of `--output`."""

    TEXT = "text"
    JSON = "json"


T = TypeVar("T")

Name = Annotated[
    str | None,
    typer.Option(
        "--name", help="Name of the cluster; default: $RAYBUS_CLUSTER, or that of this checkout."
    ),
]
Format = Annotated[ClusterOutput, typer.Option("--output", "-o", help="Output format.")]
_PASS_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


@app.command()
def up(
    driver_name: Annotated[
        DriverName,
        typer.Option(
            "--driver",
            metavar="DRIVER",
            help="kind, built, kubeconfig, or auto: kind with a Docker engine, else built, "
            "a node of this machine.",
        ),
    ] = DriverName.AUTO,
    name: Name = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="An existing cluster; only with --driver kubeconfig.")
    ] = None,
    control_plane_only: Annotated[
        bool,
        typer.Option(
            "--control-plane-only",
            help="API server and controllers alone, in 3 s, without root: no pods.",
        ),
    ] = False,
    gateway: Annotated[
        bool,
        typer.Option(
            help=(
                "Run Envoy Gateway and the GatewayClass eg (driver built); a running cluster gets "
                "them, too."
            )
        ),
    ] = True,
    gateway_api: Annotated[
        bool,
        typer.Option(
            "--gateway-api",
            help="With --no-gateway: the CRDs of the Gateway API, for a gateway later.",
        ),
    ] = False,
    load_images: Annotated[
        list[Path] | None,
        typer.Option(
            "--load", help="An image archive that a new node loads while it starts (driver built)."
        ),
    ] = None,
    crds: Annotated[
        Path | None,
        typer.Option(
            help="Folder of CRDs to install first; default: deploy/crds of this checkout."
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port of the API server on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    output: Format = ClusterOutput.TEXT,
) -> None:
    """Start the cluster; a running cluster is kept."""
    with _report_errors():
        given = LocalSettings.from_environment()
        layout = given.layout(name)
        wanted = _choose_driver(driver_name, kubeconfig, control_plane_only=control_plane_only)
        request = ClusterRequest(
            layout=layout,
            settings=given,
            kubeconfig=kubeconfig,
            crds=_find_crds(crds, given),
            gateway=gateway and not control_plane_only,
            gateway_api=gateway_api,
            images=load_images or (),
            port=port,
        )
        with _hold_lock(layout):
            known = _run(_create_cluster(wanted, request))
        _print(known, output)


@app.command()
def prepare(
    control_plane_only: Annotated[
        bool,
        typer.Option(
            "--control-plane-only",
            help=(
                "Only the programs of a cluster without pods, with kwok and the Gateway API's CRDs."
            ),
        ),
    ] = False,
    gateway: Annotated[bool, typer.Option(help="Include the programs of Envoy Gateway.")] = True,
) -> None:
    """Build the programs of the driver 'built' in advance, for a later 'up' or test run."""
    with _report_errors():
        names = [
            *binaries.CONTROL_PLANE,
            "kube-scheduler",
            *binaries.SIMULATED_NODES,
            binaries.GATEWAY_CRDS,
        ]
        if not control_plane_only:
            names = [*binaries.NODE, *(binaries.GATEWAY if gateway else ())]
        obtained = _run(
            binaries.obtain(names, LocalSettings.from_environment(), Progress.to_stderr())
        )
        typer.echo("\n".join(f"{name:<26}{path}" for name, path in obtained.paths.items()))


@app.command()
def down(
    name: Name = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the store of imported images as well.")
    ] = False,
) -> None:
    """Remove the cluster and its leftovers, also after a crash or a failed start.

    The store of imported images is kept, so that the next start need not import
    them again.
    """
    with _report_errors():
        layout = LocalSettings.from_environment().layout(name)
        with _hold_lock(layout):
            _run(_remove_cluster(layout, purge=purge))
            kept = layout.images_size()
        if kept:
            typer.echo(
                f"kept {kept / 1e9:.1f} GB of images for the next start in {layout.images}; "
                f"remove them with 'raybus cluster down --name {layout.name} --purge'",
                err=True,
            )
        if purge:
            layout.lock.unlink(missing_ok=True)


@app.command()
def status(name: Name = None, output: Format = ClusterOutput.TEXT) -> None:
    """Show whether the cluster runs; exit code 1 if it does not."""
    with _report_errors():
        layout = LocalSettings.from_environment().layout(name)
        known = _read_record(layout)
        dead = [process.name for process in known.processes if not processes.is_alive(process)]
        if output is ClusterOutput.JSON:
            answer = {**_format_json(known), "running": not dead, "dead": dead}
            typer.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
        else:
            typer.echo(_format_text(known))
            typer.echo(
                f"state       {'running' if not dead else 'broken: ' + ', '.join(dead) + ' ended'}"
            )
        if dead:
            raise typer.Exit(1)


@app.command()
def kubeconfig(name: Name = None) -> None:
    """Print the path of the kubeconfig (cluster-admin)."""
    with _report_errors():
        typer.echo(str(_read_record(LocalSettings.from_environment().layout(name)).kubeconfig))


@app.command()
def load(
    images: Annotated[
        list[Path], typer.Argument(help="Image archives, as 'docker save' writes them.")
    ],
    name: Name = None,
    output: Format = ClusterOutput.TEXT,
) -> None:
    """Load images into the cluster's node."""
    with _report_errors():
        layout = LocalSettings.from_environment().layout(name)
        known = _read_record(layout)
        progress = Progress.to_stderr()
        with progress.step(f"loading {len(images)} image file(s)", estimate=5 * len(images)):
            tags = _run(drivers.by_name(known.driver).load(known, layout, images))
        typer.echo(
            msgspec.json.encode({"loaded": tags}).decode()
            if output is ClusterOutput.JSON
            else "\n".join(tags)
        )


@app.command(context_settings=_PASS_ON)
def kubectl(context: typer.Context, name: Name = None) -> None:
    """Run kubectl against the cluster: raybus cluster kubectl -- get pods -A."""
    with _report_errors():
        known = _read_record(LocalSettings.from_environment().layout(name))
        program = known.binaries.get("kubectl") or shutil.which("kubectl") or _run_any_kubectl()
        _become([str(program), *context.args], {"KUBECONFIG": str(known.kubeconfig)}, known)


@app.command("exec", context_settings=_PASS_ON)
def execute(context: typer.Context, name: Name = None) -> None:
    """Run a program in the cluster's network, where pods and Services can be reached.

    For example: raybus cluster exec -- curl http://…
    """
    with _report_errors():
        if not context.args:
            raise MisuseError("name a program to run: raybus cluster exec -- CMD [ARG…]")
        layout = LocalSettings.from_environment().layout(name)
        known = _read_record(layout)
        command = drivers.by_name(known.driver).inside(known, layout, context.args)
        _become(command.argv, command.environment, known)


async def _create_cluster(wanted: DriverName | str, request: ClusterRequest) -> ClusterRecord:
    chosen = await driver.choose() if wanted is DriverName.AUTO else wanted
    known = driver.read(request.layout)
    if known is not None and known.driver != chosen:
        raise MisuseError(
            f"cluster {known.name} was made by the driver {known.driver}; remove it with 'raybus "
            "cluster down', "
            f"or take another --name"
        )
    return await drivers.by_name(chosen).up(request, Progress.to_stderr())


async def _remove_cluster(layout: Layout, *, purge: bool) -> None:
    known = driver.read(layout)
    # After a crash there is no record, and the cluster can only belong to one of these two drivers.
    # Removing a cluster that does not exist does nothing.
    names = (known.driver,) if known is not None else (DriverName.BUILT, driver.CONTROL_PLANE_ONLY)
    for name in names:
        await drivers.by_name(name).down(layout, Progress.to_stderr(), purge=purge)


def _choose_driver(
    named: DriverName, kubeconfig: Path | None, *, control_plane_only: bool
) -> DriverName | str:
    if kubeconfig is not None and named is not DriverName.KUBECONFIG:
        raise MisuseError(
            "--kubeconfig needs --driver kubeconfig: an existing cluster is used only on explicit "
            "request"
        )
    if not control_plane_only:
        return named
    if named is not DriverName.AUTO:
        raise MisuseError("--control-plane-only takes no --driver")
    return driver.CONTROL_PLANE_ONLY


def _find_crds(named: Path | None, given: LocalSettings) -> Path | None:
    if named is not None:
        if not named.is_dir():
            raise MisuseError(f"--crds {named}: the folder does not exist")
        return named
    ours = given.checkout / "deploy" / "crds"
    return ours if ours.is_dir() else None


def _read_record(layout: Layout) -> ClusterRecord:
    known = driver.read(layout)
    if known is None:
        raise ClusterError(f"there is no cluster {layout.name}; start it with 'raybus cluster up'")
    return known


def _run_any_kubectl() -> NoReturn:
    raise ClusterError(
        "kubectl is not installed here; install it, or use the kubeconfig with another client"
    )


def _become(argv: list[str], environment: dict[str, str], known: ClusterRecord) -> NoReturn:
    """Replace this process by a program, with `environment` added to its environment.

    The program then receives input and signals directly, and the caller sees its exit code.
    """
    merged = settings.copy_environment()
    folders = dict.fromkeys(str(path.parent) for path in known.binaries.values())
    merged["PATH"] = os.pathsep.join([*folders, merged.get("PATH", os.defpath)])
    program = shutil.which(argv[0], path=merged["PATH"])
    if program is None:
        raise ClusterError(f"{argv[0]}: the program does not exist")
    sys.stdout.flush()
    os.execve(program, argv, merged | environment)  # noqa: S606 - no shell is wanted


@contextmanager
def _hold_lock(layout: Layout) -> Generator[None]:
    """Hold the cluster's lock during the `with` block, so that one command at a time changes it."""
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    with layout.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            typer.echo(f"Waiting: another command is changing cluster {layout.name}.", err=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _report_errors() -> Generator[None]:
    """Print an error of the `with` block as one line, and exit with its code."""
    try:
        yield
    except ClusterError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, MisuseError) else 1) from error
    except PermissionError as error:
        typer.echo(
            f"error: {error.filename}: permission denied; run as its owner, or as root", err=True
        )
        raise typer.Exit(1) from error


def _run(work: Coroutine[Any, Any, T]) -> T:
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise _find_cluster_error(group) or group from group


def _find_cluster_error(error: BaseException) -> ClusterError | None:
    """Return the first `ClusterError` in an exception group; None if it contains none."""
    if isinstance(error, ClusterError):
        return error
    inner: tuple[BaseException, ...] = getattr(error, "exceptions", ())
    return next((error for error in map(_find_cluster_error, inner) if error is not None), None)


def _print(known: ClusterRecord, output: ClusterOutput) -> None:
    if output is ClusterOutput.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(_format_json(known))).decode())
    else:
        typer.echo(_format_text(known))


def _format_json(known: ClusterRecord) -> dict[str, Any]:
    return {
        "name": known.name,
        "driver": known.driver,
        "server": known.server,
        "kubeconfig": str(known.kubeconfig),
        "innerKubeconfig": str(known.inner_kubeconfig),
        "gateway": known.gateway,
        "processes": {process.name: process.pid for process in known.processes},
    }


def _format_text(known: ClusterRecord) -> str:
    rows = [("cluster", known.name), ("driver", known.driver), ("server", known.server)]
    rows.append(("kubeconfig", str(known.kubeconfig)))
    return "\n".join(f"{title:<12}{value}" for title, value in rows)


def main() -> None:
    """Run `raybus cluster` as a program of its own."""
    app(prog_name="raybus cluster")
