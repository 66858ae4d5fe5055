"""`raybus doctor`: reads, checks, prints; exit code 1 when a check failed."""

from typing import Annotated

import typer

from common.kube.client import KubeClient
from raybus_cli import waiting
from raybus_cli.access import session
from raybus_cli.completion.places import ContextOption, KubeconfigOption, RaybusNamespaceOption
from raybus_cli.doctor import checks, picture, prerequisites, survey
from raybus_cli.doctor.check import Check, CheckState
from raybus_cli.output import printing
from raybus_cli.output.printing import Output, ReportOption


def doctor(
    raybus_namespace: RaybusNamespaceOption = "raybus",
    pre: Annotated[bool, typer.Option("--pre", help="Check a cluster before an installation.")] = False,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", parser=waiting.seconds, metavar="DURATION", help="Check again until no check fails: 5m, 90s."
        ),
    ] = 0,
    output: ReportOption = Output.TEXT,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Check an installation: CRDs, services, NATS, Gateway API, rights, RayServices; or a cluster before it.

    Exit code 0 when no check failed, 1 when one did, 2 for an invalid command. What you may not read is unknown, not failed.

    Examples:
    $ raybus doctor --wait 5m
    $ raybus doctor --pre
    $ raybus doctor --raybus-namespace ray-system -o json
    """
    place = session.where(kubeconfig, context, None)

    async def work(kube: KubeClient) -> list[Check]:
        async def read() -> list[Check]:
            if pre:
                return prerequisites.before_installation(await survey.prerequisites(kube, raybus_namespace))
            return checks.all_of(await survey.survey(kube, raybus_namespace), now=session.now())

        return await waiting.until(read, _pending, limit=wait)

    found = session.run(place, work)
    if output in {Output.JSON, Output.YAML}:
        printing.data(found, output)
    else:
        printing.show(picture.draw(found, is_ascii=printing.console().options.ascii_only))
    raise SystemExit(1 if _pending(found) else 0)


def _pending(found: list[Check]) -> str:
    """Return the failed checks as one line, empty when there is none."""
    failed = [each.name for each in found if each.state is CheckState.FAILED]
    return f"{len(failed)} of {len(found)} checks fail: {', '.join(failed)}" if failed else ""
