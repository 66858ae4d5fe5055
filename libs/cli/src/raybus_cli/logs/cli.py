"""`raybus logs`: options, exit code, and the logs in an archive of `raybus bundle`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from common import errors, labels
from common.api import ray_service
from common.api.core import Pod
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.kube.client import KubeClient
from common.kube.resources import RAY_CRON_JOB, RAY_JOB, RAY_SERVICE
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    LogsTargetArgument,
    NamespaceOption,
)
from raybus_cli.bundling import kept_logs
from raybus_cli.bundling.kept_logs import Archive, Index, KeptLog
from raybus_cli.logs import finding, selection, submitters
from raybus_cli.logs.driver_logs import DriverLog
from raybus_cli.logs.reading import LogReader
from raybus_cli.logs.selection import LineFormat, LogChoice, LogExtent, LogSource, Splitter
from raybus_cli.printing import LinesOption, Output
from raybus_cli.reading import job_reader, reader
from raybus_cli.reading.kinds import NamedTarget


def check(choice: LogChoice, extent: LogExtent) -> None:
    """Raise `InvalidSpec` for options that do not work with an archive."""
    needing = {
        "-f": extent.follow,
        "--since": extent.since is not None,
        "-p": extent.previous,
        "--app": choice.app is not None,
        "--deployment": choice.deployment is not None,
    }
    if wrong := [name for name, is_given in needing.items() if is_given]:
        raise errors.InvalidSpec(
            f"{' and '.join(wrong)} cannot be used with --bundle, which has the end of each log"
        )


def select(archive: Archive, target: NamedTarget, choice: LogChoice) -> list[KeptLog]:
    """Return the selected logs of an archive; raise `Rejected` if the archive has none of them."""
    index = archive.index
    if target.resource in {RAY_JOB, RAY_CRON_JOB}:
        raise errors.Rejected("a bundle has the logs of a RayService, and none of a job")
    cluster = target.name
    known = list(dict.fromkeys(log.cluster for log in index.logs))
    if target.resource is RAY_SERVICE:
        if target.name != index.service:
            raise errors.Rejected(
                f"the bundle is of RayService {index.service}, not of {target.name}"
            )
        cluster = selection.select_cluster(_build_service(index), choice.cluster, known)
    elif cluster not in known:
        raise errors.Rejected(
            f"the bundle has no logs of RayCluster {cluster}; it has {', '.join(known) or 'none'}"
        )
    pods = selection.select_pods(_build_pods(index, cluster), choice, cluster, target)
    names = [
        log.source for log in selection.select_logs(index.namespace, pods, choice, LogExtent())
    ]
    by_source = {
        LogSource(log.pod, log.container): log for log in index.logs if log.cluster == cluster
    }
    return [by_source[name] for name in names if name in by_source]


def render_logs(
    archive: Archive, kept_logs: list[KeptLog], form: LineFormat, tail: int | None
) -> Iterator[bytes]:
    """Yield the last `tail` lines (None: all) of each log, formatted for output.

    A log that is in the index but missing from the archive has no lines.
    """
    for log in kept_logs:
        splitter, source = Splitter(), LogSource(log.pod, log.container)
        whole = splitter.split(archive.texts.get(log.file, b"")) + splitter.end()
        for line in whole if tail is None else whole[len(whole) - min(tail, len(whole)) :]:
            yield selection.render(source, line, form)


def _build_service(index: Index) -> ray_service.RayService:
    status = {
        "activeServiceStatus": {"rayClusterName": index.active},
        "pendingServiceStatus": {"rayClusterName": index.pending},
    }
    meta = {"name": index.service, "namespace": index.namespace}
    return ray_service.decode({"metadata": meta, "spec": {}, "status": status})


def _build_pods(index: Index, cluster: str) -> list[Pod]:
    pods: dict[str, Json] = {}
    for log in index.logs:
        if log.cluster == cluster:
            marks = {labels.NODE_TYPE: log.node_type, labels.GROUP: log.group}
            empty: Json = {
                "metadata": {"name": log.pod, "labels": marks},
                "spec": {"containers": []},
            }
            pods.setdefault(log.pod, empty)["spec"]["containers"].append({"name": log.container})
    return msgspec.convert([*pods.values()], list[Pod])


def logs(
    target: LogsTargetArgument,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="active|pending|NAME",
            help="Cluster of the RayService; default: active.",
        ),
    ] = None,
    head: Annotated[bool, typer.Option("--head", help="The head pod; the default.")] = False,
    workers: Annotated[bool, typer.Option("--workers", help="All worker pods.")] = False,
    group: Annotated[
        str | None, typer.Option("--group", help="The pods of a worker group.")
    ] = None,
    pod: Annotated[
        str | None, typer.Option("--pod", help="One pod; with --app its replicas only.")
    ] = None,
    container: Annotated[
        str | None, typer.Option("--container", "-c", help="Default: the Ray container.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help=f"All pods, at most {selection.MAX_LOGS}.")
    ] = False,
    app: Annotated[
        str | None, typer.Option("--app", help="The replicas of a Serve application.")
    ] = None,
    deployment: Annotated[
        str | None, typer.Option("--deployment", help="The replicas of a Serve deployment.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new lines until Ctrl-C.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Start at this age: 10m, 90s.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", help="Last lines of each log; default: all.", min=0)
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="The log before the last restart.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(
            "--bundle", help="Read from an archive of 'raybus bundle', without a cluster."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep colors and escapes; not on a terminal.")
    ] = False,
    output: LinesOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Print logs of the pods of a RayService or RayCluster, by default of the head.

    For rayjob/NAME: the log of the driver, with --all of every submitter. If no
    pod submits the job, Ray's dashboard has the log. With -f a broken stream is
    resumed where it stopped. For raycronjob/NAME: the log of its newest RayJob.

    With several logs, each line begins with its pod. --app and --deployment
    print the logs of Serve replicas, read by Ray's dashboard. -o json prints a
    document per line: pod, container, line. Exit code 1 if a log could not be
    read.

    Examples:
    $ raybus logs demo --workers -f --tail 20
    $ raybus logs demo --app chat -n serving
    $ raybus logs rayjob/train -f
    $ raybus logs demo --cluster pending --bundle raybus-bundle-demo.tar.gz
    """
    try:
        extent = LogExtent(
            follow=follow, since=selection.parse_since(since), tail=tail, previous=previous
        )
        choice = LogChoice(
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
        if target.resource in {RAY_JOB, RAY_CRON_JOB}:
            submitters.check(choice)
        selection.check(choice, extent, target)
        selection.check_raw(raw, is_terminal=sys.stdout.isatty())
        if bundle is not None:
            check(choice, extent)
            _print_bundled(kept_logs.read(bundle), target, choice, tail, is_raw=raw, output=output)
            return
    except (errors.InvalidSpec, errors.Rejected) as problem:
        session.fail(problem)
    access = session.select_access(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> int:
        read = target
        if target.resource is RAY_CRON_JOB:
            read = await job_reader.find_newest_run(kube, access.namespace, target.name)
            _report(f"the newest run is {read.typed}")
        if read.resource is RAY_JOB:
            job = await reader.read_ray_job(kube, access.namespace, read.name)
            if not submitters.has_submitter(job):
                submitters.check_of_ray(choice, extent)
                form = LineFormat(is_raw=raw, is_json=output is Output.JSON)
                log = DriverLog(
                    kube, access.namespace, read.name, form, write=_write, report=_report
                )
                await log.copy(job, extent)
                return 0
            found_logs = await finding.find_driver_logs(kube, access.namespace, job, choice, extent)
        else:
            found_logs = await finding.find(
                kube, access.namespace, read, choice, extent, report=_report
            )
        form = LineFormat(
            is_prefixed=len(found_logs.logs) > 1 or every, is_raw=raw, is_json=output is Output.JSON
        )
        reading = LogReader(
            kube,
            access.namespace,
            form,
            is_following=follow,
            report=_report,
            headers=found_logs.headers,
        )
        return await reading.copy(found_logs.logs, _write)

    raise SystemExit(1 if session.run(access, work) else 0)


def _print_bundled(
    archive: Archive,
    target: NamedTarget,
    choice: LogChoice,
    tail: int | None,
    *,
    is_raw: bool,
    output: Output,
) -> None:
    found_logs = select(archive, target, choice)
    index = archive.index
    _report(
        f"from a bundle that was made {rfc3339(index.made)}, with the last {index.lines} lines "
        "of each log"
    )
    form = LineFormat(
        is_prefixed=len(found_logs) > 1 or choice.every,
        is_raw=is_raw,
        is_json=output is Output.JSON,
    )
    for chunk in render_logs(archive, found_logs, form, tail):
        _write(chunk)


def _write(chunk: bytes) -> None:
    typer.echo(chunk, nl=False)


def _report(text: str) -> None:
    printing.print_message(f"raybus logs: {text}", err=True)
