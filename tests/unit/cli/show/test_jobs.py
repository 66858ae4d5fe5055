"""`raybus get` and `raybus list` of RayJobs and RayCronJobs, on an API server in memory."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from common import errors
from common.api import ray_cron_job, ray_job
from common.api.opaque import Body, Json
from common.feature_gates import BETA
from common.kube.client import KubeClient
from common.kube.resources import EVENT, POD, RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB
from raybus_cli import completion, kubeconfig, main, session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.reading import cron_schedule, kinds
from raybus_cli.show import frame, job_report, job_rows, sources
from support.builders.ray_job import FAILED_JOB, a_cluster_spec, a_ray_job
from support.builders.snapshots import a_cluster, a_config, a_pod, an_event
from support.fakes.kube import FakeKube, Request
from support.golden import Golden

NOW = datetime(2026, 1, 1, 10, 30, tzinfo=UTC)
CLUSTER = "train-x7k2p"
RUNNING: Json = {
    "jobDeploymentStatus": "Running",
    "jobStatus": "RUNNING",
    "jobId": CLUSTER,
    "rayClusterName": CLUSTER,
    "startTime": "2026-01-01T10:20:00Z",
    "failed": 1,
}


def a_job_body(name: str, status: Json, **meta: object) -> Body:
    meta = {
        "name": name,
        "uid": f"uid-of-{name}",
        "creationTimestamp": "2026-01-01T09:30:00Z",
    } | meta
    return {
        "metadata": meta,
        "spec": {
            "entrypoint": "python main.py",
            "submissionMode": "K8sJobMode",
            "backoffLimit": 2,
            "rayClusterSpec": a_cluster_spec(),
        },
        "status": status,
    }


def a_cron_job_body(name: str = "nightly", **spec: object) -> Body:
    template = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec()}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-of-{name}",
            "creationTimestamp": "2026-01-01T08:00:00Z",
        },
        "spec": {"schedule": "0 * * * *", "jobTemplate": template, **spec},
        "status": {"lastScheduleTime": "2026-01-01T10:00:00Z"},
    }


def a_run(number: int, status: Json) -> Body:
    owner = {"kind": "RayCronJob", "name": "nightly", "uid": "uid-of-nightly", "controller": True}
    return a_job_body(
        f"nightly-{number}",
        status,
        labels={"ray.io/cronjob-name": "nightly"},
        ownerReferences=[owner],
        creationTimestamp=f"2026-01-01T0{number}:00:00Z",
    )


class Server(FakeKube):
    """An API server with a running RayJob, a RayCronJob, and two runs of it."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.put(RAY_JOB, a_job_body("train", RUNNING))
        self.put(RAY_CRON_JOB, a_cron_job_body())
        self.put(RAY_JOB, a_run(8, FAILED_JOB))
        self.put(
            RAY_JOB,
            a_run(9, {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "succeeded": 1}),
        )
        stranger = a_run(7, FAILED_JOB)
        stranger["metadata"]["name"], stranger["metadata"]["ownerReferences"] = "stranger", []
        self.put(RAY_JOB, stranger)
        self.put(RAY_CLUSTER, a_cluster(CLUSTER, a_config()))
        self.put(POD, a_pod(CLUSTER, "head"))
        self.put(POD, {"metadata": {"name": "train-pod", "labels": {"job-name": "train"}}})
        event = an_event("RayJobRunning", "The job runs", about=("RayJob", "train"), at=12)
        self.put(EVENT, event)

    async def request(self, _method: str, _path: str, /, **_: object) -> bytes:
        """Answer that no other namespace has an object with that name."""
        return b'{"items": []}'

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


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


def _type(command: str) -> Result:
    arguments = command.split()
    return CliRunner().invoke(main.build(arguments[0]), arguments)


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("list", "list"),
        ("get rayjobs -o wide", "table-wide"),
        ("get rayjob/train", "job"),
        ("get raycronjob nightly", "cron-job"),
        ("get raycronjobs -o wide", "cron-jobs-wide"),
    ],
)
def test_jobs_are_shown_as_text(command: str, page: str, golden: Golden) -> None:
    result = _type(command)
    assert result.exit_code == 0, result.output
    golden.check(f"cli/jobs-{page}.txt", result.stdout)


