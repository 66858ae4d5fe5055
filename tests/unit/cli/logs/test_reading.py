"""Logs over real HTTP on loopback: streamed, bounded, and with one line for each problem."""

import asyncio
import gzip
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import yaml
from aiohttp import web

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from raybus_cli import session
from raybus_cli.logs import reading, selection
from raybus_cli.logs.reading import LogReader
from raybus_cli.logs.selection import LineFormat, Log, LogSource
from support.builders import snapshots
from support.builders.snapshots import BLUE, a_pod
from support.servers.loopback import served
from support.tables import cases

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEAD = f"{BLUE}-head-aaaaa"
SILENT = f"{BLUE}-gpu-worker-00001"
"""Name of a pod whose log has one line and does not end."""


def a_placed_pod(group: str, number: int = 0) -> Body:
    pod = a_pod(BLUE, group, number)
    return {**pod, "spec": {**pod["spec"], "nodeName": "n"}}


def a_log(pod: str = "one", *, is_of_ray: bool = False) -> Log:
    return Log(
        source=LogSource(pod, "ray"),
        path=f"/api/v1/pods/{pod}/log",
        query={"container": "ray"},
        is_of_ray=is_of_ray,
    )


@asynccontextmanager
async def answering(handler: Handler) -> AsyncGenerator[int]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    async with served(app) as port:
        yield port


class Copied:
    """The output and the reports of a reader of logs."""

    def __init__(self) -> None:
        self.out = b""
        self.reports: list[str] = []

    def write(self, chunk: bytes) -> None:
        self.out += chunk

    async def of(self, handler: Handler, *found: Log, is_following: bool = False) -> int:
        async with answering(handler) as port:
            kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
            form = LineFormat(is_prefixed=len(found) > 1)
            reader = LogReader(
                kube, "default", form, is_following=is_following, report=self.reports.append
            )
            try:
                return await reader.copy(found, self.write)
            finally:
                await kube.close()


def refusing(status: int, message: str, reason: str = "") -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"message": message, "reason": reason}, status=status)

    return handler


async def lines(request: web.Request) -> web.Response:
    return web.Response(text=f"1 of {request.path}\n2")


async def test_logs_of_several_pods_follow_one_another_with_their_names() -> None:
    copied = Copied()
    assert await copied.of(lines, a_log("one"), a_log("two")) == 0
    assert copied.out.decode().splitlines() == [
        "[pod/one/ray] 1 of /api/v1/pods/one/log",
        "[pod/one/ray] 2",
        "[pod/two/ray] 1 of /api/v1/pods/two/log",
        "[pod/two/ray] 2",
    ]


async def test_a_line_is_written_before_the_log_ends() -> None:
    written = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first\n")
        async with asyncio.timeout(10):
            await written.wait()
        await answer.write(b"second\n")
        return answer

    class Waiting(Copied):
        def write(self, chunk: bytes) -> None:
            super().write(chunk)
            written.set()

    copied = Waiting()
    await copied.of(handler, a_log())
    assert copied.out == b"first\nsecond\n"


@cases(
    ("handler", "message"),
    {
        "not started": (
            refusing(400, 'container "ray" in pod "one" is waiting to start: PodInitializing'),
            "PodInitializing; wait, see why with 'raybus explain', or read an init container with -c",
        ),
        "no previous log": (
            refusing(400, 'previous terminated container "ray" in pod "one" not found'),
            "it has not restarted; leave -p out",
        ),
        "gone": (
            refusing(404, 'pods "one" not found', "NotFound"),
            "pod one is gone, and its log with it; 'raybus bundle' keeps the events",
        ),
        "no right": (
            refusing(403, 'pods "one" is forbidden: cannot get resource "pods/log"', "Forbidden"),
            'cannot get resource "pods/log"; ask for that right',
        ),
    },
)
async def test_a_log_that_cannot_be_read_is_one_line_with_the_remedy(
    handler: Handler, message: str
) -> None:
    with pytest.raises(errors.RaybusError) as refused:
        await Copied().of(handler, a_log())
    line = session.format_error(refused.value)
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize("is_following", [False, True])
async def test_of_several_pods_the_others_are_read(is_following: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        if "one" in request.path:
            return web.json_response(
                {"message": 'pods "one" not found', "reason": "NotFound"}, status=404
            )
        return web.Response(text="x\n")

    copied = Copied()
    assert await copied.of(handler, a_log("one"), a_log("two"), is_following=is_following) == 1
    assert copied.out == b"[pod/two/ray] x\n"
    assert copied.reports[0].startswith("pod/one/ray: pod one is gone")


async def test_a_pod_without_a_node_has_no_log_to_read() -> None:
    """The API server answers 200 with an empty body."""

    async def handler(request: web.Request) -> web.Response:
        return web.Response(text="")

    with pytest.raises(
        errors.Rejected,
        match="pod one has no node yet, and so no log; see why with 'raybus explain'",
    ):
        await Copied().of(handler, msgspec.structs.replace(a_log(), is_placed=False))


async def test_a_pod_that_goes_while_it_is_followed_is_reported() -> None:
    async def handler(request: web.Request) -> web.Response:
        return (
            web.Response(text="last\n")
            if request.path.endswith("/log")
            else web.json_response({}, status=404)
        )

    copied = Copied()
    assert await copied.of(handler, a_log(), is_following=True) == 0
    assert (copied.out, copied.reports) == (
        b"last\n",
        ["pod/one/ray: the pod is gone; its log ends here"],
    )


async def test_an_error_in_the_text_of_ray_is_an_error() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(text="fine\n[get_logs] Fetch log error: no such \x1b[2Jnode")

    copied = Copied()
    with pytest.raises(errors.Rejected, match=r"Ray cannot read pod/one/ray: .*no such node"):
        await copied.of(handler, a_log(is_of_ray=True))
    assert copied.out == b"fine\n"


async def test_what_a_dashboard_packs_is_not_unpacked() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(bytes(10**6)), headers={"Content-Encoding": "gzip"})

    copied = Copied()
    await copied.of(handler, a_log(is_of_ray=True))
    assert 0 < len(copied.out) < 10**5


