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
from raybus_cli.logs.reading import Reader
from raybus_cli.logs.selection import Form, Log, Source
from support.builders import snapshots
from support.builders.snapshots import BLUE, a_pod
from support.servers.loopback import served

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
HEAD = f"{BLUE}-head-aaaaa"
SILENT = f"{BLUE}-gpu-worker-00001"
"""Its log has one line, and does not end."""


def a_placed_pod(group: str, number: int = 0) -> Body:
    pod = a_pod(BLUE, group, number)
    return {**pod, "spec": {**pod["spec"], "nodeName": "n"}}


def a_log(pod: str = "one", *, is_of_ray: bool = False) -> Log:
    return Log(
        source=Source(pod, "ray"),
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
    """What a reader wrote and reported."""

    def __init__(self) -> None:
        self.out = b""
        self.reports: list[str] = []

    def write(self, chunk: bytes) -> None:
        self.out += chunk

    async def of(self, handler: Handler, *found: Log, is_following: bool = False) -> int:
        async with answering(handler) as port:
            kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
            form = Form(is_prefixed=len(found) > 1)
            reader = Reader(
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


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        pytest.param(
            refusing(400, 'container "ray" in pod "one" is waiting to start: PodInitializing'),
            "PodInitializing; wait, see why with 'raybus explain', or read an init container with -c",
            id="not started",
        ),
        pytest.param(
            refusing(400, 'previous terminated container "ray" in pod "one" not found'),
            "it has not restarted; leave -p out",
            id="no previous log",
        ),
        pytest.param(
            refusing(404, 'pods "one" not found', "NotFound"),
            "pod one is gone, and its log with it; 'raybus bundle' keeps the events",
            id="gone",
        ),
        pytest.param(
            refusing(403, 'pods "one" is forbidden: cannot get resource "pods/log"', "Forbidden"),
            'cannot get resource "pods/log"; ask for that right',
            id="no right",
        ),
    ],
)
async def test_a_log_that_cannot_be_read_is_one_line_with_the_remedy(
    handler: Handler, message: str
) -> None:
    with pytest.raises(errors.RaybusError) as refused:
        await Copied().of(handler, a_log())
    line = session.line(refused.value)
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
    """The API server answers 200, with nothing in it."""

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
