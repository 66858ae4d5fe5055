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
    NameArgument,
    NamespaceOption,
    TargetsArgument,
)
from raybus_cli.kubeconfig import Where
from raybus_cli.printing import Output, OutputOption
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import KINDS, Kind, Target
from raybus_cli.reading.snapshot import ClusterSnapshot, Snapshot
from raybus_cli.show import frame, rollout_wait, sources, watching
from raybus_cli.show.frame import Frame
from raybus_cli.show.rollout_status import RolloutState
from raybus_cli.show.sources import Tables, Trees

ALL: Final = "all"
"""kubectl's category `all`, to which both CRDs belong."""


class Targets(msgspec.Struct, frozen=True, kw_only=True):
    """What `raybus get` shows: tables of kinds, or single objects."""

    tables: tuple[Kind, ...] = ()
    objects: tuple[Target, ...] = ()


def parse(arguments: Sequence[str], *, all_namespaces: bool = False, selector: str = "") -> Targets:
    """Parse the arguments of `raybus get`.

    Raise `InvalidSpec` for combinations that kubectl refuses as well.
    """
    objects = _slashed(arguments) if "/" in arguments[0] else _named(arguments)
    if not objects:
        return Targets(tables=_kinds(arguments[0]))
    if all_namespaces:
        raise errors.InvalidSpec(
            "a name and -A exclude each other: name the namespace with -n, or omit the name"
        )
    if selector:
        raise errors.InvalidSpec("a name and -l exclude each other: omit the name, or the selector")
    return Targets(objects=tuple(dict.fromkeys(objects)))


def _slashed(arguments: Sequence[str]) -> list[Target]:
    found: list[Target] = []
    for text in arguments:
        kind, slash, name = text.partition("/")
        if not slash or not name:
            raise errors.InvalidSpec(
                f"{text!r} is not KIND/NAME; write 'rayservice/NAME', or 'rayservice NAME NAME'"
            )
        found += [Target(each, name) for each in _kinds(kind)]
    return found


def _named(arguments: Sequence[str]) -> list[Target]:
    first, *names = arguments
    if slashed := next((each for each in names if "/" in each), None):
        raise errors.InvalidSpec(
            f"{slashed!r} names its kind already: omit {first!r}, or the part before the slash"
        )
    return [Target(kind, name) for kind in _kinds(first) for name in names]


def _kinds(text: str) -> tuple[Kind, ...]:
    """Parse a list of kinds such as `rayservices,rayclusters`."""
    return tuple(
        dict.fromkeys(
            kind
            for part in text.split(",")
            for kind in ([*KINDS] if part == ALL else [_kind(part)])
        )
    )


def _kind(text: str) -> Kind:
    found = kinds.find(text)
    if found is None:
        close = difflib.get_close_matches(text.casefold(), [each.singular for each in KINDS], n=1)
        remedy = f"did you mean {close[0]!r}?" if close else "for other kinds use 'kubectl get'"
        raise errors.InvalidSpec(f"{text!r} is neither rayservice nor raycluster; {remedy}")
    return found


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
    """Show RayServices or RayClusters: with names as trees, without names as a table.

    Targets are written as for kubectl: rayservices, rayservice NAME NAME,
    rayservice/NAME raycluster/NAME.

    Examples:
    $ raybus get rayservice demo
    $ raybus get raycluster -A -l app=demo -w
    """
    try:
        asked = parse(arguments, all_namespaces=all_namespaces, selector=selector)
    except errors.InvalidSpec as problem:
        session.fail(problem)
    place = session.where(kubeconfig, context, namespace)
    if asked.tables:
        scope = None if all_namespaces else place.namespace
        _show_tables(
            Tables(asked.tables, scope, selector, wide=output is Output.WIDE),
            place,
            output,
            watch=watch,
        )
        return
    if watch:
        trees = Trees(place.namespace, asked.objects, wide=output is Output.WIDE)
        session.run(place, lambda kube: watching.follow(kube, trees, output))
        return
    _show_trees(place, asked.objects, output)


def list_(
    watch: WatchOption = False,
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """List all RayServices and RayClusters.

    Examples:
    $ raybus list
    $ raybus list -A -o wide
    """
    place = session.where(kubeconfig, context, namespace)
    scope = None if all_namespaces else place.namespace
    _show_tables(
        Tables(KINDS, scope, selector, wide=output is Output.WIDE), place, output, watch=watch
    )


def status(
    name: NameArgument,
    timeout: Annotated[
        str, typer.Option("--timeout", help="Longest wait: 10m, 90s; 0 checks once.")
    ] = "10m",
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Wait until the present spec of a RayService is served.

    The wait ends early for a cause that does not go away with time. Exit code 0
    if the spec is served, 1 if the rollout failed, is stalled or aborted, 3
    after the timeout.

    Examples:
    $ raybus status demo --timeout 0
    $ kubectl apply -f demo.yaml && raybus status demo --timeout 15m
    """
    length = durations.parse_or_seconds(timeout)
    if length is None or length.total_seconds() < 0:
        session.fail(
            errors.InvalidSpec(
                f"--timeout {timeout!r} is no duration; write for example 10m, 90s or 0"
            )
        )
    place = session.where(kubeconfig, context, namespace)
    seconds = length.total_seconds()
    found = session.run(
        place, lambda kube: rollout_wait.until_over(kube, place.namespace, name, seconds=seconds)
    )
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    elif output is Output.NAME:
        printing.message(kinds.SERVICE.full(name))
    else:
        printing.message(found.text, err=found.course is not RolloutState.DONE)
    raise SystemExit(rollout_wait.EXIT_CODES.get(found.course, 1))


def _show_tables(tables: Tables, place: Where, output: Output, *, watch: bool) -> None:
    if watch:
        session.run(place, lambda kube: watching.follow(kube, tables, output))
        return
    found = session.run(place, lambda kube: tables.read(kube, session.now()))
    _print(found, output)
    if not found.items and output not in {Output.JSON, Output.YAML}:
        printing.message(tables.nothing, err=True)


def _show_trees(place: Where, objects: Sequence[Target], output: Output) -> None:
    """Print the objects that exist, then report the others."""

    async def work(kube: KubeClient) -> tuple[Frame, list[errors.NotFound]]:
        found: list[Snapshot | ClusterSnapshot] = []
        missing: list[errors.NotFound] = []
        for each in objects:
            try:
                found.append(await sources.one(kube, place.namespace, each))
            except session.NoSuchObject as problem:
                missing.append(await session.located(kube, problem))
        return frame.of_trees(found, now=session.now(), wide=output is Output.WIDE), missing

    shown, missing = session.run(place, work)
    if shown.items:
        _print(shown, output)
    for each in missing[:-1]:
        printing.message(f"error: {session.line(each)}", err=True)
    if missing:
        session.fail(missing[-1])


def _print(found: Frame, output: Output) -> None:
    if output in {Output.JSON, Output.YAML}:
        printing.data(found.document, output)
    elif output is Output.NAME:
        for each in found.items:
            printing.message(each.full_name)
    elif found.picture is not None:
        printing.show(found.picture)
