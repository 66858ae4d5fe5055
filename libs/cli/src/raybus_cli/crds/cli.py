"""`raybus crds`: checks the CRDs of a cluster before an upgrade, and prints those of this version.

Helm never changes an installed CRD, so a user applies the printed CRDs.
"""

from typing import Annotated

import typer

from common import errors
from crd_generator import manifest
from crd_generator.schema import Schema
from raybus_cli import printing, session
from raybus_cli.arguments import ContextOption, KubeconfigOption
from raybus_cli.crds import check as checking
from raybus_cli.printing import Output, ReportOption

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Check the CRDs of a cluster, and print those of this version.",
)


@app.callback()
def crds() -> None:
    """Check the CRDs of a cluster, and print those of this version."""


def complete_names(incomplete: str) -> list[str]:
    """Return the names of CRDs that start with `incomplete`."""
    return [name for name in _by_name() if name.startswith(incomplete)]


@app.command(name="print")
def print_crds(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of CRDs; default: all.", metavar="[NAME]...", autocompletion=complete_names
        ),
    ] = None,
) -> None:
    """Print the CRDs of this version as YAML.

    If KubeRay's CRDs are installed and KubeRay is to keep them, apply only
    upgradepolicies.raybus.io.

    Examples:
    $ raybus crds print | kubectl apply --server-side -f -
    $ raybus crds print upgradepolicies.raybus.io
    """
    known = _by_name()
    for name in names or ():
        if name not in known:
            session.fail(errors.InvalidSpec(f"there is no CRD {name}; name {', '.join(known)}"))
    typer.echo("---\n".join(manifest.render(known[name]) for name in names or known), nl=False)


@app.command()
def check(
    output: ReportOption = Output.TEXT,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Compare the CRDs of a cluster with those of this version, before applying these.

    Each removed or changed field is shown with the objects that it concerns:
    they lose the field, or the API server refuses their next change. Pod
    templates are not compared. Exit code 0 if no object is concerned, 1
    otherwise.

    Examples:
    $ raybus crds check && raybus crds print | kubectl apply --server-side -f -
    $ raybus crds check --context staging -o json
    """
    access = session.select_access(kubeconfig, context, None)
    reports = session.run(access, checking.check)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(reports, output)
    else:
        for line in checking.format_lines(reports):
            printing.print_message(line)
        if (remedy := checking.format_remedy(reports)) is not None:
            printing.print_message(remedy)
    raise SystemExit(0 if all(report.is_harmless for report in reports) else 1)


def _by_name() -> dict[str, Schema]:
    return {
        definition["metadata"]["name"]: definition
        for definition in manifest.list_definitions().values()
    }
