"""The verbs that change an upgrade: read the RayService, decide what to write, write it, say what that means."""

from collections.abc import Callable
from typing import Annotated, Final

import typer
from rich.table import Table

from common import errors
from common.api.ray_service import RayService
from common.kube.client import JSON_PATCH, KubeClient, Patch
from common.kube.resources import CONTROLLER_REVISION, RAY_SERVICE
from raybus_cli.access import session
from raybus_cli.access.kubeconfig import ContextOption, KubeconfigOption, NamespaceOption, Where
from raybus_cli.completion import names
from raybus_cli.control import history as histories
from raybus_cli.control import orders
from raybus_cli.control import undo as undoing
from raybus_cli.control.orders import Order
from raybus_cli.output import printing
from raybus_cli.output.printing import Output, OutputOption, age
from raybus_cli.planning import picture, rehearsal
from raybus_cli.planning import plan as plans
from raybus_cli.planning.plan import Sizing
from raybus_cli.planning.predict import Outcome
from raybus_cli.reading import reader
from raybus_cli.reading.look import Look
from service_reconciler.config import Config

NameArgument = Annotated[str, typer.Argument(help="Name of the RayService.", autocompletion=names.services)]
HEADINGS: Final = ("revision", "cluster", "role", "current", "image", "age")
MORE: Final = ("applications", "ray", "groups", "spec hash")
SHORT_HASH: Final = 10


def pause(
    name: NameArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Hold an upgrade where it is: no weight and no capacity moves to the new cluster.

    Example: raybus pause demo
    """
    _give(orders.pause, name, session.where(kubeconfig, context, namespace))


def resume(
    name: NameArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Let a paused upgrade go on.

    Example: raybus resume demo
    """
    _give(orders.resume, name, session.where(kubeconfig, context, namespace))


def promote(
    name: NameArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Skip the rest of an upgrade's steps; the new cluster is still seen to carry the traffic before it gets it.

    Example: raybus promote demo
    """
    _give(orders.promote, name, session.where(kubeconfig, context, namespace))


def abort(
    name: NameArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Give an upgrade up and go back to the active cluster; the next change of the spec is an upgrade like any other.

    Example: raybus abort demo
    """
    _give(orders.abort, name, session.where(kubeconfig, context, namespace))


def retry(
    name: NameArgument,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Take an abort back, so that the same spec is tried again.

    Example: raybus retry demo
    """
    _give(orders.retry, name, session.where(kubeconfig, context, namespace))


def undo(
    name: NameArgument,
    to_revision: Annotated[
        int | None,
        typer.Option(
            "--to-revision", help="A number that 'raybus history' shows; else the spec that served before this one."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")] = False,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Ask for the spec before this one again: its cluster spec and its Serve config; replicas stay as they are.

    What that leads to is said first, as 'raybus plan' does: in mid-upgrade it rolls back, afterwards it is an upgrade like any
    other. What lives in Git must be changed there too. Example: raybus undo demo --to-revision 3
    """
    place = session.where(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> str:
        look = await reader.read(kube, place.namespace, name)
        _tell_hidden(look)
        entry = undoing.choose(histories.build(look, now=session.now()), to_revision, name)
        change = undoing.change(look.service, entry)
        patch = Patch(body=change.operations, content_type=JSON_PATCH)
        goal = await rehearsal.patch(kube, place.namespace, name, patch)
        planned = plans.build(look, goal, Config(), Sizing(), now=session.now())
        printing.show(picture.draw(planned))
        typer.echo()
        if planned.outcome is Outcome.REFUSED:
            raise errors.Rejected(f"revision {entry.number} would be refused; nothing is changed")
        if dry_run:
            return f"{change.told} (dry run: nothing is changed)"
        await kube.patch(RAY_SERVICE, place.namespace, name, patch)
        return change.told

    printing.say(f"rayservice.ray.io/{name}: {session.run(place, work)}")


def history(
    name: NameArgument,
    output: OutputOption = Output.TEXT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show the specs that are kept of a RayService, oldest first, and what the last upgrade came to.

    Example: raybus history demo -o yaml
    """
    place = session.where(kubeconfig, context, namespace)

    async def work(kube: KubeClient) -> tuple[list[histories.Entry], RayService]:
        look = await reader.read(kube, place.namespace, name)
        _tell_hidden(look)
        return histories.build(look, now=session.now()), look.service

    entries, service = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(entries, output)
        return
    if output is Output.NAME:
        printing.say("\n".join(str(each.number) for each in entries))
        return
    printing.show(table(entries, wide=output is Output.WIDE))
    if (receipt := histories.receipt(service)) is not None:
        printing.say(f"\n{receipt}")


def table(entries: list[histories.Entry], *, wide: bool = False) -> Table:
    """Return the entries as a table."""
    rows = [
        [
            *(str(each.number), each.cluster or "-", each.role, "yes" if each.is_current else "", each.image),
            age(each.age_seconds),
            *(_more(each) if wide else ()),
        ]
        for each in entries
    ]
    return printing.table((*HEADINGS, *(MORE if wide else ())), rows)


def _more(entry: histories.Entry) -> tuple[str, ...]:
    names = ", ".join(entry.applications) or "-"
    return (names, entry.ray_version, str(entry.worker_groups), entry.spec_hash[:SHORT_HASH])


def _tell_hidden(look: Look) -> None:
    """Say that there may be more, where the caller may not see the records."""
    for each in look.unseen:
        if each.startswith(CONTROLLER_REVISION.plural):
            printing.say(f"Not seen: {each}", err=True)


def _give(decide: Callable[[RayService], Order], name: str, place: Where) -> None:
    """Write what a verb decides of the RayService as it is now."""

    async def work(kube: KubeClient) -> str:
        service = await reader.service(kube, place.namespace, name)
        orders.expect_ours(service)
        order = decide(service)
        body = {"metadata": {"uid": service.metadata.uid, "annotations": order.annotations}}
        await kube.patch(RAY_SERVICE, place.namespace, name, Patch(body=body))
        return order.told

    printing.say(f"rayservice.ray.io/{name}: {session.run(place, work)}")