async def cluster(request: web.Request) -> web.StreamResponse:
    if request.path.endswith(f"{SILENT}/log"):
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"hello\n")
        await asyncio.Event().wait()
    if request.path.endswith("/log"):
        return web.Response(body=b"\x1b[2Jhello\n" * 10_000)
    if request.path.endswith("/pods"):
        return web.json_response({"items": [a_placed_pod("head"), a_placed_pod("gpu", 1)]})
    return web.json_response(snapshots.a_ready_service())


def _kubeconfig(folder: Path, port: int) -> str:
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    found: Json = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "contexts": [context],
    }
    (folder / "config").write_text(
        yaml.safe_dump({**found, "users": [{"name": "u", "user": {}}], "current-context": "c"})
    )
    return str(folder / "config")


@asynccontextmanager
async def running(folder: Path, *options: str, stdout: int = PIPE) -> AsyncGenerator[Process]:
    async with answering(cluster) as port:
        command = [
            sys.executable,
            "-m",
            "raybus_cli.main",
            "logs",
            "demo",
            "--kubeconfig",
            _kubeconfig(folder, port),
        ]
        yield await asyncio.create_subprocess_exec(*command, *options, stdout=stdout, stderr=PIPE)


async def _printed(folder: Path, *options: str) -> tuple[int | None, bytes, bytes]:
    async with running(folder, *options) as command:
        out, err = await command.communicate()
        return command.returncode, out, err


async def test_the_command_prints_the_head_of_the_active_cluster(tmp_path: Path) -> None:
    code, out, err = await _printed(tmp_path)
    assert (code, out, err) == (0, b"hello\n" * 10_000, b"")


async def test_the_command_prints_documents_and_raw_lines_into_a_pipe(tmp_path: Path) -> None:
    _, out, _ = await _printed(tmp_path, "-o", "json")
    assert out.splitlines()[0].decode() == f'{{"pod":"{HEAD}","container":"ray","line":"hello"}}'
    _, out, _ = await _printed(tmp_path, "--raw")
    assert out == b"\x1b[2Jhello\n" * 10_000


