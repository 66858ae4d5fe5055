"""Ask the dashboards of RayClusters about Ray jobs, submit jobs and stop them.

Only Ray itself can say that it does not know a job: a 404 of a different server proves nothing, and
neither does an answer that is not JSON. Remembered answers only limit the rate of requests; after a
restart every job is asked about again. Spec rayjob §9.
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
"""Timeout of a request to stop a job. It is short, because the deletion of a RayJob waits for it.
"""
MAX_PAUSE: Final = 5.0
"""Maximum seconds of the growing pause between requests to a dashboard that does not answer."""
_ID_IS_USED: Final = "Please use a different submission_id"
"""Part of Ray's answer to a submission with an ID that Ray already has."""
_AGENT_REFUSED: Final = "Request failed with status code"
"""Part of the dashboard's answer (code 500) if its agent has refused a request.

Other answers with code 500, such as that no agent is available yet, do not depend on the request.
"""
_CODES_OF_OTHER_SERVERS: Final = frozenset({404, 405, 408, 425, 429})
"""HTTP codes that may come from a proxy in front of Ray, or from a different server at its address.

An answer with such a code does not mean that Ray refuses the request.
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
    """Finds, submits and stops jobs in the clusters of this replica."""

    def __init__(self, dashboards: Dashboard, kube: Kube, cache: Cache, clock: Clock) -> None:
        self._heads = ClusterDashboards(dashboards, kube, cache, clock, reads_missing=True)
        self._clock = clock
        self._known = BoundedDict[tuple[str, str], _Memory]()
        """The last answer about each job, by the UID of the cluster and the ID of the job."""
        self._slow = BoundedDict[str, bool]()
        """Whether the last call to a cluster's dashboard was slow, by the UID of the cluster."""

    async def find(
        self, cluster: RayCluster, job_id: str, *, max_age: float = 0.0
    ) -> JobInfo | None:
        """Return what Ray reports about a job; None if Ray answers that it does not know the job.

        A remembered answer or error is returned in three cases: the answer is younger than
        `max_age` seconds; the pause after a failed request is not over; or the dashboard is slow,
        and too many slow dashboards are being asked. Raises `Unavailable` if there is no answer.
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
        """Return when the last answer about a job was requested, in seconds of the monotonic clock.

        None if no answer is remembered.
        """
        memory = self._known.get((cluster.metadata.uid, job_id))
        return None if memory is None else memory.read_at

    async def submit(self, cluster: RayCluster, submission: Submission) -> None:
        """Submit a job; do nothing if Ray already has a job with this ID.

        Raises `Rejected` with Ray's reason if Ray refuses the job, and `Unavailable` if it is
        unknown whether Ray has the job. Submitting again is harmless, because the ID is the same.
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
        """Stop a job; do nothing if the job has ended or Ray does not know it.

        Raises `Unavailable` if there is no answer, or if the job still runs.
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
        """Drop the state of clusters that are deleted or now polled by a different replica."""
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
    """Return whether the error is Ray's own answer that it does not know the job."""
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
    """Return the last non-blank line of an answer. In a traceback this is the error."""
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
