"""`raybus demo`: runs a real upgrade under load.

The exit code is 0 if no request failed, and 1 if a request failed or the run did not complete.
"""

import asyncio
import shlex
import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from common import errors
from common.kube.client import KubeClient
from localcluster.demo import demo_cluster, tally
from localcluster.demo.cluster_state import NAMESPACE, SERVICE, Kubectl
from localcluster.demo.demo_cluster import Cluster, Gateway, LateGateway, Load
from localcluster.demo.scenario import DemoOptions, Scenario, Strategy
from localcluster.demo.tally import Receipt
from localcluster.demo.view import View
from localcluster.driver import DriverName
from localcluster.progress import duration
from raybus_cli import printing, session
from raybus_cli.printing import LinesOption, Output

app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def demo(
    driver: Annotated[
        str, typer.Option(help="Type of the cluster: auto, built, kind or kubeconfig.")
    ] = "auto",
    name: Annotated[
        str | None,
        typer.Option(
            help="Name of the cluster; default: $RAYBUS_CLUSTER, or that of this checkout."
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            help="An existing cluster with the images on its node; only with --driver kubeconfig."
        ),
    ] = None,
    strategy: Annotated[
        Strategy,
        typer.Option(
            help="Move the traffic at once, or in steps through a Gateway (driver built)."
        ),
    ] = Strategy.BLUE_GREEN,
    gateway: Annotated[
        bool,
        typer.Option(
            help="With --keep also add Envoy Gateway, for upgrades in steps (driver built)."
        ),
    ] = True,
    requests: Annotated[int, typer.Option(min=1, help="Least number of short requests.")] = 3000,
    rate: Annotated[
        float,
        typer.Option(
            min=1,
            envvar="RAYBUS_DEMO_RATE",
            help="Short requests a second; lower it on a slow machine.",
        ),
    ] = Load().rate,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep everything running and print how to inspect it.")
    ] = False,
    output: LinesOption = Output.TEXT,
    save: Annotated[
        Path | None, typer.Option(help="Also write the receipt as JSON to this file.")
    ] = None,
) -> None:
    """Serve a model on a real local cluster, upgrade it under load, and count failed requests.

    Examples:
    $ raybus demo
    $ raybus demo --strategy incremental --keep
    """
    began = time.monotonic()
    try:
        plan = DemoOptions(
            manifests=_manifests(), least_requests=requests, load=Load(rate=rate), strategy=strategy
        )
        in_steps, is_kept = (
            strategy is Strategy.INCREMENTAL,
            keep and driver != DriverName.KUBECONFIG,
        )
        when = demo_cluster.gateway_for(in_steps=in_steps, is_kept=is_kept, wanted=gateway)
        outcome = _run(driver, name, kubeconfig, plan=plan, gateway=when, keep=keep, began=began)
    except errors.RaybusError as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(session.exit_code(problem)) from problem
    as_json = msgspec.json.format(msgspec.json.encode(outcome)).decode()
    if save is not None:
        save.write_text(as_json + "\n")
    if output is Output.JSON:
        typer.echo(as_json)
    else:
        printing.show(tally.render(outcome))
    is_there = keep or driver == "kubeconfig"
    has_gateway = is_there and kubeconfig is None and _has_gateway(name)
    typer.echo(next_steps(name, kubeconfig, is_kept=is_there, has_gateway=has_gateway), err=True)
    raise typer.Exit(0 if outcome.ok else 1)


def next_steps(
    name: str | None, kubeconfig: Path | None, *, is_kept: bool, has_gateway: bool = False
) -> str:
    """Return the commands that a user is likely to run next."""
    if not is_kept:
        return (
            "Next: 'raybus demo --keep' leaves the cluster running, for 'raybus get' and 'raybus "
            "dashboard'."
        )
    which = f" --name {shlex.quote(name)}" if name else ""
    path = shlex.quote(str(kubeconfig)) if kubeconfig else f"$(raybus cluster kubeconfig{which})"
    more = [
        "Upgrade it in steps:",
        f"  raybus cluster kubectl{which} -- apply -k deploy/demo/incremental-v1",
    ]
    removal = [] if kubeconfig else ["Remove it:", f"  raybus cluster down{which}"]
    return "\n".join(
        [
            "The cluster is still running. Next:",
            f"  export KUBECONFIG={path}",
            "  raybus list -A",
            f"  raybus get rayservice {SERVICE} -n {NAMESPACE} -w",
            f"  raybus dashboard -n {NAMESPACE}",
            *(more if has_gateway else []),
            *removal,
        ]
    )


