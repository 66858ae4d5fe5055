"""The RayJobs and RayCronJobs of a rehearsal: one in each lasting state, and how drivers end.

The submitter of the K8sJobMode job is a pod that no node takes, so that it does not end by itself.
The jobs that the submitter and the sidecar would submit are submitted here.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import msgspec

from bench.heads import Heads
from bench.rig import BACKGROUND
from common import labels, names
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.api.ray_job import SUBMITTER_CONTAINER
from common.clock import SystemClock
from common.kube.client import PatchRequest
from common.kube.resources import POD, RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB
from integration.isolated import log_progress
from integration.migration.stage import Stage
from support.builders.ray_job import a_cluster_spec
from support.fakes.ray_jobs import FakeJobs
from support.kuberay import objects, trees
from support.kuberay.restoring import NO_NODE

AT_REST: Final = {
    "initializing": "Initializing",
    "waiting": "Waiting",
    "interactive": "Running",
    "http": "Running",
    "k8s": "Running",
    "sidecar": "Running",
    "selected": "Running",
    "suspended": "Suspended",
    "complete": "Complete",
    "failed": "Failed",
}
"""Jobs that nothing happens to while the operators change, and the state of each."""
RETRYING: Final = "retrying"
"""Its cluster cannot go while the operators change, because something else holds it back."""
ENDS_EARLY: Final = "ends-early"
"""Began under KubeRay, ends under raybus."""
EVERY_MINUTE: Final = "every-minute"
YEARLY: Final = "yearly"
RUNNING: Final = ("interactive", "http", "k8s", "sidecar", "selected")
"""Jobs that run until the end of the rehearsal."""
RECORDED: Final = (
    "initializing",
    "waiting",
    "interactive",
    "http",
    "sidecar",
    "suspended",
    "complete",
    "failed",
)
"""Jobs that the tests take over without an operator."""
SELECTED_CLUSTER: Final = "small"
HOLD: Final = "rehearsal.example.com/hold"
QUICK: Final = "python quick.py"
YEARS: Final = 1_000_000_000
"""Seconds until the clean-up of an ended job. A recorded job must outlive this test, too."""
NOWHERE: Final = {"nodeSelector": {NO_NODE: "none"}}


class Jobs:
    """The jobs on the stage, with the heads that run their drivers."""

    def __init__(self, on: Stage, played: Heads) -> None:
        self._on = on
        self._heads = played

    async def appear(self) -> None:
        """Create all jobs and bring each into its state. `SELECTED_CLUSTER` exists already."""
        self._heads.driver_seconds[QUICK] = 1.0
        for name, spec in _specs().items():
            await self._on.create(RAY_JOB, _body(RAY_JOB.kind, name, spec))
        for name, schedule in ((EVERY_MINUTE, "* * * * *"), (YEARLY, "0 0 1 1 *")):
            template = _spec(entrypoint=QUICK, shutdownAfterJobFinishes=True)
            spec = {"schedule": schedule, "jobTemplate": template}
            await self._on.create(RAY_CRON_JOB, _body(RAY_CRON_JOB.kind, name, spec))
        await self.until("waiting", _is_in("Waiting"))
        await self.until("interactive", _is_in("Waiting"))
        self._submit(await self.status("interactive"), "by-a-user")
        await self._change("interactive", {"jobId": "by-a-user"})
        for name in ("k8s", "sidecar"):
            await self.until(name, _is_in("Running"))
            self._submit(status := await self.status(name), status["jobId"])
        for name in (*RUNNING, ENDS_EARLY, RETRYING, "failed"):
            await self.until(name, _is_running)
        held = (await self.status(RETRYING))["rayClusterName"]
        hold = {"metadata": {"finalizers": [HOLD]}}
        await self._on.rig.kube.patch(RAY_CLUSTER, BACKGROUND, held, PatchRequest(body=hold))
        await self._end("failed", "FAILED")
        await self._end(RETRYING, "FAILED")
        for name, state in {**AT_REST, RETRYING: "Retrying"}.items():
            await self.until(name, _is_in(state))

    async def end_early(self) -> None:
        """Have the driver of one job succeed, and see that the job completes."""
        await self._end(ENDS_EARLY)
        await self.until(ENDS_EARLY, _is_in("Complete"))

    async def release(self, before: Sequence[Body]) -> None:
        """Let the cluster of the failed attempt go, and see that the next attempt runs."""
        first = _status_of(before, RETRYING)["rayClusterName"]
        await self._on.rig.kube.patch(
            RAY_CLUSTER, BACKGROUND, first, PatchRequest(body={"metadata": {"finalizers": None}})
        )
        await self.until(RETRYING, _is_running)

    async def end_all(self) -> None:
        """Have all drivers succeed, and see that each job completes."""
        for name in (*RUNNING, RETRYING):
            await self._end(name)
        await self._end_submitters()
        for name in (*RUNNING, RETRYING):
            await self.until(name, _is_in("Complete"))

    async def runs_of_cron_job(self) -> Counter[str]:
        """Return how many RayJobs there are for each minute of the RayCronJob."""
        return Counter(
            each["metadata"]["annotations"][labels.CRON_JOB_TIMESTAMP]
            for each in await self._on.snapshot()
            if each["kind"] == RAY_JOB.kind
            and any(owner["name"] == EVERY_MINUTE for owner in _owners(each))
        )

    def count_submissions(self) -> int:
        """Return how many jobs were submitted, including those that Ray refused."""
        return sum(len(head.jobs.posts) for head in self._heads.serve.heads.values())

    def repeated_drivers(self) -> list[str]:
        """Return the heads that were asked more than once to run a driver."""
        return sorted(
            f"{service}: {len(head.jobs.posts)} submissions"
            for service, head in self._heads.serve.heads.items()
            if len(head.jobs.posts) > 1
        )

    def stopped_drivers(self) -> list[str]:
        """Return the jobs that any head was asked to stop."""
        return sorted(
            job_id for head in self._heads.serve.heads.values() for job_id in head.jobs.stops
        )

    async def status(self, name: str) -> Json:
        """Read the status of a RayJob."""
        body: Body = msgspec.json.decode(await self._on.rig.kube.get(RAY_JOB, BACKGROUND, name))
        return cast("Json", body.get("status", {}))

    async def until(self, name: str, holds: Callable[[Json], bool]) -> None:
        """Wait until something holds of a RayJob's status."""
        status = await self._on.until_read(partial(self.status, name), holds, f"RayJob {name}")
        log_progress(f"RayJob {name}: {status['jobDeploymentStatus']}")

    def _jobs_of(self, status: Json) -> FakeJobs:
        return self._heads.serve.head(names.head_service(status["rayClusterName"])).jobs

    def _submit(self, status: Json, job_id: str) -> None:
        """Submit and start a job as its submitter or its user does."""
        jobs = self._jobs_of(status)
        code, text = jobs.submit(job_id)
        assert code == 200, text
        jobs.run(job_id)

    async def _end(self, name: str, state: str = "SUCCEEDED") -> None:
        status = await self.status(name)
        self._jobs_of(status).end(status["jobId"], state)

    async def _change(self, name: str, spec: Body) -> None:
        await self._on.rig.kube.patch(RAY_JOB, BACKGROUND, name, PatchRequest(body={"spec": spec}))

    async def _end_submitters(self) -> None:
        """Report, as a kubelet does, the end of the submitter's pod and of the sidecar."""
        for pod in await self._on.snapshot():
            mine = pod["metadata"].get("labels", {})
            if pod["kind"] == POD.kind and mine.get("batch.kubernetes.io/job-name") == "k8s":
                await self._write_status(pod, {"phase": "Succeeded"})
            elif pod["kind"] == POD.kind and any(
                each["name"] == SUBMITTER_CONTAINER for each in pod["spec"]["containers"]
            ):
                now = rfc3339(SystemClock().now())
                end = {"exitCode": 0, "reason": "Completed", "finishedAt": now}
                states = [
                    {**each, "ready": False, "state": {"terminated": end}}
                    if each["name"] == SUBMITTER_CONTAINER
                    else each
                    for each in pod["status"]["containerStatuses"]
                ]
                await self._write_status(pod, {"containerStatuses": states})

    async def _write_status(self, pod: Body, status: Body) -> None:
        path = POD.path(BACKGROUND, pod["metadata"]["name"], "status")
        change = {**pod, "status": {**pod["status"], **status}}
        change["metadata"] = {**pod["metadata"], "resourceVersion": ""}
        await self._on.rig.kube.request("PUT", path, body=change)


