"""A harness around the job-reconciler: an API server, clusters, submitters, Ray, a clock.

`run` lets time pass: clusters come up, submitters submit, Ray starts drivers, and the reconciler
runs when a change or its own timer is due. `kill_before` and `kill_after` end the process at a
write; the next one remembers nothing.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from common import errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.api.ray_job import SUBMITTER_CONTAINER, SubmissionMode
from common.kube.resources import JOB, POD, RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB
from common.ray.dashboard import Target
from common.runtime.key import Key
from common.runtime.replica import ReconcilerParts
from job_reconciler.settings import Config
from job_reconciler.wiring import KINDS, assemble, find_keys
from support.builders.ray_job import a_cluster_spec
from support.builders.ray_service import NAMESPACE
from support.fakes.clock import FakeClock
from support.fakes.clusters import FakeClusters
from support.fakes.events import FakeEvents
from support.fakes.kube import FakeKube, Request
from support.fakes.ray_jobs import FakeJobs
from support.fakes.serve import FakeServe

NAME: Final = "train"
SHARED_CLUSTER: Final = "shared"
TICK: Final = 0.25
SUBMITTER_RETRY: Final = 10.0
"""Seconds until the Job controller replaces a failed pod."""
_CONFIG: Final = Config()


class Killed(BaseException):
    """Raised to end the process at this point."""


class Harness:
    """RayJobs, and everything around them."""

    def __init__(self, *, config: Config = _CONFIG) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(now=self.clock.now)
        self.dashboards = FakeServe(self.clock)
        self.fake_clusters = FakeClusters(self.kube, self.dashboards, self.clock)
        self.config = config
        self.events = FakeEvents(self.clock)
        self.app: ReconcilerParts
        self.failed: list[str] = []
        """Errors that ended a reconcile, other than stale reads."""
        self.starts: list[str] = []
        """The ID of each job whose driver Ray started, in order."""
        self.submitter_fails = False
        """Whether submitters end with an error before they submit."""
        self.submitters_wait = False
        """Whether submitters wait before they submit, as they do while an image is pulled."""
        self.submitters_flush = True
        """Whether a submitter ends soon after its Ray job."""
        self.is_silent = False
        """Whether no dashboard answers."""
        self.undelivered = set[str]()
        """Names of objects that the bus does not deliver, as they belong to no RayJob."""
        self.states: list[str] = []
        """Each state of the RayJob `train`, in order."""
        self.writes = 0
        self.kill_before: int | None = None
        self.kill_after: int | None = None
        self._submitters_start_at = 0.0
        """Monotonic time at which the pods start that replace those whose head was lost."""
        self._is_reconciling = False
        self._deletes = False
        """Whether the last write was a deletion."""
        self._due: dict[Key, datetime] = {}
        self.kube.on_change.append(self._changed)
        self.kube.faults.append(self._count)
        self.restart()

    # --- the process -----------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin a new process: it knows what the API server has and remembers nothing."""
        self.metrics = CollectorRegistry()
        self.app = assemble(
            self.kube,
            self,
            self.config,
            clock=self.clock,
            instance="test",
            bus=self.events,
            registry=self.metrics,
        )
        for (kind, _, _), body in self.kube.objects.items():
            self._store(kind, body)
            self._enqueue(kind, body)

    async def request(
        self, target: Target, path: str, *, post: Json | None = None, **options: Any
    ) -> bytes:
        """Answer a request of the reconciler to a dashboard; the reconciler may be killed there."""
        if self.is_silent:
            raise errors.Unanswered(f"{target.name} does not answer within 2 s")
        if post is None:
            return await self.dashboards.request(target, path, **options)
        self._begin_write()
        answer = await self.dashboards.request(target, path, post=post, **options)
        self._end_write()
        return answer

    async def reconcile(self) -> None:
        """Reconcile until nothing is due now."""
        for _ in range(100):
            now = self.clock.now()
            due = [key for key, at in self._due.items() if at <= now]
            if not due:
                return
            for key in due:
                del self._due[key]
                if (again := await self._reconcile(key)) is not None:
                    self._due[key] = min(again, self._due.get(key, again))
        msg = f"the reconciler does not come to rest: {self.kube.writes()[-8:]}"
        raise AssertionError(msg)

    async def _reconcile(self, key: Key) -> datetime | None:
        now = self.clock.now()
        self._is_reconciling = True
        try:
            again = await self.app.reconciler(key, now)
            if self._deletes:
                self._end_write()
        except Killed:
            self.restart()
            return now
        except (errors.Conflict, errors.NotFound):
            return now + timedelta(seconds=TICK)
        except errors.RaybusError as problem:
            self.failed.append(f"{type(problem).__name__}: {problem}")
            return now + timedelta(seconds=1)
        else:
            return again
        finally:
            self._is_reconciling = self._deletes = False

    async def run(self, seconds: float) -> None:
        """Let simulated time pass."""
        for _ in range(round(seconds / TICK)):
            self.fake_clusters.move_on()
            self.fake_clusters.endpoints_follow()
            self._jobs_move_on()
            await self.reconcile()
            self.clock.advance(TICK)

    async def until(self, holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Let time pass until a condition holds."""
        for _ in range(round(seconds / TICK)):
            if holds():
                return
            await self.run(TICK)
        msg = f"it does not hold after {seconds} s; status: {self.status}; {self.failed[-2:]}"
        raise AssertionError(msg)

    async def until_state(self, state: str, *, seconds: float = 60.0) -> None:
        """Let time pass until the RayJob has this deployment status."""
        await self.until(lambda: self.state == state, seconds=seconds)

    # --- what users do and see -------------------------------------------------------------------

    def apply(self, name: str = NAME, *, meta: Json | None = None, **spec: Any) -> None:
        """Apply a RayJob; None leaves a field out."""
        fields = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec(), **spec}
        fields = {field: value for field, value in fields.items() if value is not None}
        old = self.kube.objects.get((RAY_JOB.kind, NAMESPACE, name))
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": name, "namespace": NAMESPACE, "generation": 1, **(meta or {})},
            "spec": fields,
        }
        if old is not None:
            generation = old["metadata"]["generation"] + 1
            metadata = {**old["metadata"], **(meta or {}), "generation": generation}
            body = {**old, "metadata": metadata, "spec": fields}
        self.kube.put(RAY_JOB, body)

    def apply_cron_job(self, name: str = "nightly", **spec: Any) -> None:
        """Apply a RayCronJob."""
        template = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec()}
        body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCronJob",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "creationTimestamp": rfc3339(self.clock.now()),
            },
            "spec": {"jobTemplate": template, **spec},
        }
        self.kube.put(RAY_CRON_JOB, body)

    async def add_shared_cluster(self) -> None:
        """Add a RayCluster `shared` that no RayJob owns, like the cluster of a RayJob `donor`."""
        self.apply("donor")
        await self.until(lambda: bool(self.clusters))
        donor = self.kube.all(RAY_CLUSTER)[0]
        metadata = {"name": SHARED_CLUSTER, "namespace": NAMESPACE}
        self.kube.put(RAY_CLUSTER, {**donor, "metadata": metadata, "status": {}})

    def hold_cluster(self) -> str:
        """Add a finalizer of another owner to the cluster of the attempt; return its name."""
        name = self.status["rayClusterName"]
        cluster = self.kube.objects[RAY_CLUSTER.kind, NAMESPACE, name]
        metadata = {**cluster["metadata"], "finalizers": ["example.com/redis"]}
        self.kube.put(RAY_CLUSTER, {**cluster, "metadata": metadata})
        return name

    @property
    def job(self) -> Body:
        return self.kube.objects[RAY_JOB.kind, NAMESPACE, NAME]

    @property
    def status(self) -> Json:
        return self.job.get("status", {})

    @property
    def state(self) -> str:
        return self.status.get("jobDeploymentStatus", "")

    @property
    def job_id(self) -> str:
        return self.status.get("jobId", "")

    @property
    def clusters(self) -> list[str]:
        return [body["metadata"]["name"] for body in self.kube.all(RAY_CLUSTER)]

    @property
    def submitter(self) -> Body | None:
        return self.kube.objects.get((JOB.kind, NAMESPACE, NAME))

    @property
    def ray(self) -> FakeJobs:
        """The jobs that the head of the present attempt knows."""
        return self.dashboards.head(f"{self.status['rayClusterName']}-head-svc").jobs

    def end(self, status: str = "SUCCEEDED", message: str = "") -> None:
        """End the Ray job of the present attempt."""
        self.ray.end(self.job_id, status, message)

    async def until_running(self) -> None:
        """Let time pass until Ray runs the job, and raybus knows it."""
        await self.until(lambda: self.status.get("jobStatus") == "RUNNING")

    def reasons(self) -> list[str]:
        """Return the reasons of all Events, in order."""
        return [reason for _, reason, _ in self.kube.events()]

    def notes(self, reason: str) -> list[str]:
        """Return the notes of all Events with a reason."""
        return [note for _, found, note in self.kube.events() if found == reason]

    # --- what others do --------------------------------------------------------------------------

    def _jobs_move_on(self) -> None:
        for body in self.kube.all(RAY_JOB):
            status, name = body.get("status", {}), body["metadata"]["name"]
            cluster, job_id = status.get("rayClusterName", ""), status.get("jobId", "")
            ray = self.dashboards.head(f"{cluster}-head-svc").jobs
            for started, job in ray.jobs.items():
                if job.status == "PENDING":
                    ray.run(started)
                    self.starts.append(started)
            submitter = self.kube.objects.get((JOB.kind, NAMESPACE, name))
            if submitter is not None and not submitter.get("status") and job_id:
                self._submit(name, ray, job_id)
            if body["spec"].get("submissionMode") == SubmissionMode.SIDECAR:
                self._run_sidecar(f"{cluster}-head", ray, job_id)

    def _submit(self, name: str, ray: FakeJobs, job_id: str) -> None:
        """Do what the submitter's pod does: submit the job unless Ray knows it, and follow it."""
        if self.submitters_wait or self.clock.monotonic() < self._submitters_start_at:
            return
        if self.submitter_fails:
            self.end_submitter("Failed", name)
        elif job_id not in ray.jobs:
            ray.submit(job_id)
        elif ray.jobs[job_id].end_time is not None and self.submitters_flush:
            self.end_submitter("Complete", name)

    def _run_sidecar(self, head: str, ray: FakeJobs, job_id: str) -> None:
        """Act as the submitter in the head pod: submit the job, follow it, and exit."""
        pod = self.kube.objects.get((POD.kind, NAMESPACE, head))
        if pod is None or pod.get("status", {}).get("phase") != "Running":
            return
        if pod["status"].get("containerStatuses"):
            return
        if job_id not in ray.jobs:
            ray.submit(job_id)
        elif ray.jobs[job_id].end_time is not None and self.submitters_flush:
            self.end_sidecar(exit_code=int(ray.jobs[job_id].status == "FAILED"))

    def end_sidecar(self, *, exit_code: int, **status: Any) -> None:
        """Let the submitter in the head pod exit, with the status that the kubelet reports."""
        head = f"{self.status['rayClusterName']}-head"
        ended: Json = {"exitCode": exit_code, "finishedAt": rfc3339(self.clock.now())}
        container = {"name": SUBMITTER_CONTAINER, "state": {"terminated": ended}, **status}
        old = self.kube.objects[POD.kind, NAMESPACE, head].get("status", {})
        new = {**old, "containerStatuses": [container]}
        self.kube.set_status(POD, NAMESPACE, head, new)

    def end_submitter(self, condition: str, name: str = NAME) -> None:
        """Let a submitter end, as the Job controller reports it."""
        ended: Json = {
            "type": condition,
            "status": "True",
            "lastTransitionTime": rfc3339(self.clock.now()),
        }
        if condition == "Failed":
            ended |= {"reason": "BackoffLimitExceeded", "message": "it has failed 3 times"}
        self.kube.set_status(JOB, NAMESPACE, name, {"conditions": [ended]})

    def replace_head(self) -> None:
        """Replace the head of the present attempt; a submitter starts again some seconds later."""
        self.fake_clusters.replace_head(self.status["rayClusterName"])
        self._submitters_start_at = self.clock.monotonic() + SUBMITTER_RETRY

    # --- inside ----------------------------------------------------------------------------------

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        if kind not in KINDS:
            return
        if kind == RAY_JOB.kind and body["metadata"]["name"] == NAME:
            state = body.get("status", {}).get("jobDeploymentStatus", "")
            if state and state != (self.states or [""])[-1]:
                self.states.append(state)
        self._enqueue(kind, body)
        meta = body["metadata"]
        if is_gone:
            version = int(meta["resourceVersion"])
            self.app.cache.remove(KINDS[kind], meta["namespace"], meta["name"], version=version)
        else:
            self._store(kind, body)
            self._enqueue(kind, body)
        if self._is_reconciling and not is_gone:  # the API server completes a deletion first
            self._end_write()

    def _store(self, kind: str, body: Body) -> None:
        if kind in KINDS and body["metadata"]["name"] not in self.undelivered:
            decoded = msgspec.json.decode(msgspec.json.encode(body), type=KINDS[kind])
            self.app.cache.put(decoded, partition=0)

    def _enqueue(self, kind: str, body: Body) -> None:
        if kind not in KINDS:
            return
        obj = msgspec.json.decode(msgspec.json.encode(body), type=KINDS[kind])
        for key in find_keys(self.app.cache, obj):
            self._due[key] = self.clock.now()

    def _count(self, request: Request) -> errors.RaybusError | None:
        if self._is_reconciling:
            if self._deletes:
                self._end_write()
            if request.verb not in {"get", "list"}:
                self._begin_write()
            self._deletes = request.verb == "delete"
        return None

    def _begin_write(self) -> None:
        self.writes += 1
        if self.writes == self.kill_before:
            raise Killed

    def _end_write(self) -> None:
        if self.writes == self.kill_after:
            self.kill_after = None
            raise Killed


def submission_mark(harness: Harness) -> str:
    """Return the record of the head that got the job."""
    return harness.job["metadata"].get("annotations", {}).get(labels.SUBMITTED_TO, "")
