"""Formats the trees of RayJobs and RayCronJobs for a terminal."""

from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree as Drawn

from common.api.meta import rfc3339
from raybus_cli.printing import FittingLine, format_age
from raybus_cli.show import job_rows, picture
from raybus_cli.show.job_report import JobReport
from raybus_cli.show.job_rows import CronJobRow
from raybus_cli.show.job_tree import CronJobTree, JobTree

MAX_JOBS: Final = 10
"""Maximum number of a RayCronJob's RayJobs that are printed without `-o wide`."""


def list_lines(report: JobReport) -> list[tuple[str, Text]]:
    """Return the state of a RayJob as pairs of a label and a text."""
    style = "bold green" if report.has_succeeded else "bold yellow"
    return [
        ("Name", Text(report.name, style="bold")),
        ("Namespace", Text(report.namespace)),
        ("Status", Text(report.state or "not observed by raybus yet", style=style)),
        ("Ray's status", Text(report.job_status)),
        ("Attempts", Text(report.attempts_text)),
        ("Reason", Text(report.reason, style="yellow")),
        ("Message", Text(" ".join(report.message.split()))),
        ("RayCluster", Text(report.cluster)),
        ("RayCronJob", Text(report.cron_job)),
        ("Job ID", Text(report.job_id)),
        ("Started", Text("" if report.start_time is None else rfc3339(report.start_time))),
        ("Ended", Text("" if report.end_time is None else rfc3339(report.end_time))),
        ("Duration", Text("" if report.seconds is None else format_age(report.seconds))),
    ]


def draw_job(tree: JobTree, *, wide: bool = False) -> RenderableType:
    """Format the tree of a RayJob; `wide` adds restarts of pods and what could not be read."""
    head = [
        *list_lines(tree.job),
        ("Submission", Text(tree.submission_mode)),
        ("Entrypoint", Text(" ".join(tree.entrypoint.split()))),
    ]
    lines: list[RenderableType] = [picture.format_labelled(head)]
    if tree.submitters:
        drawn = Drawn(FittingLine(Text("submitter", style="bold")))
        for pod in tree.submitters:
            drawn.add(picture.format_pod(pod, wide=wide, with_group=False))
        lines.append(drawn)
    if tree.ray_cluster is not None:
        lines.append(picture.draw_groups(tree.ray_cluster, wide=wide))
    return Group(*lines, *picture.format_footer(tree.last_event, tree.unseen, wide=wide))


def format_job_line(tree: JobTree) -> str:
    """Format the tree of a RayJob as one plain line, for `-w` without a terminal."""
    parts = [f"{tree.namespace}/{tree.name} {tree.job.text}", f"attempt {tree.job.attempts_text}"]
    if tree.ray_cluster is not None:
        parts.append(picture.format_cluster_line(tree.ray_cluster))
    return "; ".join(parts)


def draw_cron_job(tree: CronJobTree, *, wide: bool = False) -> RenderableType:
    """Format the tree of a RayCronJob; `wide` adds all jobs and what could not be read."""
    row = tree.cron_job
    next_run = "" if row.next_run is None else rfc3339(row.next_run)
    head = [
        ("Name", Text(tree.name, style="bold")),
        ("Namespace", Text(tree.namespace)),
        ("Status", Text(row.status, style="bold green" if row.status == "Active" else "yellow")),
        ("Schedule", Text(row.schedule)),
        ("Time zone", Text(row.time_zone)),
        ("Concurrency", Text(row.concurrency)),
        ("Last run", Text(_format_last_run(row))),
        (
            "Next run",
            Text(f"{next_run} ({job_rows.format_next_run(row.next_run_seconds)})")
            if next_run
            else Text(),
        ),
        ("Message", Text(row.reason, style="yellow")),
    ]
    shown = tree.jobs if wide else tree.jobs[:MAX_JOBS]
    lines: list[RenderableType] = [picture.format_labelled(head)]
    if shown:
        lines.append(job_rows.build_job_table(shown, wide=wide, all_namespaces=False))
    if rest := len(tree.jobs) - len(shown):
        lines.append(Text(f"… and {rest} more: -o wide", style="dim"))
    return Group(*lines, *picture.format_footer(tree.last_event, tree.unseen, wide=wide))


def _format_last_run(row: CronJobRow) -> str:
    return "" if row.last_run_seconds is None else job_rows.format_past(row.last_run_seconds)


def format_cron_job_line(tree: CronJobTree) -> str:
    """Format the tree of a RayCronJob as one plain line, for `-w` without a terminal."""
    row = tree.cron_job
    parts = [f"{tree.namespace}/{tree.name} {row.status}"]
    if row.next_run is not None:
        parts.append(f"next run {rfc3339(row.next_run)}")
    parts += [f"{job.name} {job.status or '-'}" for job in tree.jobs[:1]]
    return "; ".join([*parts, *([row.reason] * bool(row.reason))])
