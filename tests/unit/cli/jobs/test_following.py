"""A job is followed to its end, with the log of each attempt."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from common import errors
from common.api.opaque import Body, Json
from common.kube.resources import POD, RAY_JOB, Resource
from raybus_cli import waiting
from raybus_cli.jobs import following
from raybus_cli.show.job_report import JobReport
from support.builders.ray_job import a_cluster_spec
from support.fakes.kube import FakeKube, Request

RUNNING = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "c"}
COMPLETE = {**RUNNING, "jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
FAILED = {**RUNNING, "jobDeploymentStatus": "Failed", "jobStatus": "FAILED"}


class _Content:
    def __init__(self, path: str) -> None:
        self._path = path

    async def iter_any(self) -> AsyncGenerator[bytes]:
        yield f"log of {self._path.split('/')[-2]}\n".encode()


class Server(FakeKube):
    """An API server whose RayJob changes to the next of some statuses at each read."""

    def __init__(self, *statuses: Json, mode: str = "K8sJobMode") -> None:
        super().__init__()
        spec = {
            "entrypoint": "python a.py",
            "submissionMode": mode,
            "rayClusterSpec": a_cluster_spec(),
        }
        self.put(RAY_JOB, {"metadata": {"name": "train"}, "spec": spec})
        self.statuses = list(statuses)
        self.pods: dict[str, Body] = {}
        """By message of a job's status: the pod that appears with that status."""
        self.refuses_logs = False

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        if self.statuses:
            status = self.statuses.pop(0)
            self.set_status(RAY_JOB, "default", "train", status)
            if pod := self.pods.get(status.get("message", "")):
                self.put(POD, pod)
        return await super().get(resource, namespace, name)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], **_: Any
    ) -> AsyncGenerator[_Content]:
        if self.refuses_logs:
            raise errors.Forbidden("pods/log is forbidden")
        assert query["follow"] == "true"
        yield _Content(path)


def a_submitter(name: str, *, is_waiting: bool = False) -> Body:
    state: Json = {"waiting": {}} if is_waiting else {"terminated": {"exitCode": 0}}
    return {
        "metadata": {"name": name, "labels": {"job-name": "train"}},
        "spec": {"containers": [{"name": "ray-job-submitter"}], "nodeName": "n"},
        "status": {"containerStatuses": [{"name": "ray-job-submitter", "state": state}]},
    }


def _refuse_pods(request: Request) -> errors.RaybusError | None:
    if request.kind == "Pod":
        return errors.Forbidden("pods is forbidden")
    return None


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


async def follow(server: Server) -> tuple[JobReport, bytes]:
    written: list[bytes] = []
    kube: Any = server
    report = await following.follow(kube, "default", "train", written.append)
    return report, b"".join(written)


async def test_the_log_is_printed_and_the_end_is_reported() -> None:
    server = Server({}, RUNNING, RUNNING, COMPLETE)
    server.put(POD, a_submitter("train-1"))
    report, log = await follow(server)
    assert (report.has_succeeded, log) == (True, b"log of train-1\n")


async def test_a_retry_prints_the_log_of_each_attempt_once() -> None:
    first, second = {**RUNNING, "message": "first"}, {**RUNNING, "message": "second"}
    server = Server(first, RUNNING, second, RUNNING, FAILED)
    server.pods = {"first": a_submitter("train-1"), "second": a_submitter("train-2")}
    report, log = await follow(server)
    assert not report.has_succeeded
    assert log == b"log of train-1\nlog of train-2\n"


async def test_a_container_that_has_not_started_has_no_log_yet() -> None:
    server = Server(RUNNING, COMPLETE)
    server.put(POD, a_submitter("train-1", is_waiting=True))
    _, log = await follow(server)
    assert log == b""


async def test_a_sidecar_in_the_head_pod_has_the_log() -> None:
    server = Server(RUNNING, COMPLETE, mode="SidecarMode")
    head = a_submitter("c-head")
    head["metadata"]["labels"] = {"ray.io/cluster": "c", "ray.io/node-type": "head"}
    head["spec"]["containers"].insert(0, {"name": "ray-head"})
    server.put(POD, head)
    _, log = await follow(server)
    assert log == b"log of c-head\n"


async def test_a_job_without_a_submitter_is_followed_without_a_log() -> None:
    server = Server(RUNNING, COMPLETE, mode="HTTPMode")
    server.put(POD, a_submitter("train-1"))
    report, log = await follow(server)
    assert (report.has_succeeded, log) == (True, b"")


async def test_a_log_that_may_not_be_read_does_not_end_the_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server(RUNNING, COMPLETE)
    server.refuses_logs = True
    server.put(POD, a_submitter("train-1"))
    report, _ = await follow(server)
    assert report.has_succeeded
    assert "the log of pod/train-1/ray-job-submitter cannot be read" in capsys.readouterr().err


async def test_pods_that_may_not_be_listed_do_not_end_the_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server(RUNNING, RUNNING, COMPLETE)
    server.faults.append(_refuse_pods)
    report, log = await follow(server)
    assert (report.has_succeeded, log) == (True, b"")
    assert capsys.readouterr().err.count("the log of the driver cannot be found") == 1


async def test_a_job_that_is_deleted_in_between_is_reported() -> None:
    server = Server()
    server.objects.clear()
    with pytest.raises(ExceptionGroup) as raised:
        await follow(server)
    assert raised.group_contains(errors.Rejected, match="was deleted before it ended")