def changes(
    before: Sequence[Body], after: Sequence[Body], jobs: Sequence[str] = tuple(AT_REST)
) -> list[str]:
    """Return what differs in the status of jobs to which nothing may happen."""
    sides = ({name: _lasting_status(some, name) for name in jobs} for some in (before, after))
    return objects.differences(*sides, where="RayJob status")


def states(some: Sequence[Body]) -> dict[str, str]:
    """Return the state of each RayJob by name."""
    return {
        each["metadata"]["name"]: each.get("status", {}).get("jobDeploymentStatus", "")
        for each in some
        if each["kind"] == RAY_JOB.kind
    }


def moving(before: Sequence[Body], after: Sequence[Body]) -> list[Body]:
    """Return what belongs to jobs that end, retry or begin in the time between two snapshots.

    A snapshot may have the cluster of a new run of the RayCronJob, and not yet its RayJob. So the
    objects of runs are found by their names.
    """
    found = list[Body]()
    for some in (before, after):
        for name in (RETRYING, ENDS_EARLY):
            found += trees.of_root(some, RAY_JOB.kind, name)
        found += [each for each in some if each["metadata"]["name"].startswith(EVERY_MINUTE)]
    return found


def _lasting_status(some: Sequence[Body], name: str) -> Json:
    """Return a status without the cluster's, and without a reason why the job does not start."""
    status = _status_of(some, name)
    left_out = {"rayClusterStatus", "observedGeneration"}
    left_out |= {"message"} if status["jobDeploymentStatus"] == "Initializing" else set()
    return {field: value for field, value in status.items() if field not in left_out}


