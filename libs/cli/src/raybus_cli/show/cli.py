"""`raybus get`, `raybus list`, `raybus status`: the options, the waiting, and the exit codes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final, TypeVar

import msgspec
import typer
from rich.live import Live

from common import durations, errors
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from raybus_cli.access import problems, session
from raybus_cli.access.kubeconfig import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.completion.names import NameArgument
from raybus_cli.output import printing
from raybus_cli.output.printing import Output, OutputOption
from raybus_cli.reading import reader
from raybus_cli.reading.reader import Items
from raybus_cli.show import listing, picture, rollout_status, tree
from raybus_cli.show.rollout_status import RolloutState, RolloutStatus

POLL_SECONDS: Final = 1.0
"""Seconds between reads while something is watched."""
STARTUP_SECONDS: Final = 60.0
"""Seconds for which a restarted API server may serve neither kinds nor rights."""
REMIND_EVERY: Final = 10.0
"""Seconds after which `status` repeats why it waits."""

T = TypeVar("T")
get = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, help="Show one object.")


@get.command("rayservice")
@get.command("rs", hidden=True)
@get.command("rayservices", hidden=True)
def rayservice(
    name: NameArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch for changes until interrupted.")] = False,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show a RayService as a tree: clusters, pods, weights, capacities, and the progress of an upgrade.

    Example: raybus get rayservice demo -w
    """
    place = session.where(kubeconfig, context, namespace)
    if output is Output.NAME:
        session.run(place, lambda kube: reader.service(kube, place.namespace, name))
        printing.message(f"rayservice.ray.io/{name}")
        return

    async def once(kube: KubeClient) -> tree.Tree:
        return tree.build(await reader.read(kube, place.namespace, name), now=session.now())

    async def follow(kube: KubeClient) -> None:
        await _follow(lambda: once(kube), output)

    if watch:
        session.run(place, follow)
        return
    found = session.run(place, once)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    else:
        printing.show(picture.draw(found, wide=output is Output.WIDE))


def list_(
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Show all namespaces.")] = False,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """List all RayServices and RayClusters.

    Example: raybus list -A -o wide
    """
    place = session.where(kubeconfig, context, namespace)
    scope = None if all_namespaces else place.namespace

    async def work(kube: KubeClient) -> listing.Listing:
        services = await _all(kube, RAY_SERVICE, RayService, scope)
        clusters = await _all(kube, RAY_CLUSTER, RayCluster, scope)
        return listing.build(services, clusters, now=session.now())

    found = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    elif output is Output.NAME:
        for kind, rows in (("rayservice", found.services), ("raycluster", found.clusters)):
            for row in rows:
                printing.message(f"{kind}.ray.io/{row.name}")
    else:
        _print_lists(found, wide=output is Output.WIDE, scope=scope)


def status(
    name: NameArgument,
    timeout: Annotated[str, typer.Option("--timeout", help="Longest wait: 10m, 90s; 0 checks once.")] = "10m",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Wait until the present spec is served; exit code 0 when it is, 1 when it failed, is stalled or aborted, or after the timeout.

    Example: kubectl apply -f demo.yaml && raybus status demo --timeout 15m
    """
    length = durations.parse_or_seconds(timeout)
    if length is None or length.total_seconds() < 0:
        session.fail(errors.InvalidSpec(f"--timeout {timeout!r} is no duration; write for example 10m, 90s or 0"))
    place = session.where(kubeconfig, context, namespace)
    seconds = length.total_seconds()
    found = session.run(place, lambda kube: _wait(kube, place.namespace, name, seconds=seconds))
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    else:
        printing.message(found.text, err=found.course is not RolloutState.DONE)
    raise SystemExit(0 if found.course is RolloutState.DONE else 1)


async def _wait(kube: KubeClient, namespace: str, name: str, *, seconds: float) -> RolloutStatus:
    """Read until a rollout is over or time is up; print each change, and a reminder now and then."""
    loop = asyncio.get_running_loop()
    began, reported, reported_at = loop.time(), "", 0.0
    away_until = 0.0
    while True:
        try:
            found = rollout_status.of(await reader.read(kube, namespace, name))
        except (errors.Unavailable, errors.Throttled) as problem:
            away_until = loop.time() + STARTUP_SECONDS
            found = RolloutStatus(course=RolloutState.GOING_ON, text=problems.line(problem))
        except (errors.Forbidden, errors.NotFound) as problem:
            if loop.time() > away_until:
                raise
            found = RolloutStatus(course=RolloutState.GOING_ON, text=f"the API server is not ready yet: {problem}")
        spent = loop.time() - began
        if found.course is not RolloutState.GOING_ON:
            return found
        if spent >= seconds:
            return RolloutStatus(course=RolloutState.FAILED, text=f"not within {seconds:g} s: {found.text}")
        if found.text != reported or spent - reported_at >= REMIND_EVERY:
            printing.message(f"{spent:6.0f} s  {found.text}", err=True)
            reported, reported_at = found.text, spent
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, seconds - spent)))


async def _follow(read: Callable[[], Awaitable[tree.Tree]], output: Output) -> None:
    """Show each read: a live tree, plain lines where there is no terminal, documents for programs."""
    console = printing.console()
    if console.is_terminal and output in {Output.TEXT, Output.WIDE}:
        with Live(console=console, auto_refresh=False) as live:
            async for found in _poll(read):
                live.update(picture.draw(found, wide=output is Output.WIDE), refresh=True)
    reported = ""
    async for found in _poll(read):
        if output in {Output.JSON, Output.YAML}:
            text = msgspec.json.encode(found).decode() if output is Output.JSON else printing.text_of(found, output)
        else:
            text = picture.line(found)
        if text != reported:
            printing.message(text)
            reported = text


async def _poll(read: Callable[[], Awaitable[tree.Tree]]) -> AsyncIterator[tree.Tree]:
    """Read periodically; an API server that does not answer is reported once and waited for."""
    is_away = False
    while True:
        try:
            yield await read()
            is_away = False
        except (errors.Unavailable, errors.Throttled) as problem:
            if session.is_interrupted():
                raise
            if not is_away:
                printing.message(problems.line(problem), err=True)
            is_away = True
        await asyncio.sleep(POLL_SECONDS)


async def _all(kube: KubeClient, resource: Resource, view: type[T], scope: str | None) -> list[T]:
    return msgspec.json.decode(await kube.list(resource, scope), type=Items[view]).items


def _print_lists(found: listing.Listing, *, wide: bool, scope: str | None) -> None:
    if not found.services and not found.clusters:
        where = "in any namespace" if scope is None else f"in namespace {scope}; -A shows all namespaces"
        printing.message(f"No RayService and no RayCluster {where}.", err=True)
        return
    all_namespaces = scope is None
    if found.services:
        printing.show(listing.service_table(found.services, wide=wide, all_namespaces=all_namespaces))
    if found.services and found.clusters:
        typer.echo()
    if found.clusters:
        printing.show(listing.cluster_table(found.clusters, wide=wide, all_namespaces=all_namespaces))