@pytest.mark.usefixtures("server")
def test_documents_have_every_value() -> None:
    job = json.loads(_type("get rayjob/train -o json").stdout)
    assert (job["job"]["attempts"], job["job"]["maxAttempts"], job["job"]["seconds"]) == (2, 3, 600)
    assert [pod["name"] for pod in job["submitters"]] == ["train-pod"]
    assert job["rayCluster"]["name"] == CLUSTER
    cron_job = json.loads(_type("get raycronjob/nightly -o json").stdout)
    assert cron_job["cronJob"]["nextRun"] == "2026-01-01T11:00:00Z"
    assert [run["name"] for run in cron_job["jobs"]] == ["nightly-9", "nightly-8"]
    listing = json.loads(_type("list -o json").stdout)
    assert [row["cronJob"] for row in listing["jobs"]] == ["nightly", "nightly", "nightly", ""]
    assert [row["kind"] for row in listing["cronJobs"]] == ["RayCronJob"]


@pytest.mark.usefixtures("server")
def test_names_can_be_given_to_kubectl() -> None:
    lines = _type("list -o name").stdout.splitlines()
    assert "rayjob.ray.io/train" in lines
    assert "raycronjob.ray.io/nightly" in lines


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("name", ["rayjob/none", "raycronjob/none"])
def test_a_missing_object_is_an_error(name: str) -> None:
    result = _type(f"get {name}")
    assert result.exit_code == 1
    assert "none" in result.stderr


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("typed", "names"),
    [
        (["get", "rayjob", "tr"], ["train"]),
        (["get", "rayj"], ["rayjob"]),
        (["get", "raycron"], ["raycronjob"]),
    ],
)
def test_names_and_kinds_are_completed(
    typed: list[str], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", "")
    monkeypatch.setenv("COMP_CWORD", "")
    assert completion.list_candidates(main.build, typed) == names


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (errors.Forbidden("rayjobs is forbidden"), "not readable: rayjobs: rayjobs is forbidden"),
        (errors.NotFound("the server could not find the requested resource"), ""),
    ],
)
def test_a_list_goes_without_jobs_where_they_cannot_be_read(
    server: Server, problem: errors.RaybusError, message: str
) -> None:
    server.faults.append(lambda request: problem if request.kind == "RayJob" else None)
    result = _type("list")
    assert (result.exit_code, result.stderr.strip()) == (0, message)
    assert "nightly" in result.stdout
    assert _type("get rayjobs").exit_code == 1


def test_a_row_changes_only_with_its_object() -> None:
    def read(body: Body, now: datetime) -> frame.OutputFrame:
        cron_job = ray_cron_job.decode(a_cron_job_body())
        listing = frame.build([], [], [ray_job.decode(body)], [cron_job], now=now)
        return frame.build_listing(listing, wide=False, all_namespaces=False)

    body = a_job_body("train", RUNNING)
    first, later = read(body, NOW), read(body, NOW.replace(minute=45))
    assert [item.state for item in first.items] == [item.state for item in later.items]
    assert [item.line for item in first.items] != [item.line for item in later.items]
    ended = read(a_job_body("train", FAILED_JOB), NOW)
    assert ended.items[0].state != first.items[0].state


def test_a_deleted_job_is_reported_once() -> None:
    listing = frame.build([], [], [a_ray_job()], [ray_cron_job.decode(a_cron_job_body())], now=NOW)
    first = frame.build_listing(listing, wide=False, all_namespaces=False)
    gone = frame.build_listing(
        frame.ListOutput(), wide=False, all_namespaces=False, before=first.items
    )
    assert [(item.name, frame.DELETED_STATE in item.line) for item in gone.items] == [
        ("train", True),
        ("nightly", True),
    ]
    again = frame.build_listing(
        frame.ListOutput(), wide=False, all_namespaces=False, before=gone.items
    )
    assert again.items == []


@pytest.mark.parametrize(
    ("spec", "status", "next_run", "state"),
    [
        ({}, "2026-01-01T10:00:00Z", "2026-01-01T11:00:00+00:00", "Active"),
        ({}, "2026-01-01T09:00:00Z", "2026-01-01T10:00:00+00:00", "Active"),
        ({"suspend": True}, "2026-01-01T10:00:00Z", "None", "Suspended"),
        ({"schedule": "61 * * * *"}, "2026-01-01T10:00:00Z", "None", "Invalid"),
        (
            {"schedule": "0 9 * * *", "timeZone": "Asia/Tokyo"},
            "2026-01-01T00:00:00Z",
            "2026-01-02T00:00:00+00:00",
            "Active",
        ),
    ],
)
def test_the_next_run_is_that_of_the_schedule(
    spec: Json, status: str, next_run: str, state: str
) -> None:
    body = a_cron_job_body(**spec)
    body["status"] = {"lastScheduleTime": status}
    row = job_rows.build_cron_job_row(ray_cron_job.decode(body), now=NOW)
    assert (str(row.next_run).replace(" ", "T"), row.status) == (next_run, state)


