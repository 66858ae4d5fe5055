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
from raybus_cli.completion import names
from raybus_cli.output import printing
from raybus_cli.output.printing import Output, OutputOption
from raybus_cli.reading import reader
from raybus_cli.reading.reader import Items
from raybus_cli.show import listing, picture, tree, verdict
from raybus_cli.show.verdict import Course, Verdict

LOOK_EVERY: Final = 1.0
"""Seconds between looks while something is watched."""
WAKES_UP: Final = 60.0
"""Seconds for which an API server that was away may know neither kinds nor rights."""
REMIND_EVERY: Final = 10.0
"""Seconds after which `status` says again that it waits."""

T = TypeVar("T")
get = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False, help="Show one object.")
NameArgument = Annotated[str, typer.Argument(help="Name of the RayService.", autocompletion=names.services)]


@get.command("rayservice")
@get.command("rs", hidden=True)
@get.command("rayservices", hidden=True)
def rayservice(
    name: NameArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Go on looking until interrupted.")] = False,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show a RayService as a tree: clusters, pods, weights, capacities, how far an upgrade is.

    Example: raybus get rayservice demo -w
    """
    place = session.where(kubeconfig, context, namespace)
    if output is Output.NAME:
        session.run(place, lambda kube: reader.service(kube, place.namespace, name))
        printing.say(f"rayservice.ray.io/{name}")
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
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Those of all namespaces.")] = False,
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
                printing.say(f"{kind}.ray.io/{row.name}")
    else:
        _print_lists(found, wide=output is Output.WIDE, scope=scope)


def status(
    name: NameArgument,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait: 10m, 90s; 0 asks once.")] = "10m",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Wait until the spec as it is now serves; exit code 0 when it does, 1 when it failed, stalls, was aborted, or time is up.

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
        printing.say(found.text, err=found.course is not Course.DONE)
    raise SystemExit(0 if found.course is Course.DONE else 1)


async def _wait(kube: KubeClient, namespace: str, name: str, *, seconds: float) -> Verdict:
    """Look until a rollout is over or time is up; say each change, and now and then that we wait."""
    loop = asyncio.get_running_loop()
    began, told, told_at = loop.time(), "", 0.0
    away_until = 0.0
    while True:
        try:
            found = verdict.of(await reader.read(kube, namespace, name))
        except (errors.Unavailable, errors.Throttled) as problem:
            away_until = loop.time() + WAKES_UP
            found = Verdict(course=Course.GOING_ON, text=problems.line(problem))
        except (errors.Forbidden, errors.NotFound) as problem:
            if loop.time() > away_until:
                raise
            found = Verdict(course=Course.GOING_ON, text=f"the API server is not all there yet: {problem}")
        spent = loop.time() - began
        if found.course is not Course.GOING_ON:
            return found
        if spent >= seconds:
            return Verdict(course=Course.FAILED, text=f"not within {seconds:g} s: {found.text}")
        if found.text != told or spent - told_at >= REMIND_EVERY:
            printing.say(f"{spent:6.0f} s  {found.text}", err=True)
            told, told_at = found.text, spent
        await asyncio.sleep(min(LOOK_EVERY, max(0.0, seconds - spent)))


async def _follow(look: Callable[[], Awaitable[tree.Tree]], output: Output) -> None:
    """Show one look after the other: a live picture, plain lines where there is no terminal, documents for programs."""
    console = printing.console()
    if console.is_terminal and output in {Output.TEXT, Output.WIDE}:
        with Live(console=console, auto_refresh=False) as live:
            async for found in _looks(look):
                live.update(picture.draw(found, wide=output is Output.WIDE), refresh=True)
    told = ""
    async for found in _looks(look):
        if output in {Output.JSON, Output.YAML}:
            text = msgspec.json.encode(found).decode() if output is Output.JSON else printing.text_of(found, output)
        else:
            text = picture.line(found)
        if text != told:
            printing.say(text)
            told = text


async def _looks(look: Callable[[], Awaitable[tree.Tree]]) -> AsyncIterator[tree.Tree]:
    """Look again and again; an API server that does not answer is told once and waited for."""
    is_away = False
    while True:
        try:
            yield await look()
            is_away = False
        except (errors.Unavailable, errors.Throttled) as problem:
            if session.is_interrupted():
                raise
            if not is_away:
                printing.say(problems.line(problem), err=True)
            is_away = True
        await asyncio.sleep(LOOK_EVERY)


async def _all(kube: KubeClient, resource: Resource, view: type[T], scope: str | None) -> list[T]:
    return msgspec.json.decode(await kube.list(resource, scope), type=Items[view]).items


def _print_lists(found: listing.Listing, *, wide: bool, scope: str | None) -> None:
    if not found.services and not found.clusters:
        where = "in any namespace" if scope is None else f"in namespace {scope}; -A asks for all namespaces"
        printing.say(f"No RayService and no RayCluster {where}.", err=True)
        return
    all_namespaces = scope is None
    if found.services:
        printing.show(printing.table(*listing.service_table(found.services, wide=wide, all_namespaces=all_namespaces)))
    if found.services and found.clusters:
        typer.echo()
    if found.clusters:
        printing.show(printing.table(*listing.cluster_table(found.clusters, wide=wide, all_namespaces=all_namespaces)))
