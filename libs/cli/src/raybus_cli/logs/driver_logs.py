"""Reads a driver's log from the jobs API of Ray's dashboard, for jobs that no pod submits.

The API returns the whole log as one text. To follow the log, this module reads it again and again,
and prints only the new part. No line is lost while the dashboard does not answer. While the job
runs, the pauses grow with the duration of a read.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from common import errors
from common.api.ray_job import JobState, RayJob
from common.kube.client import KubeClient
from common.kube.resources import SERVICE
from common.ray import jobs
from raybus_cli import session
from raybus_cli.logs import replicas, selection
from raybus_cli.logs.selection import LineFormat, LogExtent, LogSource, Splitter
from raybus_cli.reading import reader
from raybus_cli.reading.job_snapshot import ENDED

MAX_LOG_SIZE: Final = 64 * 2**20
"""Maximum bytes of the response that contains a log."""
FOLLOW_INTERVAL: Final = 2.0
"""Seconds between two reads of a followed job's status, and the minimum between reads of its log.
"""
READ_COST: Final = 5
"""Minimum pause between two reads of a log, as a multiple of the duration of a read."""
_DRIVER: Final = "driver"


class _Answer(msgspec.Struct, frozen=True):
    logs: str | None = None


class DriverLog:
    """Prints the log of a RayJob's driver; each attempt of the RayJob has its own log."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        name: str,
        form: LineFormat,
        *,
        write: Callable[[bytes], None],
        report: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._form = form
        self._write = write
        self._report = report
        self._source = LogSource(name, _DRIVER)
        self._job_id = ""
        self._printed = ""
        """The part of the present attempt's log that was printed, or skipped because of `tail`."""
        self._splitter = Splitter()
        self._next_read = 0.0
        """Time, on the event loop's clock, of the earliest next read of a running job's log."""
        self._problem = ""
        """The problem that was reported last."""

    async def copy(self, job: RayJob, extent: LogExtent) -> None:
        """Print the log; with `extent.follow`, continue until the job has ended.

        Raises `Rejected` if there is no log to read.
        """
        if not extent.follow or job.status.job_deployment_status in ENDED:
            source, text = await self._read(job)
            self._print_new(job, source, text, extent.tail)
            self._finish()
            return
        await self.follow(extent.tail)

    async def follow(self, tail: int | None = None) -> None:
        """Print the log of each attempt until the job has ended.

        Errors of the API server or the dashboard are reported, and reading continues. Raises
        `Unauthenticated` if the dashboard rejects the token, since no retry corrects that.
        """
        while True:
            has_ended = await self._read_once(tail)
            if has_ended:
                self._finish()
                return
            await asyncio.sleep(FOLLOW_INTERVAL)

    async def _read_once(self, tail: int | None) -> bool:
        """Print the new part of the log; return whether the job has ended."""
        try:
            job = await reader.read_ray_job(self._kube, self._namespace, self._name)
        except session.RETRYABLE_ERRORS as problem:
            if session.is_interrupted():
                raise
            self._report_problem(str(problem))
            return False
        has_ended = job.status.job_deployment_status in ENDED
        if not job.status.dashboard_url or not job.status.job_id:
            return has_ended
        clock = asyncio.get_running_loop().time
        is_running = not has_ended and job.status.job_status == JobState.RUNNING
        if is_running and clock() < self._next_read:
            return False
        began = clock()
        try:
            source, text = await self._read(job)
            self._print_new(job, source, text, tail)
        except (errors.Rejected, errors.NotFound, *session.RETRYABLE_ERRORS) as problem:
            is_rejected = isinstance(problem, errors.Unauthenticated) and not has_ended
            if is_rejected or session.is_interrupted():
                raise
            if has_ended:
                text = f"the end of the log may be missing: {problem}"
                self._report_problem(text)
            elif job.status.job_status:  # before, Ray does not know the job
                self._report_problem(f"{problem}; trying again")
        self._next_read = clock() + READ_COST * (clock() - began)
        return has_ended

    async def _read(self, job: RayJob) -> tuple[LogSource, str]:
        """Return the source and the whole log of a job's present attempt."""
        status = job.status
        if not status.ray_cluster_name or not status.job_id:
            state = status.job_deployment_status or "not observed by raybus yet"
            raise errors.Rejected(
                f"RayJob {self._name} has no log of its driver: it is {state}; see "
                f"'raybus explain rayjob/{self._name}'"
            )
        cluster = await reader.read_ray_cluster(
            self._kube, self._namespace, status.ray_cluster_name
        )
        source = LogSource(cluster.status.head.pod_name or self._name, _DRIVER)
        head = await session.find_dashboard(self._kube, cluster)
        path = SERVICE.proxy(
            self._namespace, head.name, replicas.PORT, f"{jobs.build_path(status.job_id)}/logs"
        )
        try:
            body = await self._kube.request(
                "GET", path, headers=head.headers, max_size=MAX_LOG_SIZE
            )
        except errors.Unauthenticated as problem:
            raise session.build_token_error(problem, head, cluster) from problem
        try:
            return source, msgspec.json.decode(body, type=_Answer).logs or ""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            text = f"the dashboard's answer is no log of a job: {problem}"
            raise errors.Unavailable(text) from problem

    def _print_new(self, job: RayJob, source: LogSource, text: str, tail: int | None) -> None:
        """Print the part of `text`, the log of an attempt, that has not been printed.

        Only the last `tail` lines of a new attempt are printed, unless `tail` is None.
        """
        self._problem = ""
        if job.status.job_id != self._job_id:
            self._finish()
            self._job_id, self._printed = job.status.job_id, ""
            if tail is not None:
                self._printed = text[: _find_tail(text, tail)]
        if not text.startswith(self._printed):
            self._report("the log was replaced, and starts over")
            self._finish()
            self._printed = ""
        self._source = source
        new = text[len(self._printed) :]
        self._printed = text
        self._print(self._splitter.split(new.encode()))

    def _finish(self) -> None:
        """Print the last line of an attempt if it has no line end."""
        self._print(self._splitter.end())

    def _print(self, lines: list[bytes]) -> None:
        if lines:
            rendered = (selection.render(self._source, line, self._form) for line in lines)
            self._write(b"".join(rendered))

    def _report_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._report(problem)
        self._problem = problem


def _find_tail(text: str, lines: int) -> int:
    """Return where the last `lines` lines of a text begin."""
    at = len(text.removesuffix("\n"))
    if lines == 0:
        return len(text)
    for _ in range(lines):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return 0
    return at + 1