def test_a_run_that_is_too_late_is_not_the_next() -> None:
    body = a_cron_job_body()
    body["metadata"]["annotations"] = {"raybus.io/starting-deadline": "10m"}
    body["status"] = {"lastScheduleTime": "2026-01-01T09:00:00Z"}
    cron_job = ray_cron_job.decode(body)
    assert cron_schedule.forecast(cron_job, BETA).find_next_run(NOW) == NOW.replace(
        hour=11, minute=0
    )


def test_the_end_of_the_calendar_has_no_next_run() -> None:
    end = datetime.max.replace(tzinfo=UTC)
    for zone in ("Asia/Tokyo", "America/New_York"):
        cron_job = ray_cron_job.decode(a_cron_job_body(timeZone=zone))
        cron_schedule.forecast(cron_job, BETA).find_next_run(end)  # does not raise


async def test_a_tree_is_watched_with_what_belongs_to_it() -> None:
    kube = cast("KubeClient", Server())
    job = await sources.read_one(kube, "default", kinds.NamedTarget(kinds.JOB, "train"))
    watched = {
        (target.resource.kind, target.fields or target.selector)
        for target in sources.list_targets(job)
    }
    assert watched == {
        ("RayJob", "metadata.name=train"),
        ("RayCluster", f"metadata.name={CLUSTER}"),
        ("Pod", "job-name=train"),
        ("Pod", f"ray.io/cluster={CLUSTER}"),
    }
    cron_job = await sources.read_one(kube, "default", kinds.NamedTarget(kinds.CRON_JOB, "nightly"))
    watched = {
        (target.resource.kind, target.fields or target.selector)
        for target in sources.list_targets(cron_job)
    }
    assert watched == {
        ("RayCronJob", "metadata.name=nightly"),
        ("RayJob", "ray.io/cronjob-name=nightly"),
    }


async def test_a_job_is_shown_without_what_cannot_be_read() -> None:
    kube = Server()

    def refuse(request: Request) -> errors.RaybusError | None:
        return None if request.kind == "RayJob" else errors.Forbidden("forbidden")

    kube.faults.append(refuse)
    shown = await sources.read_one(
        cast("KubeClient", kube), "default", kinds.NamedTarget(kinds.JOB, "train")
    )
    built = frame.build_trees([shown], now=NOW, wide=True)
    assert built.document.ray_cluster is None
    assert [line.partition(":")[0] for line in built.document.unseen] == [
        "events",
        "pods",
        "rayclusters",
    ]


def test_a_report_counts_no_negative_limit() -> None:
    assert job_report.build(a_ray_job(backoffLimit=-1), NOW).max_attempts == 1


def test_the_newest_run_of_a_cron_job_counts(server: Server) -> None:
    result = _type("status raycronjob/nightly --timeout 0")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "Name:          nightly-9")
    server.objects.pop(("RayJob", "default", "nightly-9"))
    failed = _type("status raycronjob/nightly --timeout 0")
    assert (failed.exit_code, "nightly-8" in failed.stdout) == (1, True)
    server.objects.pop(("RayJob", "default", "nightly-8"))
    none = _type("status raycronjob/nightly --timeout 0")
    assert none.exit_code == 1
    assert "RayCronJob nightly has no RayJob; see why with" in none.stderr


def test_the_log_of_the_newest_run_is_printed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def request(_method: str, path: str, /, **_: object) -> bytes:
        asked.append(path)
        return b'{"logs": "one\\n"}'

    monkeypatch.setattr(server, "request", request)
    run = server.objects["RayJob", "default", "nightly-9"]
    run["spec"]["submissionMode"] = "HTTPMode"
    run["status"] |= {"jobId": "nightly-9-x", "rayClusterName": CLUSTER}
    result = _type("logs raycronjob/nightly")
    assert (result.exit_code, result.stdout) == (0, "one\n")
    assert "the newest run is rayjob/nightly-9" in result.stderr
    assert asked[0].endswith("/api/jobs/nightly-9-x/logs")
