"""The commands that control upgrades: options, and a table of revisions."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

import typer

from common import errors
from common.api.meta import rfc3339
from common.kube.client import KubeClient
from common.kube.resources import CONTROLLER_REVISION
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    HistoryTargetArgument,
    KubeconfigOption,
    NamesArgument,
    NamespaceOption,
    RaybusNamespaceOption,
)
from raybus_cli.control import actions, performing
from raybus_cli.control import history as histories
from raybus_cli.control.actions import ControlAction
from raybus_cli.control.performing import TIMEOUT, Reporting, TimeoutOption, WaitOption, Write
from raybus_cli.events import connection, job_history, run
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.events.run import NatsAccess
from raybus_cli.explaining import findings
from raybus_cli.planning import picture
from raybus_cli.planning.plan import UpgradePlan
from raybus_cli.printing import Column, Output, OutputOption, ResultOption, Table, format_age
from raybus_cli.reading import kinds, reader
from raybus_cli.reading.snapshot import Snapshot

COLUMNS: Final = (
    Column("revision"),
    Column("cluster"),
    Column("role", 1),
    Column("current"),
    Column("outcome"),
)
WIDE_COLUMNS: Final = (
    Column("created", 4),
    Column("applications", 3),
    Column("ray", 6),
    Column("spec hash", 5),
)
SHORT_HASH: Final = 10


def _build_command(write: Write, text: str) -> Callable[..., None]:
    """Build a command that performs `write` on each named RayService; `text` is its help text."""

    def command(
        names: NamesArgument,
        output: ResultOption = Output.TEXT,
        wait: WaitOption = False,
        timeout: TimeoutOption = TIMEOUT,
        namespace: NamespaceOption = None,
        context: ContextOption = None,
        kubeconfig: KubeconfigOption = None,
    ) -> None:
        performing.perform(
            write,
            names,
            session.select_access(kubeconfig, context, namespace),
            Reporting(output, wait, timeout),
        )

    command.__doc__ = text
    return command


async def _promote(kube: KubeClient, namespace: str, name: str) -> ControlAction:
    """Promote an upgrade; print a warning if the new cluster cannot become ready."""
    snapshot = await reader.read(kube, namespace, name)
    action = await performing.by_annotations(actions.promote)(kube, namespace, name)
    for finding in findings.explain_new_cluster(snapshot, now=session.read_clock()):
        text = (
            f"the new cluster cannot become ready: {finding.message}; see 'raybus explain "
            f"{name} -n {namespace}'"
        )
        printing.print_message(f"warning: {text}", err=True)
    return action


pause = _build_command(
    performing.by_annotations(actions.pause),
    """Pause an upgrade at its current step: no weight and no capacity moves to the new cluster.

    Examples:
    $ raybus pause demo
    $ raybus pause demo canary -n serving --wait --timeout 5m
    """,
)
resume = _build_command(
    performing.by_annotations(actions.resume),
    """Resume a paused upgrade.

    Examples:
    $ raybus resume demo
    $ raybus resume demo canary -n serving --wait --timeout 5m
    """,
)
promote = _build_command(
    _promote,
    """Skip the remaining steps of an upgrade.

    Traffic moves as far as the ready capacity of the new cluster allows. It ends a
    pause.

    Examples:
    $ raybus promote demo
    $ raybus promote demo canary -n serving --wait --timeout 5m
    """,
)
abort = _build_command(
    performing.by_annotations(actions.abort),
    """Abort an upgrade and roll back to the active cluster.

    The next change of the spec starts a new upgrade.

    Examples:
    $ raybus abort demo
    $ raybus abort demo canary -n serving --wait --timeout 5m
    """,
)
retry = _build_command(
    performing.by_annotations(actions.retry),
    """Withdraw an abort and retry the same spec.

    Examples:
    $ raybus retry demo
    $ raybus retry demo canary -n serving --wait --timeout 5m
    """,
)


def undo(
    names: NamesArgument,
    to_revision: Annotated[
        int | None,
        typer.Option(
            "--to-revision",
            help="Revision of 'raybus history'; default: the spec that served before.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the effect without changing anything.")
    ] = False,
    output: ResultOption = Output.TEXT,
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Roll back to a previous revision: its cluster spec and its Serve config.

    Replica counts are not changed. The plan is shown first, as by 'raybus
    plan': during an upgrade the service rolls back, otherwise a new upgrade
    starts. If the spec is managed in Git, change it there as well.

    Examples:
    $ raybus undo demo --dry-run
    $ raybus undo demo --to-revision 3
    """
    access = session.select_access(kubeconfig, context, namespace)
    if to_revision is not None and len(names) > 1:
        session.fail(
            errors.InvalidSpec(
                "--to-revision takes one name: each RayService has its own revisions"
            )
        )

    def show(snapshot: Snapshot, planned: UpgradePlan) -> None:
        _report_hidden(snapshot)
        if output is Output.TEXT:
            printing.show(picture.draw(planned))
            typer.echo()

    write = performing.build_restoring_write(to_revision, is_dry_run=dry_run, show=show)
    performing.perform(write, names, access, Reporting(output, wait and not dry_run, timeout))


