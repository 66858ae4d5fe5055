"""`raybus status rayjob/NAME`: waits for the end of a RayJob and shows its state on one screen."""

from typing import Final

from rich.console import RenderableType

from common.kube.client import KubeClient
from raybus_cli import printing, session, waiting
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.printing import Output
from raybus_cli.reading import kinds, reader
from raybus_cli.show import job_picture, picture
from raybus_cli.show import job_report as reports
from raybus_cli.show.job_report import JobReport

TIMED_OUT: Final = 3
"""Exit code if the job has not ended in time."""


def show(access: KubeAccess, name: str, output: Output, *, seconds: float) -> int:
    """Wait until a RayJob has ended, or for `seconds`, and print its state.

    Return the exit code: 0 if the job succeeded, 3 if it has not ended, else 1.
    """

    async def wait(kube: KubeClient) -> JobReport:
        async def read() -> JobReport:
            job = await reader.read_ray_job(kube, access.namespace, name)
            return reports.build(job, session.read_clock())

        return await waiting.poll_until(read, reports.describe_pending, limit=seconds)

    report = session.run(access, wait)
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(report, output)
    elif output is Output.NAME:
        printing.print_message(kinds.JOB.format_name(name))
    else:
        printing.show(draw(report))
    if report.has_ended:
        return 0 if report.has_succeeded else 1
    printing.print_message(f"not within {seconds:g} s: {report.text}", err=True)
    return TIMED_OUT


def draw(report: JobReport) -> RenderableType:
    """Format the state of a RayJob as labelled lines."""
    return picture.format_labelled(job_picture.list_lines(report))
