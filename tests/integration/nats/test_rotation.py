"""Keys, certificates and the authority are replaced at a real server under a connection that never stops asking."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.bus import credential_store, credentials, issue, provision, streams
from common.bus.credential_store import AUTHORITY, SERVER, USER, Folder, Step
from common.bus.nats import Bus, connect
from common.bus.reload import Beside, Reloader, newest_of
from common.bus.server_conf import Server
from common.kube import resources
from common.kube.client import KubeClient
from common.runtime.clock import SystemClock
from common.runtime.settings import Settings
from localcluster import ports, processes
from localcluster.control_plane import ControlPlane
from support.servers.nats import nats_server
from support.servers.relayed import Secured
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

WATCHER: Final = f"{USER}watcher"
OVERLAP: Final = timedelta(hours=1)
"""Never waited for: each step is told that it is later."""
LONGEST_GAP: Final = 3.0
"""Seconds without an answer: a reconnect takes a tenth of this on an idle machine."""


class Kept:
    """A server whose files are looked after, and the phases of a replacement."""

    def __init__(self, secured: Secured, server: Server, folder: Path) -> None:
        self.secured = secured
        self._server = server
        self._store = Folder(folder)
        self._folder = folder
        self._hours = 0

    async def step(self, *begin: str) -> Step:
        """Carry a replacement one phase on, and wait until the server has taken that up."""
        now = SystemClock().now() + self._hours * OVERLAP
        self._hours += 1
        step = await credential_store.rotate(
            self._store, self._server, begin=frozenset(begin), overlap=OVERLAP, now=now
        )
        if SERVER in step.written:
            await eventually_true(self._is_taken_up, every=0.1, what="the server's new configuration")
        return step

    async def finish(self, *begin: str) -> None:
        """Carry a replacement to its end."""
        step = await self.step(*begin)
        while step.due is not None:
            step = await self.step()

    async def _is_taken_up(self) -> bool:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{self._server.monitoring_port}/varz")
        loaded = msgspec.json.decode(answer.content, type=dict[str, object])["config_load_time"]
        return msgspec.convert(loaded, type=type(SystemClock().now())) >= newest_of(self._folder)


@pytest_asyncio.fixture
async def kept(tmp_path: Path) -> AsyncGenerator[Kept]:
    server = Server(
        folder=str(tmp_path),
        store=str(tmp_path / "jetstream"),
        host="127.0.0.1",
        monitoring_port=ports.free(1)[0],
        pid_file=str(tmp_path / "nats.pid"),
    )
    await credential_store.complete(Folder(tmp_path), server, names=["127.0.0.1"], now=SystemClock().now())
    configuration = (tmp_path / "nats-server.conf").read_text()
    beside = Beside(
        folder=tmp_path, pid_file=tmp_path / "nats.pid", monitor=f"http://127.0.0.1:{server.monitoring_port}"
    )
    with nats_server(tmp_path, configuration=configuration, scheme="tls") as running:
        secured = Secured(running, tmp_path)
        async with connect(secured.settings("keeper")) as bus:
            await bus.session()
            await provision.ensure(bus, [streams.state()])
        async with asyncio.TaskGroup() as group:
            reloading = group.create_task(Reloader(beside, SystemClock()).run())
            yield Kept(secured, server, tmp_path)
            reloading.cancel()


class Asking:
    """A service that asks for the stream again and again, and how long it was without an answer."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.gaps: list[float] = []
        self.answers = 0

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        answered_at = loop.time()
        while True:
            with contextlib.suppress(errors.Retryable):
                await self._bus.session()
                await self._bus.stream("RAY_STATE")
                self.gaps.append(loop.time() - answered_at)
                answered_at = loop.time()
                self.answers += 1
            await asyncio.sleep(0.01)


async def under_questions(settings: Settings, replace: Callable[[Bus], Awaitable[None]]) -> None:
    """Replace something while a service asks; nobody waits longer than a reconnect takes."""
    async with connect(settings) as bus, asyncio.TaskGroup() as group:
        await bus.session()
        asking = Asking(bus)
        task = group.create_task(asking.run())
        await eventually(lambda: asking.answers, what="the first answer")
        await replace(bus)
        before = asking.answers
        await eventually(lambda: asking.answers > before + 2, within=30.0, what="answers afterwards")
        task.cancel()
    print(f"{asking.answers} answers, longest wait {max(asking.gaps):.3f} s")  # noqa: T201  (the figure that the test is about)
    assert max(asking.gaps) < LONGEST_GAP


