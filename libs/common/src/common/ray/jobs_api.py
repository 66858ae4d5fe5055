"""Ask the dashboards of RayClusters about Ray jobs, submit jobs and stop them.

Only Ray itself can say that it does not know a job: a 404 of another server proves nothing, and
neither does an answer that is not JSON. The remembered answers only limit the rate of requests;
after a restart everything is asked again. Spec rayjob §9.
"""

from typing import Final

import msgspec

from common import errors, untrusted
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_job import TERMINAL_JOB_STATES
from common.clock import Clock
from common.kube.client import Kube
from common.ray import jobs
from common.ray.cluster_dashboards import SLOW, ClusterDashboards
from common.ray.dashboard import Dashboard
from common.ray.jobs import JobInfo, Submission
from common.ray.serve_status import MAX_REASON_LENGTH
from common.runtime.cache import BoundedDict, Cache, Objects

STOP_SECONDS: Final = 2.0
"""Deadline of a request to stop a job: the deletion of a RayJob waits for it."""
MAX_PAUSE: Final = 5.0
"""Maximum seconds between requests to a silent dashboard."""
_ID_IS_USED: Final = "Please use a different submission_id"
"""Text with which Ray refuses a submission whose ID it knows already."""
_AGENT_REFUSED: Final = "Request failed with status code"
"""Text with which the dashboard reports, with code 500, that its agent has refused a request.

Other answers with code 500, such as that no agent is available yet, do not depend on the request.
"""
_CODES_OF_OTHER_SERVERS: Final = frozenset({404, 405, 408, 425, 429})
"""Codes of a proxy in front of Ray, or of another server at its address.

Such an answer says nothing about the request.
"""


class _Stop(msgspec.Struct, frozen=True):
    stopped: bool


class _Memory(msgspec.Struct):
    """The last answer about a job."""

    info: JobInfo | None = None
    error: errors.Unavailable | None = None
    read_at: float = 0.0
    failures: int = 0

    def result(self) -> JobInfo | None:
        if self.error is not None:
            raise type(self.error)(str(self.error))
        return self.info