async def test_a_reader_that_has_enough_is_no_failure(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    async with running(tmp_path, stdout=writer) as command:
        os.close(writer)
        assert await asyncio.to_thread(os.read, reader, 6) == b"hello\n"
        os.close(reader)
        _, err = await command.communicate()
    assert (command.returncode, err) == (0, b"")


async def test_an_interruption_ends_the_command_with_its_usual_code(tmp_path: Path) -> None:
    async with running(tmp_path, "-f", "--pod", SILENT) as command:
        assert command.stdout is not None
        assert await command.stdout.readline() == b"hello\n"
        command.send_signal(signal.SIGINT)
        _, err = await command.communicate()
    assert (command.returncode, err) == (130, b"")


TIMES = ("2026-01-01T10:00:00.1Z", "2026-01-01T10:00:00.25Z", "2026-01-01T10:00:01Z")


def a_running_pod(*, is_running: bool) -> Body:
    state: Json = {"running": {}} if is_running else {"terminated": {"exitCode": 0}}
    return {
        "metadata": {"name": "one"},
        "status": {"containerStatuses": [{"name": "ray", "state": state}]},
    }


class BreakingLog:
    """A log with a time before each line, whose stream breaks or ends after some lines."""

    def __init__(self, *ends: int, breaks: bool) -> None:
        self.lines = [
            f"{time} line {number}"
            for number, time in enumerate((TIMES[0], TIMES[1], TIMES[1], TIMES[1], TIMES[2]))
        ]
        self.ends = [*ends, len(self.lines)]
        """Number of lines that the log has when each stream ends."""
        self.breaks = breaks
        self.queries: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return web.json_response(a_running_pod(is_running=bool(self.ends)))
        self.queries.append(dict(request.query))
        since = request.query.get("sinceTime", "")[:19]
        written = [line for line in self.lines[: self.ends.pop(0)] if line[:19] >= since]
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write("".join(f"{line}\n" for line in written).encode())
        if self.breaks and self.ends:
            await answer.write(b"2026-01-01T10:00:00.25Z half of a l")
            assert request.transport is not None
            request.transport.abort()
        return answer


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_followed_stream_is_read_on_where_it_stopped(
    breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RETRY_SECONDS", 0.0)
    log, copied = BreakingLog(2, 3, 3, breaks=breaks), Copied()
    followed = msgspec.structs.replace(a_log(), query={"container": "ray", "tailLines": "9"})
    assert await copied.of(log.handle, followed, is_following=True) == 0
    assert copied.out.decode().splitlines() == [f"line {number}" for number in range(5)]
    assert [query.get("sinceTime") for query in log.queries] == [None, *[TIMES[1]] * 3]
    assert [query.get("tailLines") for query in log.queries] == ["9", None, None, None]
    assert sum(text.endswith("reading on") for text in copied.reports) == (3 if breaks else 0)
    assert copied.reports[-1].endswith("the container ended; after a restart -p reads this log")


async def test_a_stream_that_never_opened_is_not_tried_again() -> None:
    requests: list[str] = []

    async def refuse(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.json_response({"message": "no kubelet"}, status=503)

    with pytest.raises(ExceptionGroup) as raised:
        await Copied().of(refuse, a_log(), is_following=True)
    assert raised.group_contains(errors.Unavailable, match="no kubelet")
    assert requests == ["/api/v1/pods/one/log"]


class StreamedLog:
    """A log of which each request reads a given text, and then ends or breaks."""

    def __init__(self, *texts: str, breaks: bool = False, status: int = 200) -> None:
        self.texts = list(texts)
        self.breaks = breaks
        self.status = status
        """Status of the answer to the second request, and to a read of the pod before it."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_log, is_busy = request.path.endswith("/log"), self.status != 200 and len(self.texts) == 1
        if is_busy:
            if is_log:
                self.status, busy = 200, self.status
            else:
                busy = self.status
            return web.json_response({"message": "wait"}, status=busy)
        if not is_log:
            return web.json_response(a_running_pod(is_running=bool(self.texts)))
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(self.texts.pop(0).encode())
        if self.breaks and self.texts:
            assert request.transport is not None
            request.transport.abort()
        return answer


FIRST, SECOND = f"{TIMES[0]} one\n", f"{TIMES[1]} two\n"


@pytest.mark.parametrize("breaks", [True, False])
async def test_a_line_in_whose_middle_a_stream_stops_is_copied_whole(
    breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RETRY_SECONDS", 0.0)
    log, copied = StreamedLog(FIRST + SECOND[:-2], FIRST + SECOND + "end", breaks=breaks), Copied()
    assert await copied.of(log.handle, a_log(), is_following=True) == 0
    assert copied.out.decode().splitlines() == ["one", "two", "end"]


@pytest.mark.parametrize("breaks", [True, False])
@pytest.mark.parametrize("at", [40, 60, 84, 85, 86])
async def test_pieces_of_a_long_line_are_copied_once(
    breaks: bool, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(selection, "MAX_LINE_SIZE", 40)
    long = f"{TIMES[0]} {'a' * 18}9999-01-01T00:00:00Z {'b' * 20}\n"
    log = StreamedLog(long[:at], long + SECOND, breaks=breaks)
    copied = Copied()
    assert await copied.of(log.handle, a_log(), is_following=True) == 0
    text = copied.out.decode().replace("\n", "")
    assert text == f"{'a' * 18}9999-01-01T00:00:00Z {'b' * 20}two"


@pytest.mark.parametrize("status", [429, 503])
async def test_a_server_that_is_busy_for_a_while_does_not_end_a_followed_log(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RETRY_SECONDS", 0.0)
    log, copied = StreamedLog(FIRST, FIRST + SECOND, status=status), Copied()
    assert await copied.of(log.handle, a_log(), is_following=True) == 0
    assert copied.out == b"one\ntwo\n"
    assert sum(text.endswith("reading on") for text in copied.reports) == 1


async def test_of_several_pods_the_others_are_read_while_one_is_throttled() -> None:
    async def handler(request: web.Request) -> web.Response:
        if "one" in request.path:
            return web.json_response({"message": "wait"}, status=429)
        return web.Response(text="x\n")

    copied = Copied()
    assert await copied.of(handler, a_log("one"), a_log("two")) == 1
    assert copied.out == b"[pod/two/ray] x\n"


async def test_an_interruption_during_the_read_of_the_pod_ends_the_follow() -> None:
    class InterruptedKube(KubeClient):
        async def get(self, *_: object, **__: object) -> bytes:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as problem:
                raise errors.Unavailable("connection closed") from problem
            raise AssertionError

    async def handler(_: web.Request) -> web.Response:
        return web.Response(text=FIRST)

    copied = Copied()
    async with answering(handler) as port, asyncio.timeout(10):
        kube = InterruptedKube(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        reader = LogReader(
            kube, "default", LineFormat(), is_following=True, report=copied.reports.append
        )
        with pytest.raises(ExceptionGroup) as raised:
            await reader.copy([a_log()], copied.write)
        await kube.close()
    assert raised.group_contains(errors.Unavailable, match="connection closed")
