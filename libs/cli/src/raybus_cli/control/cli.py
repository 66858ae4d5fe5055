"""The commands that control upgrades: options, and a table of revisions."""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from common import errors
from common.api.meta import rfc3339
from common.kube.client import KubeClient
from common.kube.resources import CONTROLLER_REVISION
from raybus_cli import printing, session
from raybus_cli.arguments import (
    ContextOption,
    KubeconfigOption,
    NameArgument,
    NamesArgument,
    NamespaceOption,
)
from raybus_cli.control import actions, performing
from raybus_cli.control import history as histories
from raybus_cli.control.actions import Action
from raybus_cli.control.performing import TIMEOUT, Reporting, TimeoutOption, WaitOption, Write
from raybus_cli.explaining import findings
from raybus_cli.planning import picture
from raybus_cli.planning.plan import Plan
from raybus_cli.printing import Column, Output, OutputOption, ResultOption, Table, age
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot

COLUMNS: Final = (
    Column("revision"),
    Column("cluster"),
    Column("role", 1),
    Column("current"),
    Column("outcome"),
)
MORE: Final = (
    Column("created", 4),
    Column("applications", 3),
    Column("ray", 6),
    Column("spec hash", 5),
)
SHORT_HASH: Final = 10


def _verb(write: Write, text: str) -> Callable[..., None]:
    """Build a command that performs one write on each named RayService; `text` is its help text."""

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
            session.where(kubeconfig, context, namespace),
            Reporting(output, wait, timeout),
        )

    command.__doc__ = text
    return command


async def _promote(kube: KubeClient, namespace: str, name: str) -> Action:
    """Promote, with a warning if the new cluster cannot become ready."""
    snapshot = await reader.read(kube, namespace, name)
    action = await performing.by_annotations(actions.promote)(kube, namespace, name)
    for each in findings.of_new_cluster(snapshot, now=session.now()):
        text = (
            f"the new cluster cannot become ready: {each.message}; see 'raybus explain {name} -n "
            f"{namespace}'"
        )
        printing.message(f"warning: {text}", err=True)
    return action


pause = _verb(
    performing.by_annotations(actions.pause),
    """Pause an upgrade at its current step: no weight and no capacity moves to the new cluster.

    Examples:
    $ raybus pause demo
    $ raybus pause demo canary -n serving --wait --timeout 5m
    """,
)
resume = _verb(
    performing.by_annotations(actions.resume),
    """Resume a paused upgrade.

    Examples:
    $ raybus resume demo
    $ raybus resume demo canary -n serving --wait --timeout 5m
    """,
)
promote = _verb(
    _promote,
    """Skip the remaining steps of an upgrade.

    Traffic moves as far as the ready capacity of the new cluster allows. It ends a
    pause.

    Examples:
    $ raybus promote demo
    $ raybus promote demo canary -n serving --wait --timeout 5m
    """,
)
abort = _verb(
    performing.by_annotations(actions.abort),
    """Abort an upgrade and roll back to the active cluster.

    The next change of the spec starts a new upgrade.

    Examples:
    $ raybus abort demo
    $ raybus abort demo canary -n serving --wait --timeout 5m
    """,
)
retry = _verb(
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
    place = session.where(kubeconfig, context, namespace)
    if to_revision is not None and len(names) > 1:
        session.fail(
            errors.InvalidSpec(
                "--to-revision takes one name: each RayService has its own revisions"
            )
        )

    def show(snapshot: Snapshot, planned: Plan) -> None:
        _report_hidden(snapshot)
        if output is Output.TEXT:
            printing.show(picture.draw(planned))
            typer.echo()

    write = performing.restoring(to_revision, is_dry_run=dry_run, show=show)
    performing.perform(write, names, place, Reporting(output, wait and not dry_run, timeout))


def history(
    name: NameArgument,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the revisions of a RayService, oldest first, and its last upgrade.

    The receipt of the last upgrade and the upgrade in progress are shown below
    the table.

    Examples:
    $ raybus history demo
    $ raybus history demo -o wide
    """
    place = session.where(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> Snapshot:
        return await reader.read(kube, place.namespace, name)

    snapshot = session.run(place, work)
    _report_hidden(snapshot)
    entries = histories.build(snapshot, now=session.now())
    if output in {Output.JSON, Output.YAML}:
        printing.data(entries, output)
        return
    if output is Output.NAME:
        printing.message("\n".join(str(each.number) for each in entries))
        return
    printing.show(table(entries, wide=output is Output.WIDE))
    if upgrades := histories.upgrades(snapshot):
        printing.message("\n" + "\n".join(upgrades))


def table(entries: list[histories.Entry], *, wide: bool = False) -> Table:
    """Format the revisions as a table."""
    image = Column("images" if wide else "image", keeps_end=not wide)
    rows = [
        (
            *(
                str(each.number),
                each.cluster or "-",
                each.role,
                "yes" if each.is_current else "",
                each.outcome or "-",
            ),
            *(_images(each) if wide else each.image, age(each.age_seconds)),
            *(_more(each) if wide else ()),
        )
        for each in entries
    ]
    return Table((*COLUMNS, image, Column("age", 2), *(MORE if wide else ())), rows)


def _images(entry: histories.Entry) -> str:
    """Return the images of all groups; only one if they are equal."""
    if len(set(entry.images.values())) == 1:
        return entry.image
    return ", ".join(f"{group}={image}" for group, image in entry.images.items())


def _more(entry: histories.Entry) -> tuple[str, ...]:
    names = ", ".join(entry.applications) or "-"
    created = rfc3339(entry.created) if entry.created is not None else "-"
    return (created, names, entry.ray_version, entry.spec_hash[:SHORT_HASH])


def _report_hidden(snapshot: Snapshot) -> None:
    """Report that revisions may be missing, if the user may not read the records."""
    for each in snapshot.unseen:
        if each.startswith(CONTROLLER_REVISION.plural):
            printing.message(f"Not readable: {each}", err=True)
