"""`raybus lint`: reads files and prints findings as `file:line: level: field: text`.

The exit code is 1 if a manifest would be rejected.
"""

from typing import Annotated

import typer

from common import errors, feature_gates
from raybus_cli import manifests, printing, session
from raybus_cli.linting import lint as linting
from raybus_cli.linting.serve_schema import LintFinding, LintLevel
from raybus_cli.manifests import FilenameOption, KustomizeOption, RecursiveOption
from raybus_cli.printing import Output, ReportOption


def lint(
    file: FilenameOption = None,
    kustomize: KustomizeOption = None,
    recursive: RecursiveOption = False,
    gates: Annotated[
        str, typer.Option("--feature-gates", help="Feature gates of raybus: Name=true,Other=false.")
    ] = "",
    no_advice: Annotated[bool, typer.Option("--no-advice", help="Errors only.")] = False,
    output: ReportOption = Output.TEXT,
) -> None:
    """Check manifests without a cluster: schema, rules of raybus, and advice.

    Each finding names file, line and field. Exit code 1 if a manifest would be
    rejected.

    Examples:
    $ raybus lint -f demo.yaml
    $ raybus lint -k overlays/production
    """
    try:
        enabled = feature_gates.resolve(feature_gates.parse(gates))
        documents = manifests.read_all(file, kustomize, recursive=recursive)
    except errors.InvalidSpec as problem:
        session.fail(problem)
    known = [document for document in documents if document.kind in linting.KINDS]
    if not known:
        session.fail(
            errors.InvalidSpec(
                "there is no RayService, RayCluster, RayJob or RayCronJob in "
                f"{', '.join(file or [str(kustomize)])}"
            )
        )
    findings = [
        finding
        for document in known
        for finding in linting.lint(document, enabled, beside=documents)
    ]
    shown = [finding for finding in findings if finding.level is LintLevel.ERROR or not no_advice]
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(shown, output)
    else:
        for finding in shown:
            printing.print_message(format_line(finding))
        wrong = sum(finding.level is LintLevel.ERROR for finding in shown)
        printing.print_message(
            f"{len(known)} object(s), {wrong} error(s), {len(shown) - wrong} piece(s) of advice",
            err=True,
        )
    raise SystemExit(1 if any(finding.level is LintLevel.ERROR for finding in findings) else 0)


def format_line(finding: LintFinding) -> str:
    """Format a finding as compilers do, so that editors can jump to the line."""
    return f"{finding.file}:{finding.line}: {finding.level}: {finding.field}: {finding.text}"
