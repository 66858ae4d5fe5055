"""`raybus get`, `raybus list`, `raybus status`: options, targets and exit codes.

Targets are written as for `kubectl get`.
"""

import difflib
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
import typer

from common import durations, errors
from common.kube.client import KubeClient
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NamespaceOption,
    StatusTargetArgument,
    TargetsArgument,
)
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.printing import Output, OutputOption
from raybus_cli.reading import job_reader, kinds
from raybus_cli.reading.kinds import KINDS, ArgumentKind, NamedTarget
from raybus_cli.show import frame, job_status, rollout_wait, sources, watching
from raybus_cli.show.frame import AnySnapshot, OutputFrame
from raybus_cli.show.rollout_status import RolloutState
from raybus_cli.show.sources import TableSource, TreeSource

ALL_KINDS: Final = "all"
"""kubectl's category `all`, to which the CRDs belong."""


class SelectedTargets(msgspec.Struct, frozen=True, kw_only=True):
    """What `raybus get` shows: tables of kinds, or single objects."""

    tables: tuple[ArgumentKind, ...] = ()
    objects: tuple[NamedTarget, ...] = ()


def parse(
    arguments: Sequence[str], *, all_namespaces: bool = False, selector: str = ""
) -> SelectedTargets:
    """Parse the arguments of `raybus get`.

    Raise `InvalidSpec` for combinations that kubectl refuses as well.
    """
    objects = _parse_slashed(arguments) if "/" in arguments[0] else _parse_named(arguments)
    if not objects:
        return SelectedTargets(tables=_parse_kinds(arguments[0]))
    if all_namespaces:
        raise errors.InvalidSpec(
            "a name and -A exclude each other: name the namespace with -n, or omit the name"
        )
    if selector:
        raise errors.InvalidSpec("a name and -l exclude each other: omit the name, or the selector")
    return SelectedTargets(objects=tuple(dict.fromkeys(objects)))


def _parse_slashed(arguments: Sequence[str]) -> list[NamedTarget]:
    targets: list[NamedTarget] = []
    for text in arguments:
        kind, slash, name = text.partition("/")
        if not slash or not name:
            raise errors.InvalidSpec(
                f"{text!r} is not KIND/NAME; write 'rayservice/NAME', or 'rayservice NAME NAME'"
            )
        targets += [NamedTarget(_kind, name) for _kind in _parse_kinds(kind)]
    return targets


def _parse_named(arguments: Sequence[str]) -> list[NamedTarget]:
    first, *names = arguments
    if slashed := next((name for name in names if "/" in name), None):
        raise errors.InvalidSpec(
            f"{slashed!r} names its kind already: omit {first!r}, or the part before the slash"
        )
    return [NamedTarget(kind, name) for kind in _parse_kinds(first) for name in names]


def _parse_kinds(text: str) -> tuple[ArgumentKind, ...]:
    """Parse a list of kinds such as `rayservices,rayclusters`."""
    return tuple(
        dict.fromkeys(
            kind
            for part in text.split(",")
            for kind in ([*KINDS] if part == ALL_KINDS else [_parse_kind(part)])
        )
    )


def _parse_kind(text: str) -> ArgumentKind:
    kind = kinds.find(text)
    if kind is None:
        close = difflib.get_close_matches(text.casefold(), [kind.singular for kind in KINDS], n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "for other kinds use 'kubectl get'"
        names = ", ".join(kind.singular for kind in KINDS)
        raise errors.InvalidSpec(f"{text!r} is none of {names}; {remedy}")
    return kind


WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Watch for changes until interrupted.")
]
AllNamespacesOption = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="Show all namespaces.")
]
SelectorOption = Annotated[
    str,
    typer.Option(
        "--selector", "-l", help="Show objects with these labels: app=demo, 'tier in (a,b)'."
    ),
]