async def refusal(settings: Settings, *, of: str) -> str:
    """Return why a server is not used."""
    async with connect(settings) as bus:
        await eventually(lambda: of in (bus.problem or ""), within=30.0, what="the refusal")
        return str(bus.problem)


async def test_a_users_key_is_replaced_under_its_feet(kept: Kept, tmp_path: Path) -> None:
    settings = kept.secured.settings("watcher")
    old = tmp_path / "old.seed"
    old.write_bytes((tmp_path / "users" / "watcher.seed").read_bytes())

    async def replace(bus: Bus) -> None:
        first = bus.current
        await kept.finish(WATCHER)
        await eventually(lambda: first.lost is not None, within=30.0, what="the end of the old key's connection")

    await under_questions(settings, replace)
    assert "Authorization Violation" in await refusal(
        msgspec.structs.replace(settings, nats_seed_file=old), of="Violation"
    )


async def test_a_process_that_starts_in_any_phase_gets_in(kept: Kept) -> None:
    settings = kept.secured.settings("watcher")
    step = await kept.step(WATCHER)
    while True:
        async with connect(settings) as bus:
            await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
        if step.due is None:
            return
        step = await kept.step()


async def test_a_key_that_came_before_its_time_gives_way_to_the_old_one(kept: Kept, tmp_path: Path) -> None:
    async with connect(kept.secured.settings("watcher")) as bus:
        await bus.session()
        (tmp_path / "users" / "watcher.seed").write_text(credentials.new_seed())
        kept.secured.server.kill()
        await eventually(lambda: bus.problem is not None, within=30.0, what="the loss")
        kept.secured.server.start()
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection with the old key")


async def test_the_servers_certificate_is_replaced_and_nobody_notices(kept: Kept, tmp_path: Path) -> None:
    settings = kept.secured.settings("watcher")
    old = (tmp_path / "tls.crt").read_bytes()

    async def replace(bus: Bus) -> None:
        first = bus.current
        await kept.finish(SERVER)
        assert first.lost is None
        async with connect(settings) as other:
            await other.session()

    await under_questions(settings, replace)
    assert (tmp_path / "tls.crt").read_bytes() != old


async def test_the_authority_is_replaced_and_the_old_one_no_longer_trusts_the_server(
    kept: Kept, tmp_path: Path
) -> None:
    settings = kept.secured.settings("watcher")
    old = tmp_path / "old.crt"
    old.write_bytes((tmp_path / "ca.crt").read_bytes())

    async def replace(bus: Bus) -> None:
        await bus.session()
        step = await kept.step(AUTHORITY)
        while step.due is not None:
            async with connect(settings) as other:
                await eventually(lambda other=other: other.problem is None, within=30.0, what="the connection")
            step = await kept.step()

    await under_questions(settings, replace)
    assert "is not signed by" in await refusal(msgspec.structs.replace(settings, nats_ca_file=old), of="not signed")
    async with connect(settings) as bus:
        await bus.session()


async def test_a_configuration_that_the_server_does_not_take_is_told(
    kept: Kept, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nats-server.conf").write_text("this is { no configuration")
    told: list[str] = []

    def is_told() -> bool:
        told.append(capsys.readouterr().out)
        return "goes on with the old one" in "".join(told)

    await eventually(is_told, within=30.0, what="the complaint")
    async with connect(kept.secured.settings("watcher")) as bus:
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection")


async def test_the_command_replaces_every_secret_and_tells_each_phase(
    control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    command = [sys.executable, "-m", "common.bus.provision", "credentials", "--secrets", namespace]
    command += ["--kubeconfig", str(control_plane.kubeconfig)]
    first = await processes.run(command)
    assert first.code == 0, first.errors
    before = {name: await secret(kube, namespace, name) for name in issue.bundles(["all"])}

    second = await processes.run([*command, "--rotate", "all", "--overlap", "0.2"])

    assert second.code == 0, second.errors
    after = {name: await secret(kube, namespace, name) for name in before}
    assert [name for name in before if before[name] == after[name]] == []
    assert {name: set(held) for name, held in after.items()} == {name: set(held) for name, held in before.items()}
    told = second.output.splitlines()
    assert f"  {WATCHER}: the servers learn the new one" in told
    assert f"  {WATCHER}: it reaches who uses it, and the old one is still good" in told
    assert told[-1] == "all keys are settled"


async def secret(kube: KubeClient, namespace: str, name: str) -> dict[str, str]:
    return msgspec.json.decode(await kube.get(resources.SECRET, namespace, name), type=dict[str, Any])["data"]
