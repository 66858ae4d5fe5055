"""`raybus logs`: the options, and the exit code."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from common import errors
from common.api.meta import rfc3339
from common.kube.client import KubeClient
from raybus_cli.access import session
from raybus_cli.bundling import kept_logs
from raybus_cli.bundling.kept_logs import Archive
from raybus_cli.completion.places import ContextOption, KubeconfigOption, NamespaceOption
from raybus_cli.completion.targets import TargetArgument
from raybus_cli.logs import bundled, finding, selection
from raybus_cli.logs.lines import Form
from raybus_cli.logs.reading import Reader
from raybus_cli.logs.selection import Choice, Extent
from raybus_cli.output import printing
from raybus_cli.output.printing import LinesOption, Output
from raybus_cli.reading.kinds import Target


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
        found = await finding.find(kube, place.namespace, target, choice, extent, report=_report)
        form = Form(is_prefixed=len(found.logs) > 1 or every, is_raw=raw, is_json=output is Output.JSON)
        reading = Reader(kube, place.namespace, form, is_following=follow, report=_report, headers=found.headers)
        return await reading.copy(found.logs, _write)

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


def _write(chunk: bytes) -> None:
    typer.echo(chunk, nl=False)


def _report(text: str) -> None:
    printing.message(f"raybus logs: {text}", err=True)
