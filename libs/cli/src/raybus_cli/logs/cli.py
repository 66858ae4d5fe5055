"""`raybus logs`: the options, the objects that are read to find the logs, and the exit code."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from common import errors, labels
from common.api.core import Pod
from common.api.meta import Items, rfc3339
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE, SERVICE, label_selector
from common.ray import owner
from common.ray.dashboard import APPLICATIONS, LARGEST_STATUS
from common.ray.view import dashboard_service
from raybus_cli.access import problems, session
from raybus_cli.bundling import kept_logs
from raybus_cli.bundling.kept_logs import Archive
from raybus_cli.completion.places import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.completion.targets import TargetArgument
from raybus_cli.logs import bundled, gone, replicas, selection
from raybus_cli.logs.lines import Form
from raybus_cli.logs.reading import Reader
from raybus_cli.logs.selection import Choice, Extent, Log
from raybus_cli.output import printing
from raybus_cli.output.printing import LinesOption, Output
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import Target

DECLARATIVE: Final = {"api_type": "declarative"}


def logs(
    target: TargetArgument,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="active|pending|NAME", help="Cluster of the RayService; default: active."),
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="The head pod; the default.")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="All worker pods.")] = False,
    group: Annotated[str | None, typer.Option("--group", help="The pods of a worker group.")] = None,
    pod: Annotated[str | None, typer.Option("--pod", help="One pod; with --app its replicas only.")] = None,
    container: Annotated[str | None, typer.Option("--container", "-c", help="Default: the Ray container.")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"All pods, at most {selection.MOST}.")] = False,
    app: Annotated[str | None, typer.Option("--app", help="The replicas of a Serve application.")] = None,
    deployment: Annotated[str | None, typer.Option("--deployment", help="The replicas of a Serve deployment.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")] = False,
    since: Annotated[str | None, typer.Option("--since", help="Start at this age: 10m, 90s.")] = None,
    tail: Annotated[int | None, typer.Option("--tail", help="Last lines of each log; default: all.", min=0)] = None,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="The log before the last restart.")] = False,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Read from an archive of 'raybus bundle', without a cluster.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Keep colors and escapes; not on a terminal.")] = False,
    output: LinesOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Print logs of a RayService's or RayCluster's pods, by default of the head; of several, each line begins with its pod.

    --app and --deployment print the logs of Serve's replicas, read by Ray's dashboard. -o json prints a document a line:
    pod, container, line. Exit code 1 when a log could not be read.

    Examples:
    $ raybus logs demo --workers -f --tail 20
    $ raybus logs demo --app chat -n serving
    $ raybus logs demo --cluster pending --bundle raybus-bundle-demo.tar.gz
    """
    try:
        extent = Extent(follow=follow, since=selection.since(since), tail=tail, previous=previous)
        choice = Choice(
            cluster=cluster,
            head=head,
            workers=workers,
            group=group,
            pod=pod,
            container=container,
            every=every,
            app=app,
            deployment=deployment,
        )
        selection.check(choice, extent, target)
        selection.check_raw(raw, is_terminal=sys.stdout.isatty())
        if bundle is not None:
            bundled.check(choice, extent)
            _print_bundled(kept_logs.read(bundle), target, choice, tail, is_raw=raw, output=output)
            return
    except (errors.InvalidSpec, errors.Rejected) as problem:
        session.fail(problem)
    place = session.where(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> int:
        found = await _find(kube, place.namespace, target, choice, extent)
        form = Form(is_prefixed=len(found) > 1 or every, is_raw=raw, is_json=output is Output.JSON)
        reading = Reader(kube, place.namespace, form, is_following=follow, report=_report)
        return await reading.copy(found, _write)

    raise SystemExit(1 if session.run(place, work) else 0)


def _print_bundled(
    archive: Archive, target: Target, choice: Choice, tail: int | None, *, is_raw: bool, output: Output
) -> None:
    found = bundled.select(archive, target, choice)
    index = archive.index
    _report(f"from a bundle that was made {rfc3339(index.made)}, with the last {index.lines} lines of each log")
    form = Form(is_prefixed=len(found) > 1 or choice.every, is_raw=is_raw, is_json=output is Output.JSON)
    for chunk in bundled.rendered(archive, found, form, tail):
        _write(chunk)


async def _find(kube: KubeClient, namespace: str, target: Target, choice: Choice, extent: Extent) -> list[Log]:
    name = target.name
    if target.resource is RAY_SERVICE:
        name = await _cluster_of(kube, namespace, target, choice)
    if choice.is_of_serve or target.resource is RAY_CLUSTER:
        cluster = await _there(kube, namespace, name)
        if choice.is_of_serve:
            return await _of_serve(kube, namespace, dashboard_service(cluster), choice, extent)
    body = await kube.list(POD, namespace, label_selector=label_selector({labels.CLUSTER: name}))
    pods = selection.pods(msgspec.json.decode(body, type=Items[Pod]).items, choice, name, target)
    return selection.logs(namespace, pods, choice, extent)


async def _cluster_of(kube: KubeClient, namespace: str, target: Target, choice: Choice) -> str:
    service, known = await reader.service(kube, namespace, target.name), list[str]()
    if choice.cluster not in {None, selection.ACTIVE, selection.PENDING}:
        body = await kube.list(RAY_CLUSTER, namespace, label_selector=label_selector(owner.marks(target.name)))
        known = [each.metadata.name for each in msgspec.json.decode(body, type=Items[RayCluster]).items]
        if choice.cluster not in known and (problem := gone.problem(choice.cluster or "", [service])) is not None:
            raise problem
    name = selection.cluster(service, choice.cluster, known)
    if choice.cluster is None and name != service.status.active_service_status.ray_cluster_name:
        _report(f"no cluster is active yet; these are the logs of the pending one, {name}")
    return name


async def _there(kube: KubeClient, namespace: str, name: str) -> RayCluster:
    """Read a RayCluster; of one that is gone, raise since when, where a RayService knows it."""
    try:
        return await reader.cluster(kube, namespace, name)
    except problems.NoSuchObject as problem:
        services: list[RayService] = []
        with contextlib.suppress(errors.RaybusError):
            services = await reader.listed(kube, RAY_SERVICE, RayService, namespace, "")
        raise gone.problem(name, services) or problem from problem


async def _of_serve(kube: KubeClient, namespace: str, service: str, choice: Choice, extent: Extent) -> list[Log]:
    path = SERVICE.proxy(namespace, service, replicas.PORT, APPLICATIONS)
    try:
        body = await kube.request("GET", path, query=DECLARATIVE, most=LARGEST_STATUS)
    except (errors.NotFound, errors.Unavailable) as problem:
        raise errors.Rejected(
            f"the dashboard at {service} cannot be reached through the API server: {problem}; is the head ready? Its log: --head"
        ) from problem
    return selection.bounded(replicas.logs(replicas.decode(body), namespace, service, choice, extent))


def _write(chunk: bytes) -> None:
    typer.echo(chunk, nl=False)


def _report(text: str) -> None:
    printing.message(f"raybus logs: {text}", err=True)
