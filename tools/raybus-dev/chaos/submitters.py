"""Simulates the submitters of RayJobs, in pods of Kubernetes Jobs and in head pods.

A submitter does what its command says: it waits for Ray, submits the job unless Ray knows it, and
follows the job to its end. It fails if the head disappears.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from chaos.checker.evidence import ENDED_PHASES, Meta
from chaos.drivers import Drivers, Head
from chaos.stack import BACKGROUND, Stack
from common import errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Json
from common.api.ray_job import SUBMITTER_CONTAINER
from common.clock import SystemClock
from common.kube.client import PatchRequest
from common.kube.resources import POD
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from support.laws.jobs import SUCCEEDED

TICK: Final = 0.2
RETRY: Final = 0.5
TIMING: Final = WatchTiming(longest_retry=1.0)
_ENTRYPOINT: Final = re.compile(r" -- (?P<entrypoint>.*?) ;")


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _Container(msgspec.Struct, frozen=True):
    name: str
    args: list[str] = []
    env: list[_Variable] = []

    def variable(self, name: str) -> str:
        """Return the value of an environment variable; empty if it is not set.

        The last definition wins.
        """
        return next(
            (variable.value for variable in reversed(self.env) if variable.name == name), ""
        )


class _PodSpec(msgspec.Struct, frozen=True):
    containers: list[_Container] = []


class _PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: list[Json] = []


class SubmitterPod(msgspec.Struct, frozen=True):
    """The fields of a pod that the simulated submitters read."""

    metadata: Meta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()

    @property
    def head(self) -> Head | None:
        """The head that this pod is; None for other pods, and for a head without an address."""
        meta, address = self.metadata, self.status.pod_ip
        is_head = meta.labels.get(labels.NODE_TYPE) == labels.HEAD
        cluster = meta.labels.get(labels.CLUSTER, "")
        return (cluster, address) if is_head and address else None

    @property
    def submitter(self) -> _Container | None:
        """The pod's container that submits a job; None if it has none."""
        named = (
            container for container in self.spec.containers if container.name == SUBMITTER_CONTAINER
        )
        return next(named, None)

    @property
    def runs(self) -> bool:
        """Whether the pod runs and is not being deleted."""
        return self.status.phase == "Running" and self.metadata.deletion_timestamp is None