def _status_of(some: Sequence[Body], name: str) -> Json:
    mine = (each for each in some if (each["kind"], each["metadata"]["name"]) == ("RayJob", name))
    return cast("Json", next(mine)["status"])


def _owners(body: Body) -> list[Body]:
    return cast("list[Body]", body["metadata"].get("ownerReferences", []))


def _is_in(state: str) -> Callable[[Json], bool]:
    return lambda status: status.get("jobDeploymentStatus") == state


def _is_running(status: Json) -> bool:
    """Return whether the operator knows from Ray that the driver runs."""
    states = (status.get("jobDeploymentStatus"), status.get("jobStatus"))
    return states == ("Running", "RUNNING")


def _body(kind: str, name: str, spec: Body) -> Body:
    meta = {"name": name, "namespace": BACKGROUND}
    return {"apiVersion": RAY_JOB.api_version, "kind": kind, "metadata": meta, "spec": spec}


def _spec(**fields: Any) -> Body:
    alone = {"submissionMode": "HTTPMode", "entrypoint": "python train.py"}
    return {**alone, "rayClusterSpec": a_cluster_spec(), **fields}


def _specs() -> dict[str, Body]:
    """Return the spec of each RayJob by name."""
    apart = a_cluster_spec()
    apart["headGroupSpec"]["template"]["spec"] |= NOWHERE
    submitter = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": SUBMITTER_CONTAINER, "image": "rayproject/ray:2.53.0"}],
            **NOWHERE,
        }
    }
    selector = {labels.CLUSTER: SELECTED_CLUSTER}
    specs = {
        "initializing": _spec(rayClusterSpec=apart),
        "waiting": _spec(submissionMode="InteractiveMode"),
        "interactive": _spec(submissionMode="InteractiveMode"),
        "http": _spec(),
        "k8s": _spec(submissionMode="K8sJobMode", submitterPodTemplate=submitter),
        "sidecar": _spec(submissionMode="SidecarMode"),
        "selected": _spec(clusterSelector=selector),
        "suspended": _spec(suspend=True, shutdownAfterJobFinishes=True),
        "complete": _spec(
            entrypoint=QUICK, shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=YEARS
        ),
        "failed": _spec(),
        RETRYING: _spec(backoffLimit=1),
        ENDS_EARLY: _spec(),
    }
    for name in ("waiting", "interactive"):
        del specs[name]["entrypoint"]
    del specs["selected"]["rayClusterSpec"]
    return specs
