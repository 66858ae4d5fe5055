"""The objects that a manifest of a RayJob or RayCronJob creates, and the effect of an edit on a
running job.
"""

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from typer.testing import CliRunner, Result

from common import errors
from common.api import ray_cron_job, ray_job
from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from common.feature_gates import BETA, FeatureGate, Gates
from common.kube.resources import RAY_CRON_JOB, RAY_JOB
from raybus_cli import kubeconfig, main, session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.planning import job_plan, job_plan_picture
from raybus_cli.planning.differences import Effect
from raybus_cli.planning.job_plan import JobPlan, JobPlanOutcome
from raybus_cli.reading.snapshot import Quota
from support.builders.snapshots import a_config
from support.fakes.kube import FakeKube
from support.golden import Golden
from support.terminal import text_of

NOW: Final = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
RUNNING: Final[Json] = {"jobDeploymentStatus": "Running", "rayClusterName": "train-x7k2p"}
SUSPENDED: Final[Json] = {"jobDeploymentStatus": "Suspended"}
COMPLETE: Final[Json] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}


def a_spec(**fields: Any) -> Json:
    spec: Json = {
        "entrypoint": "python main.py",
        "submissionMode": "K8sJobMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 60,
        "rayClusterSpec": a_config(),
        **fields,
    }
    return {name: value for name, value in spec.items() if value is not None}


def a_job(spec: Json, status: Json | None = None, name: str = "train") -> RayJob:
    meta = {"name": name, "namespace": "default", "uid": "uid-of-train"}
    return ray_job.decode({"metadata": meta, "spec": spec, "status": status or {}})


def a_quota(**hard: str) -> Quota:
    limits = {f"requests.{name.replace('_', '.')}": amount for name, amount in hard.items()}
    body = {"metadata": {"name": "gpus"}, "status": {"hard": limits, "used": {}}}
    return msgspec.convert(body, Quota)


GPUS: Final = msgspec.convert(
    {
        "metadata": {"name": "gpus"},
        "status": {"hard": {"requests.nvidia.com/gpu": "3"}, "used": {}},
    },
    Quota,
)


def create(spec: Json, *quotas: Quota) -> JobPlan:
    return job_plan.plan_creation(a_job(spec), BETA, quotas)


def change(status: Json, old: Json | None = None, **fields: Any) -> JobPlan:
    before = old or a_spec()
    after = {**copy.deepcopy(before), **fields}
    return job_plan.plan_change(a_job(before, status), a_job(after, status), BETA, (GPUS,))


def test_a_new_job_needs_its_cluster_and_its_submitter() -> None:
    plan = create(a_spec(), GPUS)
    assert plan.outcome is JobPlanOutcome.CREATED
    assert plan.demand == {
        "cpu": "18500m",
        "memory": "69832Mi",
        "nvidia.com/gpu": "4",
        "pods": "6",
    }
    assert (plan.max_demand["nvidia.com/gpu"], plan.max_demand["pods"]) == ("8", "10")
    assert plan.gpus == "4"
    assert [(pods.role, pods.pods, pods.max_pods) for pods in plan.pods] == [
        ("head", 1, 1),
        ("gpu", 4, 8),
        ("submitter", 1, 1),
    ]
    assert [(check.more, check.is_enough) for check in plan.quotas] == [("4", False)]


@pytest.mark.parametrize(
    ("fields", "cpu", "pods"),
    [
        pytest.param({"submissionMode": "HTTPMode"}, "18", "5", id="the operator submits"),
        pytest.param({"submissionMode": "SidecarMode"}, "18500m", "5", id="a sidecar submits"),
        pytest.param(
            {"rayClusterSpec": None, "clusterSelector": {"ray.io/cluster": "shared"}},
            "500m",
            "1",
            id="a selected cluster",
        ),
    ],
)
def test_the_submission_mode_decides_what_is_needed(fields: Json, cpu: str, pods: str) -> None:
    if "clusterSelector" in fields:
        fields = {**fields, "shutdownAfterJobFinishes": False, "ttlSecondsAfterFinished": 0}
    plan = create(a_spec(**fields))
    assert (plan.outcome, plan.demand["cpu"], plan.demand["pods"]) == ("created", cpu, pods)


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        ({}, "its RayCluster is deleted 60 s after its end"),
        ({"backoffLimit": 2}, "up to 3 attempts"),
        (
            {"shutdownAfterJobFinishes": False, "ttlSecondsAfterFinished": 0},
            "its RayCluster stays after its end",
        ),
        ({"suspend": True}, "it is created suspended"),
    ],
)
def test_a_new_job_has_notes_about_its_life(fields: Json, note: str) -> None:
    assert any(line.startswith(note) for line in create(a_spec(**fields)).notes)


def test_an_invalid_job_is_refused_with_the_rule() -> None:
    plan = create(a_spec(ttlSecondsAfterFinished=-1))
    assert plan.outcome is JobPlanOutcome.REFUSED
    assert plan.notes[0].endswith("TTLSecondsAfterFinished must be a non-negative integer")
    assert plan.pods == []
    long_name = job_plan.plan_creation(a_job(a_spec(), name="x" * 48), BETA, ())
    assert "no more than 47 characters" in long_name.notes[0]