def get(
    arguments: TargetsArgument,
    watch: WatchOption = False,
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show RayServices, RayClusters, RayJobs or RayCronJobs.

    With names they are shown as trees, without names as a table.

    Targets are written as for kubectl: rayservices, rayservice NAME NAME,
    rayservice/NAME rayjob/NAME.

    Examples:
    $ raybus get rayservice demo
    $ raybus get raycluster -A -l app=demo -w
    $ raybus get rayjob/train raycronjob/nightly
    """
    try:
        asked = parse(arguments, all_namespaces=all_namespaces, selector=selector)
    except errors.InvalidSpec as problem:
        session.fail(problem)
    access = session.select_access(kubeconfig, context, namespace)
    if asked.tables:
        scope = None if all_namespaces else access.namespace
        _show_tables(
            TableSource(asked.tables, scope, selector, wide=output is Output.WIDE),
            access,
            output,
            watch=watch,
        )
        return
    if watch:
        trees = TreeSource(access.namespace, asked.objects, wide=output is Output.WIDE)
        session.run(access, lambda kube: watching.follow(kube, trees, output))
        return
    _show_trees(access, asked.objects, output)


def list_(
    watch: WatchOption = False,
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """List all RayServices, RayClusters, RayJobs and RayCronJobs.

    Examples:
    $ raybus list
    $ raybus list -A -o wide
    """
    access = session.select_access(kubeconfig, context, namespace)
    scope = None if all_namespaces else access.namespace
    _show_tables(
        TableSource(KINDS, scope, selector, wide=output is Output.WIDE), access, output, watch=watch
    )


def status(
    target: StatusTargetArgument,
    timeout: Annotated[
        str, typer.Option("--timeout", help="Longest wait: 10m, 90s; 0 checks once.")
    ] = "10m",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Wait until the present spec of a RayService is served, or a RayJob has ended.

    For a RayCronJob, its newest RayJob counts. The wait ends early for a cause
    that does not go away with time. Exit code 0 if the spec is served or the
    job succeeded, 1 if the rollout failed, is stalled or aborted or the job
    failed, 3 after the timeout.

    Examples:
    $ raybus status demo --timeout 0
    $ raybus status rayjob/train --timeout 2h
    $ kubectl apply -f demo.yaml && raybus status demo --timeout 15m
    """
    length = durations.parse_or_seconds(timeout)
    if length is None or length.total_seconds() < 0:
        session.fail(
            errors.InvalidSpec(
                f"--timeout {timeout!r} is no duration; write for example 10m, 90s or 0"
            )
        )
    access = session.select_access(kubeconfig, context, namespace)
    name, seconds = target.name, length.total_seconds()
    if target.kind == kinds.CRON_JOB:
        newest = session.run(
            access, lambda kube: job_reader.find_newest_run(kube, access.namespace, target.name)
        )
        raise SystemExit(job_status.show(access, newest.name, output, seconds=seconds))
    if target.kind == kinds.JOB:
        raise SystemExit(job_status.show(access, name, output, seconds=seconds))
    rollout = session.run(
        access,
        lambda kube: rollout_wait.wait_until_over(kube, access.namespace, name, seconds=seconds),
    )
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(rollout, output)
    elif output is Output.NAME:
        printing.print_message(kinds.SERVICE.format_name(name))
    else:
        printing.print_message(rollout.text, err=rollout.course is not RolloutState.DONE)
    raise SystemExit(rollout_wait.EXIT_CODES.get(rollout.course, 1))


def _show_tables(tables: TableSource, access: KubeAccess, output: Output, *, watch: bool) -> None:
    if watch:
        session.run(access, lambda kube: watching.follow(kube, tables, output))
        return
    listing = session.run(access, lambda kube: tables.read(kube, session.read_clock()))
    _print(listing, output)
    for unseen in tables.unseen:
        printing.print_message(f"not readable: {unseen}", err=True)
    if not listing.items and output not in {Output.JSON, Output.YAML}:
        printing.print_message(tables.empty_message, err=True)


def _show_trees(access: KubeAccess, objects: Sequence[NamedTarget], output: Output) -> None:
    """Print the objects that exist, then report those that do not exist."""

    async def work(kube: KubeClient) -> tuple[OutputFrame, list[errors.NotFound]]:
        snapshots: list[AnySnapshot] = []
        missing: list[errors.NotFound] = []
        for target in objects:
            try:
                snapshots.append(await sources.read_one(kube, access.namespace, target))
            except session.NoSuchObject as problem:
                missing.append(await session.find_elsewhere(kube, problem))
        return frame.build_trees(
            snapshots, now=session.read_clock(), wide=output is Output.WIDE
        ), missing

    shown, missing = session.run(access, work)
    if shown.items:
        _print(shown, output)
    for error in missing[:-1]:
        printing.print_message(f"error: {session.format_error(error)}", err=True)
    if missing:
        session.fail(missing[-1])


def _print(shown: OutputFrame, output: Output) -> None:
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(shown.document, output)
    elif output is Output.NAME:
        for item in shown.items:
            printing.print_message(item.full_name)
    elif shown.picture is not None:
        printing.show(shown.picture)
