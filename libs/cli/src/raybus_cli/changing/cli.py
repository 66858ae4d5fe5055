"""`raybus restart` and `raybus set image`: options, plan and report."""

from typing import Annotated, Final

import typer

from common import errors
from common.kube.client import KubeClient
from raybus_cli import printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption, NamespaceOption, TargetArgument
from raybus_cli.changing import edits, execute
from raybus_cli.changing.execute import Order
from raybus_cli.control.performing import TIMEOUT, TimeoutOption
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.planning import picture
from raybus_cli.planning.plan import UpgradePlan
from raybus_cli.printing import Output, ResultOption
from raybus_cli.reading.kinds import NamedTarget
from raybus_cli.show import rollout_wait
from raybus_cli.show.rollout_status import RolloutState

RESTARTED: Final = "restarted"
IMAGES_SET: Final = "image updated"
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the changed spec is served.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the effect without changing anything.")
]
set_ = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Change one field.",
)


def restart(
    target: TargetArgument,
    dry_run: DryRunOption = False,
    output: ResultOption = Output.TEXT,
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Replace a cluster by a new one of the same spec, like 'kubectl rollout restart'.

    The annotation raybus.io/restartedAt is set on all pod templates. A
    RayService upgrades to a new cluster by its upgradeStrategy. A RayCluster
    with upgradeStrategy Recreate gets new pods, and serves nothing until they
    are ready. The plan is shown first. If the spec is managed in Git, change it
    there as well.

    Examples:
    $ raybus restart demo --dry-run
    $ raybus restart raycluster/lone -n serving --wait --timeout 5m
    """
    now = session.read_clock()
    order = Order(
        target=target,
        decide=lambda config: edits.restart(config, now=now),
        must_restart=True,
        is_dry_run=dry_run,
    )
    _run(
        order,
        session.select_access(kubeconfig, context, namespace),
        output,
        RESTARTED,
        limit=timeout if wait else None,
    )


@set_.command("image")
def image(
    target: TargetArgument,
    assignments: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP=IMAGE...",
            help="head=IMAGE, a worker group's name, or '*=IMAGE' for all: the Ray container, or "
            "GROUP/CONTAINER=IMAGE.",
        ),
    ],
    dry_run: DryRunOption = False,
    output: ResultOption = Output.TEXT,
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT,
    namespace: NamespaceOption = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Change images of a RayService or RayCluster.

    A RayService upgrades to a new cluster. A RayCluster with upgradeStrategy
    Recreate gets new pods. The plan is shown first, as by 'raybus plan'.
    rayVersion is not changed. If the spec is managed in Git, change it there as
    well.

    Examples:
    $ raybus set image demo head=rayproject/ray:2.53.0 --dry-run
    $ raybus set image demo '*=rayproject/ray:2.53.0' gpu/sidecar=example.com/s:2
    """
    access = session.select_access(kubeconfig, context, namespace)
    try:
        wanted = [edits.parse(assignment) for assignment in assignments]
    except errors.InvalidSpec as problem:
        session.fail(problem)
    order = Order(
        target=target, decide=lambda config: edits.set_images(config, wanted), is_dry_run=dry_run
    )
    _run(order, access, output, IMAGES_SET, limit=timeout if wait else None)


def _run(
    order: Order, access: KubeAccess, output: Output, done: str, *, limit: float | None
) -> None:
    is_text = output is Output.TEXT

    def show(plan: UpgradePlan) -> None:
        if is_text:
            printing.show(picture.draw(plan))
            typer.echo()

    async def work(kube: KubeClient) -> UpgradePlan:
        return await execute.change(kube, access.namespace, order, show)

    outcome = session.run(access, work)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(outcome, output)
    elif output is Output.NAME:
        printing.print_message(order.target.full_name)
    else:
        printing.print_message(report(order.target, done, is_dry_run=order.is_dry_run))
    if limit is not None and not order.is_dry_run:
        target, seconds = order.target, limit
        ended = session.run(
            access,
            lambda kube: rollout_wait.wait_until_served(
                kube, access.namespace, target, seconds=seconds
            ),
        )
        printing.print_message(
            ended.text, err=ended.course is not RolloutState.DONE or output is not Output.TEXT
        )
        raise SystemExit(rollout_wait.EXIT_CODES.get(ended.course, 1))


def report(target: NamedTarget, done: str, *, is_dry_run: bool) -> str:
    """Return the last line of output: the change (`done`), and a command that shows its effect."""
    if is_dry_run:
        return f"{target.full_name} {done} (dry run: nothing is changed)"
    return (
        f"{target.full_name} {done} ('raybus get {target.kind.singular} {target.name} -w' "
        "follows it)"
    )
