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
from localcluster.demo.demo_cluster import DemoCluster, GatewayTiming, LateGateway, Load
from localcluster.demo.scenario import DemoOptions, DemoStrategy, Scenario
from localcluster.demo.tally import DemoReceipt
from localcluster.demo.view import View
from localcluster.driver import DriverName
from localcluster.progress import format_duration
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
        DemoStrategy,
        typer.Option(
            help="Move the traffic at once, or in steps through a Gateway (driver built)."
        ),
    ] = DemoStrategy.BLUE_GREEN,
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
            manifests=_find_manifests(),
            least_requests=requests,
            load=Load(rate=rate),
            strategy=strategy,
        )
        in_steps, is_kept = (
            strategy is DemoStrategy.INCREMENTAL,
            keep and driver != DriverName.KUBECONFIG,
        )
        when = demo_cluster.decide_gateway(in_steps=in_steps, is_kept=is_kept, wanted=gateway)
        outcome = _run(driver, name, kubeconfig, plan=plan, gateway=when, keep=keep, began=began)
    except errors.RaybusError as problem:
        typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(session.find_exit_code(problem)) from problem
    as_json = msgspec.json.format(msgspec.json.encode(outcome)).decode()
    if save is not None:
        save.write_text(as_json + "\n")
    if output is Output.JSON:
        typer.echo(as_json)
    else:
        printing.show(tally.render(outcome))
    is_there = keep or driver == "kubeconfig"
    has_gateway = is_there and kubeconfig is None and _has_gateway(name)
    typer.echo(
        format_next_steps(name, kubeconfig, is_kept=is_there, has_gateway=has_gateway), err=True
    )
    raise typer.Exit(0 if outcome.ok else 1)


def format_next_steps(
    name: str | None, kubeconfig: Path | None, *, is_kept: bool, has_gateway: bool = False
) -> str:
    """Return a text with the commands that a user is likely to run after the demo.

    `is_kept` says whether the cluster still runs, and `has_gateway` whether it has a gateway.
    """
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
    gateway: GatewayTiming,
    keep: bool,
    began: float,
) -> DemoReceipt:
    # A gateway is not needed for the first answer, so a node built here installs it while that
    # answer is on its way.
    archives = [] if driver == "kubeconfig" else asyncio.run(demo_cluster.prepare(driver))
    cluster = demo_cluster.start_cluster(driver, name, kubeconfig, gateway=gateway, images=archives)
    try:
        if archives:
            demo_cluster.load_images(archives, name)
        kubectl = Kubectl(binary=_find_kubectl(name), kubeconfig=cluster.kubeconfig)
        is_late = gateway is GatewayTiming.LATER and cluster.driver == DriverName.BUILT
        return asyncio.run(_perform(plan, kubectl, cluster, began, is_late=is_late))
    finally:
        if not keep and driver != "kubeconfig":
            demo_cluster.remove_cluster(name)


async def _perform(
    plan: DemoOptions, kubectl: Kubectl, cluster: DemoCluster, began: float, *, is_late: bool
) -> DemoReceipt:
    view = View()
    kube = await KubeClient.connect(kubeconfig=kubectl.kubeconfig, user_agent="raybus-demo")
    try:
        scenario = Scenario(plan, kubectl, kube, view)
        in_steps = plan.strategy is DemoStrategy.INCREMENTAL
        adding = (
            demo_cluster.add_gateway(
                demo_cluster.build_gateway_command(cluster.driver, cluster.name)
            )
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
                answer = await scenario.wait_for_answer()
                seconds = round(time.monotonic() - began, 1)
                typer.echo(
                    f"First answer of the model after {format_duration(seconds)}: {answer}",
                    err=True,
                )
                if in_steps and late is not None:
                    await scenario.wait_for_gateway(late)
                receipt = await scenario.run_upgrade()
                if not in_steps and late is not None:
                    await _wait_for_gateway(scenario, late)
        return msgspec.structs.replace(receipt, first_answer_seconds=seconds)
    finally:
        await kube.close()


async def _wait_for_gateway(scenario: Scenario, late: LateGateway) -> None:
    """Wait for a gateway that only the user's later upgrades need.

    If the gateway fails, print a message and continue.
    """
    try:
        await scenario.wait_for_gateway(late)
    except errors.RaybusError as problem:
        typer.echo(
            f"Upgrades in steps need a gateway: {problem}; 'raybus cluster up --gateway' adds one.",
            err=True,
        )


def _find_manifests() -> Path:
    for folder in (Path.cwd(), *Path(__file__).resolve().parents):
        if (folder / "deploy" / "demo" / "v1").is_dir():
            return folder / "deploy"
    raise errors.InvalidSpec("deploy/demo is not here; run this command in a checkout of raybus")


def _has_gateway(name: str | None) -> bool:
    """Return whether the record of a local cluster says that it has a gateway."""
    from localcluster import driver  # noqa: PLC0415  (only a local cluster has a record)
    from localcluster.settings import LocalSettings  # noqa: PLC0415  (as above)

    known = driver.read(LocalSettings.from_environment().layout(name))
    return known is not None and known.gateway


def _find_kubectl(name: str | None) -> Path:
    """Return the path of the local cluster's own kubectl, or of the one on the PATH.

    Raises `InvalidSpec` if neither exists.
    """
    from localcluster import driver  # noqa: PLC0415  (only a local cluster has a record)
    from localcluster.settings import LocalSettings  # noqa: PLC0415  (as above)

    known = driver.read(LocalSettings.from_environment().layout(name))
    own = None if known is None else known.binaries.get("kubectl")
    kubectl = own or shutil.which("kubectl")
    if kubectl is None:
        raise errors.InvalidSpec("kubectl is not installed here; install it, then run this again")
    return Path(kubectl)
