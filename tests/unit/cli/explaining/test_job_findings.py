"""Why a RayJob does not start or failed, and why a RayCronJob starts no run."""

from typing import Any, Final

import msgspec
import pytest

from common.api import ray_cluster, ray_cron_job, ray_job
from common.api.core import Pod
from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from raybus_cli.explaining import cli, job_findings
from raybus_cli.explaining.remedies import BlockingFinding
from raybus_cli.reading.job_snapshot import CronJobSnapshot, JobSnapshot
from raybus_cli.reading.snapshot import KubernetesEvent
from support.builders.ray_job import a_cluster_spec
from support.builders.snapshots import NOW, a_cluster, a_condition, a_config, a_pod, ago, an_event
from support.golden import Golden
from support.terminal import text_of

CLUSTER: Final = "train-x7k2p"
INITIALIZING: Json = {
    "jobDeploymentStatus": "Initializing",
    "jobId": CLUSTER,
    "rayClusterName": CLUSTER,
    "startTime": ago(120),
}
RUNNING: Json = {**INITIALIZING, "jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
FAILED: Json = {
    **RUNNING,
    "jobDeploymentStatus": "Failed",
    "jobStatus": "FAILED",
    "failed": 1,
    "endTime": ago(5),
}
WEBHOOK = 'Internal error occurred: failed calling webhook "pods.example.com": connection refused'


def a_job(status: Json, *, age: float = 120, meta: Json | None = None, **spec: Any) -> RayJob:
    fields = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec(), **spec}
    return ray_job.decode(
        {
            "metadata": {
                "name": "train",
                "namespace": "default",
                "uid": "uid-of-train",
                "creationTimestamp": ago(age),
                **(meta or {}),
            },
            "spec": {name: value for name, value in fields.items() if value is not None},
            "status": status,
        }
    )


def a_job_snapshot(
    status: Json,
    *pods: Body,
    conditions: tuple[Json, ...] = (),
    events: tuple[Body, ...] = (),
    has_cluster: bool = True,
    cluster: Json | None = None,
    **job: Any,
) -> JobSnapshot:
    body = a_cluster(CLUSTER, a_config())
    body["status"]["conditions"] = list(conditions)
    body["spec"] |= cluster or {}
    return JobSnapshot(
        job=a_job(status, **job),
        cluster=ray_cluster.decode(body) if has_cluster else None,
        pods=msgspec.convert(pods, tuple[Pod, ...], strict=False),
        events=msgspec.convert(events, tuple[KubernetesEvent, ...]),
    )


def find(snapshot: JobSnapshot, **options: Any) -> list[BlockingFinding]:
    return job_findings.explain_job(snapshot, now=NOW, **options).findings


def _waiting(reason: str, message: str = "") -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "ray", "state": state}]}


NO_NODE: Final[Json] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ]
}
GANG: Final[Json] = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "3/3 tasks in gang unschedulable: pod group is not ready",
        }
    ]
}


def _not_ready(**status: Any) -> Body:
    return a_pod(CLUSTER, "gpu", 1, ready=False, **status)