def _run(
    driver: str,
    name: str | None,
    kubeconfig: Path | None,
    *,
    plan: DemoOptions,
    gateway: Gateway,
    keep: bool,
    began: float,
) -> Receipt:
    # A gateway is not needed for the first answer, so a node built here installs it while that
    # answer is on its way.
    archives = [] if driver == "kubeconfig" else asyncio.run(demo_cluster.prepare(driver))
    cluster = demo_cluster.start_cluster(driver, name, kubeconfig, gateway=gateway, images=archives)
    try:
        if archives:
            demo_cluster.load_images(archives, name)
        kubectl = Kubectl(binary=_kubectl(name), kubeconfig=cluster.kubeconfig)
        is_late = gateway is Gateway.LATER and cluster.driver == DriverName.BUILT
        return asyncio.run(_perform(plan, kubectl, cluster, began, is_late=is_late))
    finally:
        if not keep and driver != "kubeconfig":
            demo_cluster.remove_cluster(name)


async def _perform(
    plan: DemoOptions, kubectl: Kubectl, cluster: Cluster, began: float, *, is_late: bool
) -> Receipt:
    view = View()
    kube = await KubeClient.connect(kubeconfig=kubectl.kubeconfig, user_agent="raybus-demo")
    try:
        scenario = Scenario(plan, kubectl, kube, view)
        in_steps = plan.strategy is Strategy.INCREMENTAL
        adding = (
            demo_cluster.adding_gateway(demo_cluster.gateway_command(cluster.driver, cluster.name))
            if is_late
            else nullcontext(None)
        )
        async with adding as late:
            with view.drawing():
                if in_steps and late is None:
                    await scenario.wait_for_gateway(None)
                await scenario.install()
                typer.echo(await kubectl.run("get", "pods", "-n", "raybus"), err=True)
                await scenario.serve()
                answer = await scenario.first_answer()
                seconds = round(time.monotonic() - began, 1)
                typer.echo(
                    f"First answer of the model after {duration(seconds)}: {answer}", err=True
                )
                if in_steps and late is not None:
                    await scenario.wait_for_gateway(late)
                receipt = await scenario.upgrade()
                if not in_steps and late is not None:
                    await _completed(scenario, late)
        return msgspec.structs.replace(receipt, first_answer_seconds=seconds)
    finally:
        await kube.close()


async def _completed(scenario: Scenario, late: LateGateway) -> None:
    """Wait for a gateway that only the user's later upgrades need.

    If it fails, print a message and go on.
    """
    try:
        await scenario.wait_for_gateway(late)
    except errors.RaybusError as problem:
        typer.echo(
            f"Upgrades in steps need a gateway: {problem}; 'raybus cluster up --gateway' adds one.",
            err=True,
        )


def _manifests() -> Path:
    for folder in (Path.cwd(), *Path(__file__).resolve().parents):
        if (folder / "deploy" / "demo" / "v1").is_dir():
            return folder / "deploy"
    raise errors.InvalidSpec("deploy/demo is not here; run this command in a checkout of raybus")


def _has_gateway(name: str | None) -> bool:
    """Return whether the local cluster has a gateway, according to its record."""
    from localcluster import driver  # noqa: PLC0415  (only a local cluster has a record)
    from localcluster.settings import Settings  # noqa: PLC0415  (as above)

    known = driver.read(Settings.from_environment().layout(name))
    return known is not None and known.gateway


def _kubectl(name: str | None) -> Path:
    """Return the local cluster's own kubectl, or the one on the PATH."""
    from localcluster import driver  # noqa: PLC0415  (only a local cluster has a record)
    from localcluster.settings import Settings  # noqa: PLC0415  (as above)

    known = driver.read(Settings.from_environment().layout(name))
    own = None if known is None else known.binaries.get("kubectl")
    found = own or shutil.which("kubectl")
    if found is None:
        raise errors.InvalidSpec("kubectl is not installed here; install it, then run this again")
    return Path(found)
