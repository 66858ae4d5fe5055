"""Follows a RayJob to its end, and meanwhile copies the log of its driver.

The driver's log is that of the container that submits the job: in the pod of a Kubernetes Job, or
in the head pod. In the other submission modes Ray's dashboard has that log.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final

import msgspec

from common import errors
from common.api.core import Pod
from common.api.meta import Items
from common.api.ray_job import DeploymentState, RayJob
from common.kube.client import KubeClient
from common.kube.resources import POD
from raybus_cli import printing, session, waiting
from raybus_cli.logs import selection, submitters
from raybus_cli.logs.driver_logs import DriverLog
from raybus_cli.logs.reading import LogReader
from raybus_cli.logs.selection import LineFormat, Log, LogChoice, LogExtent
from raybus_cli.reading import reader
from raybus_cli.show import job_report as reports
from raybus_cli.show.job_report import JobReport

HAS_STARTED: Final = frozenset(
    {
        DeploymentState.RUNNING,
        DeploymentState.RETRYING,
        DeploymentState.COMPLETE,
        DeploymentState.FAILED,
    }
)
"""The states in which the pod that submits the job may have printed something."""
LOG_SECONDS: Final = 10.0
"""Seconds to wait, after the end of the job, for the rest of its log."""

WriteLine = Callable[[bytes], None]


class DriverLogs:
    """Copies the driver's log once for each attempt of a RayJob."""

    def __init__(
        self, kube: KubeClient, namespace: str, write: WriteLine, group: asyncio.TaskGroup
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._write = write
        self._group = group
        self._may_list = True
        """False once the API server has denied the user the right to list pods."""
        self._copies: dict[str, asyncio.Task[None]] = {}
        """The tasks that copy logs, by pod name. Ended tasks stay, so that no log is copied twice.
        """

    async def start(self, job: RayJob) -> None:
        """Start to copy each log that has begun since the last call."""
        if job.status.job_deployment_status not in HAS_STARTED:
            return
        if not submitters.has_submitter(job):
            if not self._copies:
                log = DriverLog(
                    self._kube,
                    self._namespace,
                    job.metadata.name,
                    LineFormat(),
                    write=self._write,
                    report=_report,
                )
                self._copies[""] = self._group.create_task(_follow(log))
            return
        selector = submitters.build_selector(job)
        if not selector or not self._may_list:
            return
        try:
            body = await self._kube.list(POD, self._namespace, label_selector=selector)
        except errors.Forbidden as problem:
            self._may_list = False
            text = session.format_error(problem)
            printing.print_message(f"the log of the driver cannot be found: {text}", err=True)
            return
        for pod in msgspec.json.decode(body, type=Items[Pod], strict=False).items:
            name, container = pod.metadata.name, submitters.find_container(pod, job)
            if name not in self._copies and submitters.has_started(pod, container):
                (log,) = selection.select_logs(
                    self._namespace, [pod], LogChoice(container=container), LogExtent(follow=True)
                )
                self._copies[name] = self._group.create_task(self._copy(log))

    async def finish(self) -> None:
        """Wait until all logs are copied to their end, at most `LOG_SECONDS`."""
        if not self._copies:
            return
        _, late = await asyncio.wait(self._copies.values(), timeout=LOG_SECONDS)
        for copy in late:
            copy.cancel()

    async def _copy(self, log: Log) -> None:
        logs = LogReader(
            self._kube, self._namespace, LineFormat(), is_following=True, report=_ignore
        )
        try:
            await logs.copy([log], self._write)
        except* errors.RaybusError as problems:
            text = session.format_error(session.find_first(problems))
            printing.print_message(f"the log of {log.source} cannot be read: {text}", err=True)


async def _follow(log: DriverLog) -> None:
    try:
        await log.follow()
    except errors.RaybusError as problem:
        text = session.format_error(problem)
        printing.print_message(f"the log of the driver cannot be read: {text}", err=True)


def _report(text: str) -> None:
    printing.print_message(text, err=True)


def _ignore(_: str) -> None:
    """Ignore why a log ended, because the end of the job is reported anyway."""


async def follow(kube: KubeClient, namespace: str, name: str, write: WriteLine) -> JobReport:
    """Return the report of a RayJob when it has ended.

    Each change of its state is printed on standard error; the driver's log goes to `write`.
    """
    async with asyncio.TaskGroup() as group:
        logs = DriverLogs(kube, namespace, write, group)

        async def read() -> JobReport:
            job = await reader.read_ray_job(kube, namespace, name)
            await logs.start(job)
            return reports.build(job, session.read_clock())

        try:
            ended = await waiting.poll_until(read, reports.describe_pending, limit=math.inf)
        except session.NoSuchObject as problem:
            raise errors.Rejected(f"RayJob {name} was deleted before it ended") from problem
        await logs.finish()
    return ended
