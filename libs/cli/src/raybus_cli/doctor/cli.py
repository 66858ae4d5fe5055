"""`raybus doctor`: reads the facts, runs the checks and prints a report by category.

Each check has a mark and, if it did not pass, a remedy. The exit code is 1 if a check failed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from common.kube.client import KubeClient
from raybus_cli import printing, session, waiting
from raybus_cli.arguments import ContextOption, KubeconfigOption, RaybusNamespaceOption
from raybus_cli.doctor import checks, prerequisites, survey
from raybus_cli.doctor.check import Check, CheckState
from raybus_cli.printing import Output, ReportOption


class CheckMark(msgspec.Struct, frozen=True):
    """The sign and style of a check state, with a plain sign for output that is not UTF-8."""

    sign: str
    plain: str
    style: str
    noun: str


MARKS: Final = {
    CheckState.FAILED: CheckMark("×", "x", "bold red", "failed"),
    CheckState.WARNING: CheckMark("‼", "!", "yellow", "with a warning"),
    CheckState.UNKNOWN: CheckMark("?", "?", "dim", "unknown"),
    CheckState.OK: CheckMark("√", "+", "green", "passed"),
}
"""The marks by state, most severe state first."""


def draw(checks: Sequence[Check], *, is_ascii: bool = False) -> RenderableType:
    """Return the report of the checks; `is_ascii` replaces all characters that are not ASCII."""
    shown = list(_format_lines(checks, is_ascii=is_ascii))
    if is_ascii:
        shown = [
            Text(line.plain.encode("ascii", "replace").decode(), spans=line.spans) for line in shown
        ]
    return Group(*shown)


def _format_lines(checks: Sequence[Check], *, is_ascii: bool) -> Iterator[Text]:
    arrow = "->" if is_ascii else "→"
    for category, members in groupby(checks, key=lambda check: check.category):
        yield Text(str(category), style="bold")
        for check in members:
            yield Text.assemble(
                _get_mark(check.state, is_ascii=is_ascii), f" {check.name}: {check.text}"
            )
            if check.remedy:
                yield Text(f"  {arrow} {check.remedy}")
            if check.hint:
                yield Text(f"  {arrow} see {check.hint}")
        yield Text()
    counts = Counter(check.state for check in checks)
    worst = next(
        (state for state in MARKS if counts[state] and state is not CheckState.UNKNOWN),
        CheckState.UNKNOWN,
    )
    numbers = ", ".join(
        f"{counts[state]} {mark.noun}" for state, mark in MARKS.items() if counts[state]
    )
    yield Text.assemble("Result ", _get_mark(worst, is_ascii=is_ascii), f" {numbers}")


def _get_mark(state: CheckState, *, is_ascii: bool) -> tuple[str, str]:
    mark = MARKS[state]
    return (mark.plain if is_ascii else mark.sign, mark.style)


def doctor(
    raybus_namespace: RaybusNamespaceOption = "raybus",
    pre: Annotated[
        bool, typer.Option("--pre", help="Check a cluster before an installation.")
    ] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            parser=waiting.parse_seconds,
            metavar="DURATION",
            help="Check again until no check fails: 5m, 90s.",
        ),
    ] = 0,
    output: ReportOption = Output.TEXT,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Check an installation: CRDs, services, NATS, Gateway API, rights and RayServices.

    With --pre, check a cluster before an installation. Exit code 0 if no check failed, 1 if a check
    failed, 2 for an invalid command. A check is unknown, not failed, if you may not read its facts.

    Examples:
    $ raybus doctor --wait 5m
    $ raybus doctor --pre
    $ raybus doctor --raybus-namespace ray-system -o json
    """
    access = session.select_access(kubeconfig, context, None)

    async def work(kube: KubeClient) -> list[Check]:
        async def read() -> list[Check]:
            if pre:
                return prerequisites.check_before_installation(
                    await survey.read_prerequisites(kube, raybus_namespace)
                )
            return checks.check_all(
                await survey.read_installation(kube, raybus_namespace), now=session.read_clock()
            )

        return await waiting.poll_until(read, _describe_failures, limit=wait)

    results = session.run(access, work)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(results, output)
    else:
        printing.show(draw(results, is_ascii=printing.create_console().options.ascii_only))
    raise SystemExit(1 if _describe_failures(results) else 0)


def _describe_failures(checks: list[Check]) -> str:
    """Return the failed checks as one line; empty if none failed."""
    failed = [check.name for check in checks if check.state is CheckState.FAILED]
    return f"{len(failed)} of {len(checks)} checks fail: {', '.join(failed)}" if failed else ""
