"""`raybus demo`: a real upgrade under load. Exit code 0 when no request failed, 1 when one did or the run did not end well."""

import asyncio
import shlex
import shutil
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from common import errors
from common.kube.client import KubeClient
from localcluster.driver import DriverName
from localcluster.progress import duration
from raybus_cli.demo import demo_cluster, late_gateway, receipt
from raybus_cli.demo.demo_cluster import Cluster, Gateway
from raybus_cli.demo.kubectl import Kubectl
from raybus_cli.demo.load import Load
from raybus_cli.demo.receipt import Receipt
from raybus_cli.demo.scenario import DemoOptions, Scenario, Strategy
from raybus_cli.demo.view import View
from raybus_cli.demo.watching import NAMESPACE, SERVICE
from raybus_cli.output import printing


class Output(StrEnum):
    """How the receipt is printed."""

    TEXT = "text"
    JSON = "json"


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@app.command()
def demo(
    driver: Annotated[str, typer.Option(help="Type of the cluster: auto, built, kind, k3s or kubeconfig.")] = "auto",
    name: Annotated[
        str | None, typer.Option(help="Name of the cluster; default: $RAYBUS_CLUSTER, or that of this checkout.")
    ] = None,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(help="An existing cluster with the images on its node; only with --driver kubeconfig."),
    ] = None,
    strategy: Annotated[
        Strategy, typer.Option(help="Move the traffic at once, or in steps through a Gateway (driver built).")
    ] = Strategy.BLUE_GREEN,
    requests: Annotated[int, typer.Option(min=1, help="Least number of short requests.")] = 3000,
    rate: Annotated[
        float,
        typer.Option(min=1, envvar="RAYBUS_DEMO_RATE", help="Short requests a second; lower it on a slow machine."),
    ] = Load().rate,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running and print how to inspect it.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="How to print the receipt.")] = Output.TEXT,
    save: Annotated[Path | None, typer.Option(help="Also write the receipt as JSON to this file.")] = None,
) -> None:
    """Serve a model on a real local cluster, upgrade it under load, and count failed requests.

    Examples:
    $ raybus demo
    $ raybus demo --strategy incremental --keep
    """
    began = time.monotonic()
    try:
        plan = DemoOptions(manifests=_manifests(), least_requests=requests, load=Load(rate=rate), strategy=strategy)
        outcome = _run(driver, name, kubeconfig, plan=plan, keep=keep, began=began)
    except errors.RaybusError as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(1) from problem
    as_json = msgspec.json.format(msgspec.json.encode(outcome)).decode()
    if save is not None:
        save.write_text(as_json + "\n")
    if output is Output.JSON:
        typer.echo(as_json)
    else:
        printing.show(receipt.render(outcome))
    typer.echo(next_steps(name, kubeconfig, is_kept=keep or driver == "kubeconfig"), err=True)
    raise typer.Exit(0 if outcome.ok else 1)


def next_steps(name: str | None, kubeconfig: Path | None, *, is_kept: bool) -> str:
    """Return the commands that a user types next."""
    if not is_kept:
        return "Next: 'raybus demo --keep' leaves the cluster running, for 'raybus get' and 'raybus dashboard'."
    which = f" --name {shlex.quote(name)}" if name else ""
    path = shlex.quote(str(kubeconfig)) if kubeconfig else f"$(raybus cluster kubeconfig{which})"
    removal = [] if kubeconfig else ["Remove it:", f"  raybus cluster down{which}"]
    return "\n".join(
        [
            "The cluster is still running. Next:",
            f"  export KUBECONFIG={path}",
            "  raybus list -A",
            f"  raybus get rayservice {SERVICE} -n {NAMESPACE} -w",
            f"  raybus dashboard -n {NAMESPACE}",
            *removal,
        ]
    )


def _run(
    driver: str, name: str | None, kubeconfig: Path | None, *, plan: DemoOptions, keep: bool, began: float
) -> Receipt:
    # The first answer needs no gateway: a node that is built here gets it while that answer is on its way.
    is_stepwise = plan.strategy is Strategy.INCREMENTAL
    archives = [] if driver == "kubeconfig" else asyncio.run(demo_cluster.prepare(driver))
    gateway = Gateway.LATER if is_stepwise else Gateway.NONE
    cluster = demo_cluster.start_cluster(driver, name, kubeconfig, gateway=gateway, images=archives)
    try:
        if archives:
            demo_cluster.load_images(archives, name)
        kubectl = Kubectl(binary=_kubectl(name), kubeconfig=cluster.kubeconfig)
        return asyncio.run(_perform(plan, kubectl, cluster, began))
    finally:
        if not keep and driver != "kubeconfig":
            demo_cluster.remove_cluster(name)


async def _perform(plan: DemoOptions, kubectl: Kubectl, cluster: Cluster, began: float) -> Receipt:
    view = View()
    kube = await KubeClient.connect(kubeconfig=kubectl.kubeconfig, user_agent="raybus-demo")
    try:
        scenario = Scenario(plan, kubectl, kube, view)
        is_late = plan.strategy is Strategy.INCREMENTAL and cluster.driver == DriverName.BUILT
        adding = (
            late_gateway.adding(late_gateway.command(cluster.driver, cluster.name)) if is_late else nullcontext(None)
        )
        async with adding as late:
            with view.drawing():
                if plan.strategy is Strategy.INCREMENTAL and late is None:
                    await scenario.wait_for_gateway(None)
                await scenario.install()
                typer.echo(await kubectl.run("get", "pods", "-n", "raybus"), err=True)
                await scenario.serve()
                answer = await scenario.first_answer()
                seconds = round(time.monotonic() - began, 1)
                typer.echo(f"First answer of the model after {duration(seconds)}: {answer}", err=True)
                if late is not None:
                    await scenario.wait_for_gateway(late)
                receipt = await scenario.upgrade()
        return msgspec.structs.replace(receipt, first_answer_seconds=seconds)
    finally:
        await kube.close()


def _manifests() -> Path:
    for folder in (Path.cwd(), *Path(__file__).resolve().parents):
        if (folder / "deploy" / "demo" / "v1").is_dir():
            return folder / "deploy"
    raise errors.InvalidSpec("deploy/demo is not here; run this command in a checkout of raybus")


def _kubectl(name: str | None) -> Path:
    """Return the local cluster's own kubectl, or the one on the PATH."""
    from localcluster import record  # noqa: PLC0415  (only a local cluster has a record)
    from localcluster.settings import Settings  # noqa: PLC0415  (as above)

    known = record.read(Settings.from_environment().layout(name))
    own = None if known is None else known.binaries.get("kubectl")
    found = own or shutil.which("kubectl")
    if found is None:
        raise errors.InvalidSpec("kubectl is not installed here; install it, then run this again")
    return Path(found)