def history(
    target: HistoryTargetArgument,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
    raybus_namespace: RaybusNamespaceOption = "raybus",
    nats: NatsOption = None,
    nats_credentials: NatsCredentialsOption = None,
) -> None:
    """Show the revisions of a RayService, or the attempts of a RayJob, oldest first.

    For a RayService, the receipt of the last upgrade and the upgrade in
    progress are shown below the table. The attempts of a RayJob come from its
    events, which are read like those of 'raybus events'. Without NATS only the
    last attempt is shown, from the status.

    Examples:
    $ raybus history demo
    $ raybus history demo -o wide
    $ raybus history rayjob/train -o json
    """
    kube_access = session.select_access(kubeconfig, context, namespace)
    name = target.name
    if target.kind == kinds.JOB:
        if nats is None and nats_credentials is None:
            connect = partial(run.run_through_forward, kube_access, raybus_namespace)
        else:
            try:
                access = NatsAccess(connection.build_settings(nats, nats_credentials))
            except errors.InvalidSpec as problem:
                session.fail(problem)

            async def connect(read: run.ReadEvents) -> None:
                await read(access)

        job_history.show(kube_access, name, output, connect)
        return

    async def work(kube: KubeClient) -> Snapshot:
        return await reader.read(kube, kube_access.namespace, name)

    snapshot = session.run(kube_access, work)
    _report_hidden(snapshot)
    entries = histories.build(snapshot, now=session.read_clock())
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(entries, output)
        return
    if output is Output.NAME:
        printing.print_message("\n".join(str(entry.number) for entry in entries))
        return
    printing.show(format_table(entries, wide=output is Output.WIDE))
    if upgrades := histories.describe_upgrades(snapshot):
        printing.print_message("\n" + "\n".join(upgrades))


def format_table(entries: list[histories.HistoryEntry], *, wide: bool = False) -> Table:
    """Format the revisions as a table."""
    image = Column("images" if wide else "image", keeps_end=not wide)
    rows = [
        (
            *(
                str(entry.number),
                entry.cluster or "-",
                entry.role,
                "yes" if entry.is_current else "",
                entry.outcome or "-",
            ),
            *(_list_images(entry) if wide else entry.image, format_age(entry.age_seconds)),
            *(_format_more(entry) if wide else ()),
        )
        for entry in entries
    ]
    return Table((*COLUMNS, image, Column("age", 2), *(WIDE_COLUMNS if wide else ())), rows)


def _list_images(entry: histories.HistoryEntry) -> str:
    """Return the image of each group, or a single image if all groups use the same."""
    if len(set(entry.images.values())) == 1:
        return entry.image
    return ", ".join(f"{group}={image}" for group, image in entry.images.items())


def _format_more(entry: histories.HistoryEntry) -> tuple[str, ...]:
    names = ", ".join(entry.applications) or "-"
    created = rfc3339(entry.created) if entry.created is not None else "-"
    return (created, names, entry.ray_version, entry.spec_hash[:SHORT_HASH])


def _report_hidden(snapshot: Snapshot) -> None:
    """Print on standard error which records of revisions the user may not read."""
    for unreadable in snapshot.unseen:
        if unreadable.startswith(CONTROLLER_REVISION.plural):
            printing.print_message(f"Not readable: {unreadable}", err=True)
