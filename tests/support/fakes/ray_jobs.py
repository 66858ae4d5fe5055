"""The jobs of a Ray head as its dashboard shows them: submitted, running, ended, unknown.

What it models was measured on Ray 2.60: code 404 with a text for an unknown job, code 500 with the
traceback of the agent for a used ID, code 400 for a body that is no submission, and `stopped:
false` for a job that has ended.
"""

from typing import Any, Final
from urllib.parse import unquote

import msgspec

from common.api.opaque import Json
from common.clock import Clock

JOBS: Final = "/api/jobs/"
_REFUSED = (
    "Traceback (most recent call last):\n"
    '  File "job_head.py", line 1, in submit_job\n'
    "    resp = await job_agent_client.submit_job_internal(submit_request)\n"
    "RuntimeError: Request failed with status code {code}: "
    "Traceback (most recent call last):\n"
    '  File "job_agent.py", line 1, in submit_job\n'
    "{reason}\n."
)


class FakeJob(msgspec.Struct, kw_only=True):
    """A job that was submitted to the head."""

    submission: Json
    status: str = "PENDING"
    message: str = "Job has not started yet."
    start_time: int
    end_time: int | None = None

    def details(self) -> Json:
        """Return the JSON with which the dashboard describes the job."""
        return {
            "type": "SUBMISSION",
            "job_id": None,
            "driver_info": None,
            "error_type": None,
            "entrypoint": self.submission["entrypoint"],
            "submission_id": self.submission["submission_id"],
            "metadata": self.submission.get("metadata") or {},
            "runtime_env": self.submission.get("runtime_env") or {},
            "status": self.status,
            "message": self.message,
            "start_time": self.start_time,
            "end_time": self.end_time,
            "driver_exit_code": None,
        }


class FakeJobs:
    """All jobs of one head."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.jobs: dict[str, FakeJob] = {}
        """Jobs by submission ID."""
        self.posts: list[Json] = []
        """All submissions that the head received, in order, refused ones included."""
        self.stops: list[str] = []
        """The IDs of all jobs that the head was asked to stop."""
        self.refusal: str | None = None
        """Error with which the head refuses each submission; None to accept them."""
        self.has_agent = True
        """Whether a node with an agent can run the jobs."""
        self.answers: dict[str, tuple[int, str]] = {}
        """By HTTP method: code and body that another server answers in place of Ray."""

    def submit(self, job_id: str, entrypoint: str = "python main.py") -> tuple[int, str]:
        """Submit a job, as submitters and users do; return code and body of the answer."""
        return self.answer("POST", JOBS, {"entrypoint": entrypoint, "submission_id": job_id})

    def run(self, job_id: str) -> None:
        """Start the driver of a job."""
        job = self.jobs[job_id]
        job.status, job.message = "RUNNING", "Job is currently running."

    def end(self, job_id: str, status: str = "SUCCEEDED", message: str = "") -> None:
        """End a job."""
        job = self.jobs[job_id]
        job.status, job.message, job.end_time = status, message, self._now()

    def forget(self) -> None:
        """Delete all jobs, like a head that restarts without fault tolerance."""
        self.jobs.clear()

    def answer(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return code and body of the answer to a request."""
        if method in self.answers:
            return self.answers[method]
        name = path.removeprefix(JOBS)
        if method == "POST" and name.endswith("/stop"):
            return self._stop(unquote(name.removesuffix("/stop")))
        if method == "POST":
            return self._submit(body)
        job = self.jobs.get(unquote(name))
        if job is None:
            return 404, f"Job {unquote(name)} does not exist"
        return 200, msgspec.json.encode(job.details()).decode()

    def _submit(self, submission: Json) -> tuple[int, str]:
        self.posts.append(submission)
        job_id = submission["submission_id"]
        if not self.has_agent:
            return 500, "No available agent to submit job, please try again later."
        if self.refusal is not None:
            return 500, _REFUSED.format(code=400, reason=self.refusal)
        if job_id in self.jobs:
            reason = (
                f"ValueError: Job with submission_id {job_id} already exists. "
                "Please use a different submission_id."
            )
            return 500, _REFUSED.format(code=400, reason=reason)
        self.jobs[job_id] = FakeJob(submission=submission, start_time=self._now())
        return 200, msgspec.json.encode({"job_id": job_id, "submission_id": job_id}).decode()

    def _stop(self, job_id: str) -> tuple[int, str]:
        self.stops.append(job_id)
        job = self.jobs.get(job_id)
        if job is None:
            return 404, f"Job {job_id} does not exist"
        is_running = job.end_time is None
        if is_running:
            self.end(job_id, "STOPPED", "Job was intentionally stopped.")
        return 200, msgspec.json.encode({"stopped": is_running}).decode()

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)
