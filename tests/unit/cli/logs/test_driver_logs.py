"""The log of a driver from the jobs API of Ray's dashboard: printed, followed, and resumed."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, cast

import msgspec
import pytest
from typer.testing import CliRunner, Result

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.resources import RAY_CLUSTER, RAY_JOB
from raybus_cli import kubeconfig, main, session, waiting
from raybus_cli.jobs import following
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.logs import driver_logs
from raybus_cli.logs.driver_logs import DriverLog
from raybus_cli.logs.selection import LineFormat
from support.builders.ray_job import a_cluster_spec
from support.builders.snapshots import a_cluster, a_config
from support.fakes.kube import FakeKube

PATH: Final = "/api/v1/namespaces/default/services/c-head-svc:dashboard/proxy/api/jobs/{}/logs"
RUNNING: Final[Json] = {
    "jobDeploymentStatus": "Running",
    "jobStatus": "RUNNING",
    "jobId": "train-1",
    "rayClusterName": "c",
    "dashboardURL": "c-head-svc:8265",
}
ENDED: Final[Json] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
COMPLETE: Final[Json] = {**RUNNING, **ENDED}
NEW: Final[Json] = {"jobDeploymentStatus": "Initializing", "jobId": "train-1"}
Answer = str | errors.RaybusError


class Server(FakeKube):
    """An API server whose RayJob and dashboard change to the next state at each read."""

    def __init__(self, *steps: tuple[Json, Answer], mode: str = "HTTPMode") -> None:
        super().__init__()
        spec: Json = {
            "entrypoint": "python a.py",
            "submissionMode": mode,
            "rayClusterSpec": a_cluster_spec(),
        }
        self.put(RAY_JOB, {"metadata": {"name": "train"}, "spec": spec})
        self.put(RAY_CLUSTER, a_cluster("c", a_config()))
        self.steps = list(steps)
        self.answer: Answer = ""
        self.paths: list[str] = []
        self.seconds = 0.0
        """Seconds that the dashboard takes for an answer."""
        self.unreadable: list[errors.RaybusError | None] = []
        """Errors of the next reads of the RayJob."""

    async def get(self, resource: Any, namespace: str | None, name: str) -> bytes:
        if resource is RAY_JOB:
            if self.unreadable and (problem := self.unreadable.pop(0)) is not None:
                raise problem
            if self.steps:
                status, self.answer = self.steps.pop(0)
                self.set_status(RAY_JOB, "default", "train", status)
        return await super().get(resource, namespace, name)

    async def request(
        self, method: str, path: str, /, *, headers: Mapping[str, str] | None = None, **_: Any
    ) -> bytes:
        assert (method, headers) == ("GET", {})
        self.paths.append(path)
        await asyncio.sleep(self.seconds)
        if isinstance(self.answer, errors.RaybusError):
            raise self.answer
        return msgspec.json.encode({"logs": self.answer})

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_logs, "FOLLOW_INTERVAL", 0.0)
    monkeypatch.setattr(driver_logs, "READ_COST", 0.0)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.0)


class Followed:
    """The output and the reports of a reader of logs."""

    def __init__(self) -> None:
        self.out = b""
        self.reports: list[str] = []

    def write(self, chunk: bytes) -> None:
        self.out += chunk

    async def of(
        self, server: Server, tail: int | None = None, *, is_prefixed: bool = False
    ) -> bytes:
        kube, form = cast("KubeClient", server), LineFormat(is_prefixed=is_prefixed)
        log = DriverLog(
            kube, "default", "train", form, write=self.write, report=self.reports.append
        )
        await log.follow(tail)
        return self.out


async def test_a_followed_log_is_printed_once_as_it_grows() -> None:
    server = Server((RUNNING, "one\nt"), (RUNNING, "one\ntwo\n"), (COMPLETE, "one\ntwo\nend"))
    followed = Followed()
    assert await followed.of(server) == b"one\ntwo\nend\n"
    assert followed.reports == []
    assert server.paths == [PATH.format("train-1")] * 3


@pytest.mark.parametrize("kind", [errors.Unavailable, errors.Throttled])
async def test_a_silent_dashboard_loses_no_line(kind: type[errors.RaybusError]) -> None:
    silent = kind("no endpoints available for service")
    server = Server(
        (RUNNING, "one\n"), (RUNNING, silent), (RUNNING, silent), (COMPLETE, "one\ntwo\n")
    )
    followed = Followed()
    assert await followed.of(server) == b"one\ntwo\n"
    assert followed.reports == ["no endpoints available for service; trying again"]


async def test_a_silent_api_server_loses_no_line() -> None:
    server = Server((RUNNING, "one\n"), (COMPLETE, "one\ntwo\n"))
    server.unreadable = [None, errors.Unavailable("connection refused"), None]
    followed = Followed()
    assert await followed.of(server) == b"one\ntwo\n"
    assert followed.reports == ["connection refused"]


async def test_a_retry_prints_the_log_of_each_attempt() -> None:
    second = {**RUNNING, "jobId": "train-2"}
    server = Server(
        (RUNNING, "first"),
        (NEW, "never read"),
        (second, "again\n"),
        ({**COMPLETE, "jobId": "train-2"}, "again\n"),
    )
    assert await Followed().of(server) == b"first\nagain\n"
    assert server.paths == [PATH.format("train-1"), *[PATH.format("train-2")] * 2]


async def test_a_line_without_an_end_keeps_the_pod_of_its_attempt() -> None:
    second = {**RUNNING, "jobId": "train-2", "rayClusterName": "d"}
    server = Server((RUNNING, "first"), (second, "again\n"), ({**second, **ENDED}, "again\n"))
    for name in ("c", "d"):
        cluster = a_cluster(name, a_config())
        cluster["status"]["head"] = {"podName": f"{name}-head", "serviceName": f"{name}-head-svc"}
        server.put(RAY_CLUSTER, cluster)
    assert await Followed().of(server, is_prefixed=True) == (
        b"[pod/c-head/driver] first\n[pod/d-head/driver] again\n"
    )


async def test_a_token_that_the_dashboard_rejects_ends_the_follow_with_the_remedy() -> None:
    server = Server((RUNNING, "one\n"), (RUNNING, errors.Unauthenticated("401")))
    followed = Followed()
    with pytest.raises(errors.Unauthenticated, match=r"refuses the request: 401; it asks for"):
        await followed.of(server)
    assert (followed.out, followed.reports) == (b"one\n", [])


async def test_a_log_that_takes_long_is_read_seldom_until_the_job_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_logs, "READ_COST", 1e6)
    server = Server(*[(RUNNING, "one\n")] * 9, (COMPLETE, "one\ntwo\n"))
    server.seconds = 0.001
    assert await Followed().of(server) == b"one\ntwo\n"
    assert len(server.paths) == 2


async def test_a_log_that_is_replaced_starts_over() -> None:
    followed = Followed()
    server = Server((RUNNING, "one\ntwo\n"), (COMPLETE, "three\n"))
    assert await followed.of(server) == b"one\ntwo\nthree\n"
    assert followed.reports == ["the log was replaced, and starts over"]


async def test_the_end_of_a_log_that_went_with_its_cluster_is_reported() -> None:
    followed = Followed()
    server = Server((RUNNING, "one\n"), (COMPLETE, errors.NotFound("services not found")))
    assert await followed.of(server) == b"one\n"
    assert followed.reports == ["the end of the log may be missing: services not found"]


async def test_a_job_that_ray_does_not_know_yet_is_no_problem() -> None:
    followed = Followed()
    pending = {**RUNNING, "jobStatus": ""}
    server = Server((pending, errors.NotFound("Job train-1 does not exist")), (COMPLETE, "one\n"))
    assert await followed.of(server) == b"one\n"
    assert followed.reports == []


@pytest.mark.parametrize(
    ("tail", "out"),
    [(0, b"new\n"), (1, b"two\nnew\n"), (2, b"one\ntwo\nnew\n"), (9, b"one\ntwo\nnew\n")],
)
async def test_a_tail_limits_only_what_was_there(tail: int, out: bytes) -> None:
    server = Server((RUNNING, "one\ntwo\n"), (COMPLETE, "one\ntwo\nnew\n"))
    assert await Followed().of(server, tail) == out


async def test_an_id_is_no_path() -> None:
    server = Server(({**COMPLETE, "jobId": "../../pods"}, "x"))
    await Followed().of(server)
    assert server.paths == [PATH.format("..%2F..%2Fpods")]
    wrong = Server(({**COMPLETE, "jobId": ".."}, "x"))
    with pytest.raises(errors.InvalidSpec):
        await Followed().of(wrong)


async def test_a_submitted_job_is_followed_with_the_log_of_ray() -> None:
    server = Server((RUNNING, "one\n"), (RUNNING, "one\n"), (COMPLETE, "one\ntwo\n"))
    followed = Followed()
    report = await following.follow(cast("KubeClient", server), "default", "train", followed.write)
    assert (report.has_succeeded, followed.out) == (True, b"one\ntwo\n")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Server, str], Result]:
    def run(server: Server, command: str) -> Result:
        async def connect(_place: KubeAccess) -> Server:
            return server

        def find(*_: object, **__: object) -> KubeAccess:
            return KubeAccess(kubeconfig=None, namespace="default")

        monkeypatch.setattr(session, "connect", connect)
        monkeypatch.setattr(kubeconfig, "find", find)
        return CliRunner().invoke(main.build("logs"), command.split())

    return run


@pytest.mark.parametrize("mode", ["HTTPMode", "InteractiveMode"])
def test_the_command_prints_the_log(typed: Callable[[Server, str], Result], mode: str) -> None:
    result = typed(Server((RUNNING, "one\ntwo\n"), mode=mode), "logs rayjob/train --tail 1")
    assert (result.exit_code, result.stdout) == (0, "two\n")
    data = typed(Server((RUNNING, "one\n"), mode=mode), "logs rayjob/train -o json")
    assert msgspec.json.decode(data.stdout)["line"] == "one"


def test_the_command_follows_the_log(typed: Callable[[Server, str], Result]) -> None:
    server = Server((RUNNING, "one\n"), (COMPLETE, "one\ntwo\n"))
    result = typed(server, "logs rayjob/train -f")
    assert (result.exit_code, result.stdout) == (0, "one\ntwo\n")


@pytest.mark.parametrize(
    ("status", "answer", "options", "message"),
    [
        pytest.param(NEW, "", "", "raybus explain rayjob/train", id="no cluster"),
        pytest.param(RUNNING, errors.Unavailable("no route"), "", "no route", id="no dashboard"),
        pytest.param(RUNNING, "x", "--all", "--all cannot be used", id="no pods"),
        pytest.param(RUNNING, "x", "--since 5m -p", "--since and -p cannot be used", id="no times"),
    ],
)
def test_the_command_says_why_there_is_no_log(
    typed: Callable[[Server, str], Result], status: Body, answer: Answer, options: str, message: str
) -> None:
    result = typed(Server((status, answer)), f"logs rayjob/train {options}")
    assert result.exit_code == 1 or "cannot be used" in message
    assert result.exit_code != 0
    assert message in result.stderr


@pytest.mark.parametrize("mode", ["K8sJobMode", "SidecarMode"])
def test_a_job_whose_pod_is_awaited_is_read_once(
    typed: Callable[[Server, str], Result], mode: str
) -> None:
    server = Server((NEW, ""), (RUNNING, ""), mode=mode)
    result = typed(server, "logs rayjob/train --all -c submitter")
    assert result.exit_code == 1
    assert "has no pod with the log of its driver: it is Initializing" in result.stderr
    assert server.steps == [(RUNNING, "")]


async def test_an_interruption_during_the_read_of_the_log_ends_the_follow() -> None:
    class InterruptedServer(Server):
        async def request(self, *_: Any, **__: Any) -> bytes:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as problem:
                raise errors.Unavailable("connection closed") from problem
            raise AssertionError

    async with asyncio.TaskGroup() as group:
        follow = Followed().of(InterruptedServer((RUNNING, ""), (COMPLETE, "")))
        task = group.create_task(_catch(follow))
    assert str(task.result()) == "connection closed"


async def _catch(work: Coroutine[Any, Any, bytes]) -> errors.RaybusError | None:
    try:
        await work
    except errors.RaybusError as problem:
        return problem
    return None