class JobsApi:
    """The jobs of the clusters that this replica talks to."""

    def __init__(self, dashboards: Dashboard, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._heads = ClusterDashboards(dashboards, kube, cache, clock, reads_missing=True)
        self._clock = clock
        self._known = BoundedDict[tuple[str, str], _Memory]()
        """The last answer about each job, by the UID of its cluster and its ID."""
        self._slow = BoundedDict[str, bool]()
        """Whether the last call to the dashboard of a cluster was slow, by UID."""

    async def find(
        self, cluster: RayCluster, job_id: str, *, max_age: float = 0.0
    ) -> JobInfo | None:
        """Return what Ray reports about a job; None if Ray answers that it does not know the job.

        An answer that is at most `max_age` seconds old is not requested again. The last answer, or
        its error, is also repeated in two cases: during the pause after a silence of the dashboard,
        and while no further slow dashboard may be asked. Raises `Unavailable` without an answer.
        """
        uid, began = cluster.metadata.uid, self._clock.monotonic()
        memory = self._known.get((uid, job_id))
        if memory is not None:
            pause = min(MAX_PAUSE, 0.25 * 2.0**memory.failures) if memory.error else max_age
            if began - memory.read_at < pause or self._is_full(uid):
                return memory.result()
        elif self._is_full(uid):
            raise errors.Unavailable("too many other dashboards are slow to answer")
        new = _Memory(read_at=began)
        try:
            new.info = jobs.decode(await self._request(cluster, jobs.build_path(job_id)))
        except errors.OwnershipLost:
            raise
        except errors.RaybusError as error:
            if not _is_unknown(error, job_id):
                new.error = _as_unavailable(error)
                new.failures = min(30, 0 if memory is None else memory.failures + 1)
        self._known[uid, job_id] = new
        if new.error is not None:
            raise new.error
        return new.info

    def get_time_of_request(self, cluster: RayCluster, job_id: str) -> float | None:
        """Return when the last answer about a job was asked for, in monotonic seconds of the clock.

        None if no answer is remembered.
        """
        memory = self._known.get((cluster.metadata.uid, job_id))
        return None if memory is None else memory.read_at

    async def submit(self, cluster: RayCluster, submission: Submission) -> None:
        """Submit a job; return also if Ray already has a job of this ID.

        Raises `Rejected` with Ray's reason if Ray refuses the job, and `Unavailable` if it is not
        known whether the job was submitted. To submit it again is harmless, as the ID is the same.
        """
        body: Json = msgspec.to_builtins(submission)
        self._known.pop((cluster.metadata.uid, submission.submission_id), None)
        try:
            await self._request(cluster, jobs.PATH, post=body)
        except (errors.OwnershipLost, errors.Unauthenticated):
            raise  # nothing was submitted
        except errors.RaybusError as error:
            answer = error.answer
            if answer is not None and _ID_IS_USED in answer.body:
                return
            if answer is not None and _is_refusal(answer):
                raise errors.Rejected(f"Ray refuses the job: {_reason(answer)}") from error
            raise _as_unavailable(error) from error

    async def stop(self, cluster: RayCluster, job_id: str) -> None:
        """Stop a job; return also if the job has ended or Ray does not know it.

        Raises `Unavailable` without an answer, or if the job still runs.
        """
        self._known.pop((cluster.metadata.uid, job_id), None)
        try:
            body = await self._request(
                cluster, f"{jobs.build_path(job_id)}/stop", post={}, seconds=STOP_SECONDS
            )
            if msgspec.json.decode(body, type=_Stop).stopped:
                return
        except errors.OwnershipLost:
            raise
        except errors.RaybusError as error:
            if _is_unknown(error, job_id):
                return
            raise _as_unavailable(error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise jobs.no_answer(error) from error
        info = await self.find(cluster, job_id)
        if info is not None and info.state not in TERMINAL_JOB_STATES:
            raise errors.Unavailable(f"Ray has not stopped job {job_id}, which is {info.state}")

    def forget(self, objects: Objects) -> None:
        """Drop the state of clusters that are deleted, or polled by another replica."""
        for uid in (obj.metadata.uid for obj in objects):
            self._heads.forget(uid)
            self._slow.pop(uid, None)

    def _is_full(self, uid: str) -> bool:
        return self._heads.slots.is_full(slow=self._slow.get(uid, False))

    async def _request(
        self,
        cluster: RayCluster,
        path: str,
        *,
        post: Json | None = None,
        seconds: float | None = None,
    ) -> bytes:
        uid, began = cluster.metadata.uid, self._clock.monotonic()
        is_slow = self._slow.get(uid, False)
        if post is not None and self._is_full(uid):
            raise errors.Unavailable("too many other dashboards are slow to answer")
        try:
            return await self._heads.request(
                cluster, path, slow=is_slow, post=post, seconds=seconds
            )
        finally:
            self._slow[uid] = self._clock.monotonic() - began > SLOW


def _is_unknown(error: errors.RaybusError, job_id: str) -> bool:
    """Return whether Ray itself has answered that it does not know a job."""
    answer = error.answer
    return (
        answer is not None
        and answer.code == 404
        and answer.body.strip() == f"Job {job_id} does not exist"
    )


def _is_refusal(answer: errors.HttpAnswer) -> bool:
    """Return whether Ray would refuse the same request again."""
    is_client_error = 400 <= answer.code < 500 and answer.code not in _CODES_OF_OTHER_SERVERS
    return is_client_error or _AGENT_REFUSED in answer.body


def _reason(answer: errors.HttpAnswer) -> str:
    """Return the last line of an answer that has a text. In a traceback this is the error."""
    lines = (line.strip() for line in reversed(answer.body.splitlines()))
    line = next((line for line in lines if line.strip(".")), f"it answered {answer.code}")
    return untrusted.clipped(line, MAX_REASON_LENGTH)


def _as_unavailable(error: errors.RaybusError) -> errors.Unavailable:
    """Return an error as `Unavailable`, because it proves nothing about the job."""
    if isinstance(error, errors.Unavailable):
        return error
    new = errors.Unavailable(str(error))
    new.answer = error.answer
    return new
