"""`raybus migrate check`: options and exit code."""

import sys
from typing import Annotated

import typer

from common.kube.client import KubeClient
from raybus_cli import printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption
from raybus_cli.migrating import check as checking
from raybus_cli.migrating import report
from raybus_cli.migrating.report import MigrationReport
from raybus_cli.printing import Output, ReportOption

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Take a cluster over from KubeRay's operator.",
)


@app.callback()
def migrate() -> None:
    """Take a cluster over from KubeRay's operator."""


@app.command()
def check(
    raybus_namespace: Annotated[
        str,
        typer.Option("--raybus-namespace", help="The namespace of raybus, existing or planned."),
    ] = "raybus",
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", help="Check one namespace; default: all that KubeRay watches."
        ),
    ] = None,
    output: ReportOption = Output.TEXT,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Show what would change, object by object, if raybus replaced KubeRay's operator.

    Nothing should change before you migrate. The command only reads. Exit code
    0 if nothing would change, 1 if something would change or is not supported,
    2 if a fact could not be read.

    Examples:
    $ raybus migrate check
    $ raybus migrate check -n serving -o wide
    """
    access = session.select_access(kubeconfig, context, namespace, code=report.UNREAD_CODE)

    async def work(kube: KubeClient) -> MigrationReport:
        return await checking.check(
            kube,
            raybus_namespace=raybus_namespace,
            namespace=namespace,
            progress=_print_progress if sys.stderr.isatty() else _ignore_progress,
        )

    result = session.run(access, work, code=report.UNREAD_CODE)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(result, output)
    else:
        printing.show(report.draw(result, wide=output is Output.WIDE))
    raise SystemExit(report.CODES[result.verdict])


def _print_progress(line: str) -> None:
    printing.print_message(line, err=True)


def _ignore_progress(_line: str) -> None:
    """Ignore progress messages, because the command does not run at a terminal."""