class Submitters:
    """Starts and tracks the submitters of all RayJobs in one chaos run."""

    def __init__(self, stack: Stack, drivers: Drivers) -> None:
        self._stack = stack
        self._drivers = drivers
        self._clock = SystemClock()
        self._pods: dict[str, SubmitterPod] = {}
        """The pods of the users' namespace by name."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """The tasks of the submitters by the UID of their pod."""
        self._group: asyncio.TaskGroup | None = None
        self._decoder = msgspec.json.Decoder(SubmitterPod)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Submitters"]:
        """Start a submitter in each pod that should have one, during the `with` block."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            target = WatchTarget(resource=POD, namespace=BACKGROUND)
            watch = Watch(self._stack.kube, target, self, jitter=lambda: 0.0, timing=TIMING)
            task = group.create_task(watch.run())
            await watch.known.wait()
            try:
                yield self
            finally:
                for other in (task, *self._tasks.values()):
                    other.cancel()

    def heads(self) -> dict[str, str]:
        """Return running head pods with the name of their cluster, if a driver runs on the cluster.

        Head pods with a submitter in a sidecar are left out.
        """
        busy = {run.cluster for run in self._drivers.runs if run.is_running}
        return {
            name: pod.head[0]
            for name, pod in sorted(self._pods.items())
            if pod.head is not None and pod.runs and pod.submitter is None and pod.head[0] in busy
        }

    # --- implements `common.kube.watch.WatchSink` ------------------------------------------------

    def present(self, raw: bytes, reason: str = "") -> None:
        """Record the state of a pod.

        Start its submitter when the pod runs; end it when the pod ends.
        """
        pod = self._decoder.decode(raw)
        meta = pod.metadata
        before = self._pods.get(meta.name)
        if before is not None and before.metadata.uid != meta.uid:
            self._end(before)
        self._pods[meta.name] = pod
        if not pod.runs:
            if pod.status.phase in ENDED_PHASES or meta.deletion_timestamp is not None:
                self._end(pod)
        elif pod.submitter is not None and meta.uid not in self._tasks:
            assert self._group is not None
            self._tasks[meta.uid] = self._group.create_task(self._submit(pod, pod.submitter))

    def gone(self, raw: bytes) -> None:
        """End the submitter of a deleted pod, and the drivers if the pod was a head."""
        pod = self._decoder.decode(raw)
        self._end(pod)
        held = self._pods.get(pod.metadata.name)
        if held is not None and held.metadata.uid == pod.metadata.uid:
            del self._pods[pod.metadata.name]

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """Treat recorded pods as deleted if a new list of the watch does not contain them."""
        for name, pod in list(self._pods.items()):
            if (BACKGROUND, name) not in keys:
                self._end(pod)
                del self._pods[name]

    # --- parts -----------------------------------------------------------------------------------

    def _end(self, pod: SubmitterPod) -> None:
        if pod.head is not None:
            self._drivers.lose(pod.head)
        task = self._tasks.get(pod.metadata.uid)
        if task is not None:
            task.cancel()

    async def _submit(self, pod: SubmitterPod, container: _Container) -> None:
        """Do what the submitter's command says, and report the exit code of its container."""
        script = " ".join(container.args)
        job_id = container.variable("RAY_JOB_SUBMISSION_ID")
        is_repeatable = "ray job status" in script
        # Polled, because nothing announces the return of a dashboard.
        while (  # noqa: ASYNC110
            head := self._head_of(pod, container)
        ) is None or self._drivers.behaviour != "ok":
            await asyncio.sleep(TICK)
        jobs = self._drivers.jobs_of(head)
        if job_id in jobs.jobs and not is_repeatable:
            await self._exit(pod, container, 1)
            return
        if job_id not in jobs.jobs:
            match = _ENTRYPOINT.search(script)
            assert match is not None, script
            self._drivers.submit(head, job_id, match["entrypoint"])
        job = jobs.jobs[job_id]
        while job.end_time is None:
            if self._head_of(pod, container) != head:
                await self._exit(pod, container, 1)
                return
            await asyncio.sleep(TICK)
        await self._exit(pod, container, 0 if is_repeatable or job.status == SUCCEEDED else 1)

    def _head_of(self, pod: SubmitterPod, container: _Container) -> Head | None:
        """Return the head that a submitter can reach; None while no head runs."""
        if pod.head is not None:
            return pod.head
        address = container.variable("RAY_DASHBOARD_ADDRESS")
        cluster = address.partition(".")[0].removesuffix("-head-svc")
        for other in self._pods.values():
            if other.head is not None and other.head[0] == cluster and other.runs:
                return other.head
        return None

    async def _exit(self, pod: SubmitterPod, container: _Container, code: int) -> None:
        """Write the end of the container into the pod's status, as the kubelet does."""
        terminated: Json = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": rfc3339(self._clock.now()),
        }
        statuses = [
            {**status, "state": {"terminated": terminated}, "ready": False}
            if status["name"] == container.name
            else status
            for status in pod.status.container_statuses
        ]
        status: Json = {"containerStatuses": statuses}
        if pod.head is None:
            status["phase"] = "Failed" if code else "Succeeded"
        patch = PatchRequest(
            body={"metadata": {"uid": pod.metadata.uid}, "status": status}, subresource="status"
        )
        while True:
            try:
                await self._stack.kube.patch(POD, BACKGROUND, pod.metadata.name, patch)
            except (errors.NotFound, errors.Conflict):
                return  # the pod is gone
            except errors.Retryable:
                await asyncio.sleep(RETRY)
            else:
                return