PULL = _not_ready(**_waiting("ErrImagePull", 'Back-off pulling image "ray:2.6O": not found'))
CASES: Final[dict[str, tuple[JobSnapshot, str, str]]] = {
    "an image": (
        a_job_snapshot(INITIALIZING, PULL),
        "ImagePullFailed",
        "cannot be pulled|cannot pull image",
    ),
    "a quota": (
        a_job_snapshot(
            INITIALIZING,
            conditions=(
                a_condition(
                    "ReplicaFailure", reason="FailedCreatePod", message="exceeded quota: gpus"
                ),
            ),
        ),
        "QuotaExceeded",
        "exceeded quota: gpus",
    ),
    "a webhook": (
        a_job_snapshot(
            INITIALIZING,
            conditions=(a_condition("ReplicaFailure", reason="FailedCreatePod", message=WEBHOOK),),
        ),
        "WebhookSilent",
        "pods.example.com",
    ),
    "a webhook that keeps the cluster from being created": (
        a_job_snapshot(
            INITIALIZING,
            has_cluster=False,
            events=(
                an_event(
                    "FailedToCreateRayCluster", WEBHOOK, about=("RayJob", "train"), kind="Warning"
                ),
            ),
        ),
        "WebhookSilent",
        "FailedToCreateRayCluster",
    ),
    "no room": (a_job_snapshot(INITIALIZING, _not_ready(**NO_NODE)), "InsufficientCapacity", "gpu"),
    "a gang": (a_job_snapshot(INITIALIZING, _not_ready(**GANG)), "InsufficientCapacity", "gang"),
    "a container": (
        a_job_snapshot(
            INITIALIZING, _not_ready(**_waiting("CreateContainerConfigError", "no key"))
        ),
        "PodsNotStarting",
        "no key",
    ),
    "a suspended cluster": (
        a_job_snapshot(INITIALIZING, cluster={"suspend": True}),
        "ClusterSuspended",
        "suspended by its queue",
    ),
    "a text that only the status has": (
        a_job_snapshot({**INITIALIZING, "message": "pod x cannot be placed"}),
        "PodsNotStarting",
        "pod x cannot be placed",
    ),
    "an invalid field": (
        a_job_snapshot({"jobDeploymentStatus": "ValidationFailed"}, ttlSecondsAfterFinished=-1),
        "InvalidRayJobSpec",
        "TTLSecondsAfterFinished must be a non-negative integer",
    ),
    "a field of another type": (
        a_job_snapshot({}, backoffLimit="many"),
        "InvalidRayJobSpec",
        "backoffLimit",
    ),
    "a suspended job": (
        a_job_snapshot(
            {"jobDeploymentStatus": "Suspended"}, suspend=True, shutdownAfterJobFinishes=True
        ),
        "Suspended",
        "spec.suspend is true",
    ),
    "a queue of Kueue": (
        a_job_snapshot(
            {"jobDeploymentStatus": "Suspended"},
            suspend=True,
            shutdownAfterJobFinishes=True,
            meta={"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
        ),
        "ClusterSuspended",
        "queue gpus",
    ),
    "another controller": (
        a_job_snapshot({}, managedBy="kueue.x-k8s.io/multikueue"),
        "ManagedByAnotherController",
        "multikueue",
    ),
    "no operator": (a_job_snapshot({}), "NotReconciled", "reconciled"),
    "a deletion": (
        a_job_snapshot(RUNNING, meta={"deletionTimestamp": ago(9)}),
        "Deleting",
        "being deleted",
    ),
    "no selected cluster": (
        a_job_snapshot(
            INITIALIZING,
            has_cluster=False,
            rayClusterSpec=None,
            clusterSelector={"ray.io/cluster": "shared"},
        ),
        "RayClusterNotFound",
        "RayCluster shared",
    ),
    "an interactive job": (
        a_job_snapshot(
            {**RUNNING, "jobDeploymentStatus": "Waiting"}, submissionMode="InteractiveMode"
        ),
        "RayJobWaiting",
        "waits for a job",
    ),
    "a failed entrypoint": (
        a_job_snapshot({**FAILED, "reason": "AppFailed", "message": "Traceback\nValueError: 3"}),
        "AppFailed",
        "attempt 1 of 1 has failed: Traceback … ValueError: 3",
    ),
    "a deadline": (
        a_job_snapshot({**FAILED, "reason": "DeadlineExceeded", "message": "passed"}),
        "DeadlineExceeded",
        "passed",
    ),
    "a retry": (
        a_job_snapshot(
            {**FAILED, "jobDeploymentStatus": "Retrying", "reason": "SubmissionFailed"},
            backoffLimit=2,
        ),
        "SubmissionFailed",
        "attempt 1 of 3",
    ),
    "a stop in Ray": (
        a_job_snapshot({**FAILED, "jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}),
        "RayJobStopped",
        "was stopped",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cause_is_one_line_with_code_remedy_and_command(case: str) -> None:
    snapshot, code, text = CASES[case]
    first = find(snapshot)[0]
    assert first.code == code
    assert any(part in first.message for part in text.split("|"))
    assert "\n" not in first.message
    assert first.remedy
    assert first.command.split()[0] in {"kubectl", "raybus"}
    assert "{" not in first.remedy + first.command.replace('{"spec":{"suspend":false}}', "")
    assert "rayservice" not in (first.remedy + first.command).casefold()


@pytest.mark.parametrize(
    "snapshot",
    [
        a_job_snapshot({}, age=3),
        a_job_snapshot(RUNNING, a_pod(CLUSTER, "head")),
        a_job_snapshot({**FAILED, "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}),
        a_job_snapshot(
            RUNNING,
            a_pod(CLUSTER, "head"),
            events=(
                an_event(
                    "Unhealthy", "late", about=("Pod", f"{CLUSTER}-head-aaaaa"), kind="Warning"
                ),
                an_event(
                    "RayJobNotStarted", "old", about=("RayJob", "train"), kind="Warning", at=990
                ),
                an_event(
                    "RayJobRetrying", "before", about=("RayJob", "train"), kind="Warning", at=300
                ),
            ),
        ),
    ],
)
def test_a_job_without_problems_has_no_findings(snapshot: JobSnapshot) -> None:
    assert find(snapshot) == []


def test_an_event_that_repeats_a_cause_is_its_evidence() -> None:
    note = f"pod {CLUSTER}-gpu-worker-00001: the image rayproject/ray:2.52.0 cannot be pulled"
    event = an_event("RayJobNotStarted", note, about=("RayJob", "train"), kind="Warning")
    (finding,) = find(a_job_snapshot(INITIALIZING, PULL, events=(event,)))
    assert finding.evidence == [f"RayJob train: RayJobNotStarted 5s ago: {note}"]


def test_a_warning_without_a_cause_is_one_itself() -> None:
    about = ("RayJob", "train")
    events = (
        an_event("FailedToCreateRayJobSubmitter", "denied", about=about, kind="Warning"),
        an_event("RayJobRunning", "The job runs", about=about),
    )
    (finding,) = find(a_job_snapshot(RUNNING, a_pod(CLUSTER, "head"), events=events))
    assert finding.message == "RayJob train: FailedToCreateRayJobSubmitter: denied"
    assert finding.command == "kubectl -n default describe rayjob train"


def test_a_missing_resource_is_named() -> None:
    snapshot = a_job_snapshot(INITIALIZING, _not_ready(**NO_NODE))
    assert "add nodes, or request less" in find(snapshot)[0].remedy
    named = find(snapshot, offered=frozenset({"cpu"}))[0].remedy
    assert named.startswith("No node offers nvidia.com/gpu")


def test_a_container_out_of_memory_is_found() -> None:
    state = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    pod = _not_ready(containerStatuses=[{"name": "ray", "state": state}])
    assert [finding.code for finding in find(a_job_snapshot(RUNNING, pod))] == ["OOMKilled"]


def test_the_submitter_that_cannot_start_is_found() -> None:
    snapshot = a_job_snapshot(RUNNING, a_pod(CLUSTER, "head"))
    snapshot = msgspec.structs.replace(snapshot, submitters=a_job_snapshot(RUNNING, PULL).pods)
    assert [finding.code for finding in find(snapshot)] == ["ImagePullFailed"]


def test_the_whole_message_is_printed_with_wide(golden: Golden) -> None:
    snapshot, _, _ = CASES["a failed entrypoint"]
    explanation = job_findings.explain_job(snapshot, now=NOW)
    golden.check("cli/explain-rayjob.txt", text_of(cli.draw_job(explanation), width=100))
    assert "Traceback" in text_of(cli.draw_job(explanation, wide=True), width=100).splitlines()[-2]


def a_cron_job_snapshot(
    *jobs: Json,
    meta: Json | None = None,
    last: float = 60,
    events: tuple[Body, ...] = (),
    **spec: Any,
) -> CronJobSnapshot:
    body = {
        "metadata": {"name": "hourly", "namespace": "default", "creationTimestamp": ago(7200)}
        | (meta or {}),
        "spec": {
            "schedule": "0 * * * *",
            "jobTemplate": {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec()},
            **spec,
        },
        "status": {"lastScheduleTime": ago(last)},
    }
    return CronJobSnapshot(
        cron_job=ray_cron_job.decode(body),
        jobs=tuple(a_job(status) for status in jobs),
        events=msgspec.convert(events, tuple[KubernetesEvent, ...]),
    )


FORBID: Final[Json] = {"annotations": {"raybus.io/concurrency-policy": "Forbid"}}
CRON_CASES: Final[dict[str, tuple[CronJobSnapshot, list[str], str]]] = {
    "nothing": (a_cron_job_snapshot(), [], ""),
    "a schedule": (a_cron_job_snapshot(schedule="61 * * * *"), ["InvalidRayCronJobSpec"], "range"),
    "a suspension": (a_cron_job_snapshot(suspend=True), ["Suspended"], "spec.suspend"),
    "a deletion": (
        a_cron_job_snapshot(meta={"deletionTimestamp": ago(1)}),
        ["Deleting"],
        "being deleted",
    ),
    "no operator": (a_cron_job_snapshot(last=5400), ["NotReconciled"], "is due"),
    "an earlier run": (
        a_cron_job_snapshot(RUNNING, meta=FORBID, last=5400),
        ["JobAlreadyActive"],
        "RayJob train has not ended",
    ),
    "a failed run": (
        a_cron_job_snapshot({**FAILED, "reason": "AppFailed", "message": "exit code 1"}),
        ["AppFailed"],
        "RayJob train, did not succeed: Failed: FAILED: AppFailed: exit code 1",
    ),
    "a run that was refused": (
        a_cron_job_snapshot(
            events=(
                an_event(
                    "FailedCreate",
                    "Failed to create RayJob: exceeded quota: jobs",
                    about=("RayCronJob", "hourly"),
                    kind="Warning",
                ),
            )
        ),
        ["QuotaExceeded"],
        "FailedCreate",
    ),
}


@pytest.mark.parametrize("case", CRON_CASES)
def test_a_cron_job_is_explained(case: str) -> None:
    snapshot, codes, text = CRON_CASES[case]
    found = job_findings.explain_cron_job(snapshot, now=NOW).findings
    assert [finding.code for finding in found] == codes
    for finding in found:
        assert text in finding.message
        assert "{" not in finding.remedy


def test_a_failed_run_is_explained_further_by_its_own_name() -> None:
    snapshot, _, _ = CRON_CASES["a failed run"]
    (finding,) = job_findings.explain_cron_job(snapshot, now=NOW).findings
    assert finding.command == "raybus explain rayjob/train -n default"


def test_the_warnings_of_a_cron_job_are_bounded_and_the_newest() -> None:
    refused = tuple(
        an_event(
            "FailedCreate",
            f"attempt {number // 2}",
            about=("RayCronJob", "hourly"),
            kind="Warning",
            at=800 - number,
        )
        for number in range(40)
    )
    found = job_findings.explain_cron_job(a_cron_job_snapshot(events=refused), now=NOW).findings
    assert [finding.message for finding in found] == [
        f"FailedCreate: attempt {number}" for number in (19, 18, 17, 16, 15)
    ]