CHANGES: Final[dict[str, tuple[Json, Json, JobPlanOutcome, Effect | None, str]]] = {
    "nothing": (RUNNING, {}, JobPlanOutcome.NOTHING, None, "the spec is the same"),
    "an entrypoint": (
        RUNNING,
        {"entrypoint": "python b.py"},
        JobPlanOutcome.NEXT_ATTEMPT,
        Effect.NEXT_ATTEMPT,
        "the present attempt goes on",
    ),
    "a cluster": (
        RUNNING,
        {"rayClusterSpec": a_config("rayproject/ray:2.53.0")},
        JobPlanOutcome.NEXT_ATTEMPT,
        Effect.NEXT_ATTEMPT,
        "the present attempt goes on",
    ),
    "a deadline": (
        RUNNING,
        {"activeDeadlineSeconds": 60},
        JobPlanOutcome.IN_PLACE,
        Effect.IN_PLACE,
        "",
    ),
    "the submission mode": (
        RUNNING,
        {"submissionMode": "HTTPMode"},
        JobPlanOutcome.IN_PLACE,
        Effect.IN_PLACE,
        "",
    ),
    "a suspension": (
        RUNNING,
        {"suspend": True},
        JobPlanOutcome.SUSPENDED,
        Effect.IN_PLACE,
        "it is stopped, its RayCluster is deleted",
    ),
    "an invalid field": (
        RUNNING,
        {"backoffLimit": -1},
        JobPlanOutcome.REFUSED,
        Effect.IN_PLACE,
        "the present attempt goes on as it is",
    ),
    "a job that is suspended": (
        SUSPENDED,
        {"entrypoint": "python b.py"},
        JobPlanOutcome.NEXT_ATTEMPT,
        Effect.NEXT_ATTEMPT,
        "no attempt has begun",
    ),
    "a job that has ended": (
        COMPLETE,
        {"entrypoint": "python b.py"},
        JobPlanOutcome.NOTHING,
        Effect.NOTHING,
        "the job has ended (Complete)",
    ),
    "the clean-up of a job that has ended": (
        COMPLETE,
        {"ttlSecondsAfterFinished": 9},
        JobPlanOutcome.IN_PLACE,
        Effect.IN_PLACE,
        "the job has ended (Complete)",
    ),
    "a suspension of a job that has ended": (
        COMPLETE,
        {"suspend": True},
        JobPlanOutcome.NOTHING,
        Effect.NOTHING,
        "the job has ended (Complete)",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_an_edit_is_described_by_what_it_does(case: str) -> None:
    status, fields, outcome, effect, note = CHANGES[case]
    plan = change(status, **fields)
    assert plan.outcome is outcome
    assert {difference.effect for difference in plan.differences} == ({effect} - {None})
    assert any(line.startswith(note) for line in plan.notes) or not note


def test_an_edit_that_starts_an_attempt_is_compared_with_the_quotas() -> None:
    old = a_spec(suspend=True)
    plan = change(SUSPENDED, old, suspend=False)
    assert (plan.outcome, plan.gpus) == (JobPlanOutcome.RESUMED, "4")
    assert [check.is_enough for check in plan.quotas] == [False]
    running = change(RUNNING, entrypoint="python b.py")
    assert (running.gpus, running.quotas) == ("4", [])


def test_a_job_of_another_controller_is_left_to_it() -> None:
    other = "kueue.x-k8s.io/multikueue"
    plan = change({}, a_spec(managedBy=other), entrypoint="python b.py")
    assert plan.outcome is JobPlanOutcome.NOTHING
    assert other in plan.notes[0]


def test_groups_are_named_in_the_fields() -> None:
    config = a_config()
    config["workerGroupSpecs"][0]["replicas"] = 2
    (difference,) = change(RUNNING, rayClusterSpec=config).differences
    assert difference.field == "spec.rayClusterSpec.workerGroupSpecs.gpu.replicas"


def a_cron_job(status: Json | None = None, **spec: Any) -> ray_cron_job.RayCronJob:
    meta = {"name": "hourly", "namespace": "default", "creationTimestamp": "2026-01-01T10:00:00Z"}
    fields = {"schedule": "0 * * * *", "jobTemplate": a_spec(), **spec}
    return ray_cron_job.decode({"metadata": meta, "spec": fields, "status": status or {}})


@pytest.mark.parametrize(
    ("old", "new", "outcome", "runs"),
    [
        pytest.param(None, {}, JobPlanOutcome.CREATED, [11, 12, 13], id="a new one"),
        pytest.param({}, {}, JobPlanOutcome.NOTHING, [], id="the same"),
        pytest.param(
            {}, {"schedule": "0 */6 * * *"}, JobPlanOutcome.IN_PLACE, [12, 18, 0], id="a schedule"
        ),
        pytest.param({}, {"suspend": True}, JobPlanOutcome.SUSPENDED, [], id="a suspension"),
        pytest.param(
            {"suspend": True}, {}, JobPlanOutcome.RESUMED, [11, 12, 13], id="a resumption"
        ),
        pytest.param({}, {"schedule": "x"}, JobPlanOutcome.REFUSED, [], id="no schedule"),
    ],
)
def test_a_cron_job_is_planned_with_its_next_runs(
    old: Json | None, new: Json, outcome: JobPlanOutcome, runs: list[int]
) -> None:
    stored = None if old is None else a_cron_job(**old)
    plan = job_plan.plan_cron_job(stored, a_cron_job(**new), BETA, (), now=NOW)
    assert (plan.outcome, [run.hour for run in plan.next_runs]) == (outcome, runs)
    assert plan.gpus == ("0" if outcome in {"nothing", "refused"} else "4")


@pytest.mark.parametrize(
    ("gates", "outcome"),
    [
        (BETA, JobPlanOutcome.CREATED),
        (BETA - {FeatureGate.DELETION_POLICY}, JobPlanOutcome.REFUSED),
    ],
)
def test_a_cron_job_is_planned_under_the_gates_of_the_operator(
    gates: Gates, outcome: JobPlanOutcome
) -> None:
    rule = {"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 5}}
    strategy = {"deletionRules": [rule]}
    template = a_spec(
        deletionStrategy=strategy, shutdownAfterJobFinishes=None, ttlSecondsAfterFinished=None
    )
    cron_job = a_cron_job(jobTemplate=template)
    assert job_plan.plan_cron_job(None, cron_job, gates, (), now=NOW).outcome == outcome


class Server(FakeKube):
    """An API server that stores one RayJob, and answers dry runs with the object that it receives."""

    async def request(
        self, method: str, path: str, /, *, body: Body | None = None, **_: Any
    ) -> bytes:
        assert method in {"POST", "PUT"}
        assert body is not None
        self.dry_runs.append((method, path))
        stored = {**body, "metadata": {"namespace": "default", **body["metadata"]}}
        return msgspec.json.encode(stored)

    async def close(self) -> None:
        """Do nothing, since there is no connection."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.dry_runs: list[tuple[str, str]] = []
        self.put(RAY_JOB, {"metadata": {"name": "train"}, "spec": a_spec(), "status": RUNNING})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    kube = Server()

    async def connect(_place: KubeAccess) -> Server:
        return kube

    def find(
        _file: str | None, _context: str | None, namespace: str | None, *, env: Mapping[str, str]
    ) -> KubeAccess:
        assert env
        return KubeAccess(kubeconfig=None, namespace=namespace or "default")

    monkeypatch.setattr(session, "connect", connect)
    monkeypatch.setattr(session, "read_clock", lambda: NOW)
    monkeypatch.setattr(kubeconfig, "find", find)
    return kube


def _type(manifest: Json, tmp_path: Path, *options: str) -> Result:
    file = tmp_path / "manifest.json"
    file.write_bytes(msgspec.json.encode(manifest))
    return CliRunner().invoke(main.build("plan"), ["plan", "-f", str(file), *options])


def _manifest(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_the_command_plans_each_manifest(server: Server, tmp_path: Path, golden: Golden) -> None:
    new = _type(_manifest("RayJob", "score", a_spec(backoffLimit=1)), tmp_path)
    edit = _type(_manifest("RayJob", "train", a_spec(entrypoint="python b.py")), tmp_path)
    cron_spec = {"schedule": "0 * * * *", "jobTemplate": a_spec(submissionMode="HTTPMode")}
    cron = _type(_manifest("RayCronJob", "hourly", cron_spec), tmp_path)
    assert [result.exit_code for result in (new, edit, cron)] == [0, 0, 0], new.output
    text = "\n".join(result.stdout for result in (new, edit, cron))
    golden.check("cli/plan-jobs.txt", text)
    assert [method for method, _ in server.dry_runs] == ["POST", "PUT", "POST"]
    assert server.all(RAY_CRON_JOB) == []


@pytest.mark.usefixtures("server")
def test_the_command_fails_for_a_manifest_that_would_be_refused(tmp_path: Path) -> None:
    bad = _manifest("RayJob", "score", a_spec(ttlSecondsAfterFinished=-1))
    assert _type(bad, tmp_path).exit_code == 1
    data = _type(_manifest("RayJob", "train", a_spec()), tmp_path, "-o", "json")
    assert msgspec.json.decode(data.stdout)["outcome"] == "nothing"


def test_the_command_names_the_rejection_of_the_api_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reject(*_: Any, **__: Any) -> bytes:
        raise errors.Rejected("spec.managedBy: the managedBy field is immutable")

    monkeypatch.setattr(server, "request", reject)
    result = _type(_manifest("RayJob", "train", a_spec()), tmp_path)
    assert result.exit_code == 1
    assert "immutable" in result.stderr


def test_the_picture_fits_a_narrow_terminal() -> None:
    text = text_of(job_plan_picture.draw(create(a_spec(), GPUS)), width=60)
    assert max(map(len, text.splitlines())) <= 60
