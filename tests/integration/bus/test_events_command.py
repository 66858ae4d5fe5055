"""`raybus events` as a process against a real NATS server with users, TLS and the mirror for external consumers."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from common.bus import nkeys
from common.ray import job_events
from common.upgrade import events as upgrade_events
from raybus_cli.events import job_history
from raybus_cli.events.run import NatsAccess
from support import job_events as jobs
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.servers.outside import Outside, outside
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

TIMEOUT = 90.0
EVENTS = an_example_upgrade()
OTHER = an_example_upgrade("my.chat", namespace="team-a")
IDS = [event.id for event in EVENTS]


class Done(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def ids(self) -> list[str]:
        return [msgspec.json.decode(line)["id"] for line in self.out]


class Running:
    """A command that goes on, and the lines that it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.out: list[str] = []
        self.err: list[str] = []

    async def read(self) -> None:
        async with asyncio.TaskGroup() as group:
            for stream, lines in (
                (self._process.stdout, self.out),
                (self._process.stderr, self.err),
            ):
                assert stream is not None
                group.create_task(_collect(stream, lines))

    async def until(self, count: int) -> None:
        """Wait until it has written so many lines."""
        await eventually(
            lambda: len(self.out) >= count, within=TIMEOUT, what=f"{count} lines; {self.err}"
        )

    async def end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        async with asyncio.timeout(TIMEOUT):
            return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


async def _collect(stream: asyncio.StreamReader, lines: list[str]) -> None:
    async for line in stream:
        lines.append(line.decode().rstrip("\n"))  # noqa: PERF401  (others read the list while it grows)


@asynccontextmanager
async def started(at: Outside, *arguments: str) -> AsyncGenerator[Running]:
    command = ["events", "--nats", at.url, "--nats-credentials", str(at.folder), *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raybus_cli.main", *command, stdout=pipe, stderr=pipe
    )
    running = Running(process)
    async with asyncio.TaskGroup() as group:
        group.create_task(running.read())
        try:
            yield running
        finally:
            running.kill()
            await process.wait()


async def run(*arguments: str) -> Done:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "raybus_cli.main", "events", *arguments, stdout=pipe, stderr=pipe
    )
    async with asyncio.timeout(TIMEOUT):
        out, err = await process.communicate()
    return Done(process.returncode or 0, out.decode().splitlines(), err.decode().splitlines())


async def ask(at: Outside, *arguments: str) -> Done:
    return await run("--nats", at.url, "--nats-credentials", str(at.folder), *arguments)


@pytest_asyncio.fixture
async def at(tmp_path: Path) -> AsyncGenerator[Outside]:
    async with outside(tmp_path / "nats") as running:
        yield running


@pytest_asyncio.fixture
async def reported(at: Outside) -> Outside:
    """Two upgrades have happened, one event after the other in turn."""
    await at.publish([event for both in zip(EVENTS, OTHER, strict=True) for event in both])
    return at


async def test_all_events_as_they_are_stored_and_in_order(reported: Outside) -> None:
    done = await ask(reported, "-o", "json")
    wanted = [
        upgrade_events.encode(event).payload.decode()
        for both in zip(EVENTS, OTHER, strict=True)
        for event in both
    ]
    assert (done.code, done.out, done.err) == (0, wanted, [])


async def test_one_service_for_people(reported: Outside) -> None:
    done = await ask(reported, "team-a/my.chat")
    assert (done.code, len(done.out), done.err) == (0, len(OTHER), [])
    assert (
        done.out[3]
        == "2026-01-01T12:01:10Z  team-a/my.chat  traffic: demo-x7k2p 100 → 95 %, demo-b4n9d 0 → 5 %"
    )


async def test_the_events_of_a_job_by_kind(reported: Outside) -> None:
    of_jobs = [jobs.a_job_event(data, seconds=at) for at, data in jobs.EXAMPLES]
    await reported.publish(of_jobs)
    await reported.publish(of_jobs)  # a new process repeats them, and the server stores none twice
    job = f"rayjob/team-a/{jobs.NAME}"
    everything = await ask(reported, job, "-o", "json")
    assert everything.out == [job_events.FAMILY.encode(event).payload.decode() for event in of_jobs]
    failed = await ask(reported, job, "--kind", "job-failed", "--kind", "started")
    assert (failed.code, failed.err) == (0, [])
    assert failed.out == [
        f"2026-01-01T12:10:00Z  team-a/{jobs.NAME}  job failed in attempt 1 after 10m0s "
        f"(DeadlineExceeded): {jobs.DEADLINE}"
    ]
    assert await ask(reported, f"rayservice/team-a/{jobs.NAME}") == Done(
        0, [], ["raybus events: no events"]
    )


async def test_the_history_of_a_job_is_read_by_the_subscriber(reported: Outside) -> None:
    of_jobs = [jobs.a_job_event(data, seconds=at) for at, data in jobs.EXAMPLES[:3]]
    await reported.publish(of_jobs)
    collector = job_history.EventCollector()
    way = NatsAccess(reported.secured.settings("subscriber"))
    await job_history.collect(collector, "team-a", jobs.NAME, way)
    assert [event.data for event in collector.events] == [event.data for event in of_jobs]


async def test_a_part_of_the_history(reported: Outside) -> None:
    from_an_id = await ask(
        reported, "default/greeter", "-o", "json", "--replay", IDS[4], "--limit", "3"
    )
    assert (from_an_id.code, from_an_id.ids) == (0, IDS[4:7])
    last = await ask(reported, "default/greeter", "-o", "json", "--limit", "2")
    assert (last.code, last.ids) == (0, IDS[-2:])
    since = await ask(reported, "default/greeter", "-o", "json", "--since", "10m")
    assert (since.code, since.ids) == (0, IDS)
    assert await ask(reported, "--since", "0") == Done(0, [], ["raybus events: no events"])


async def test_an_event_that_is_stored_twice_is_shown_once(at: Outside) -> None:
    await at.publish(EVENTS[:4])
    await at.publish(EVENTS[:4], again="-again")
    await at.publish(EVENTS[4:])
    assert (await ask(at, "-o", "json")).ids == IDS


async def test_following_ends_with_ctrl_c(reported: Outside) -> None:
    async with started(
        reported, "default/greeter", "--follow", "--limit", "1", "-o", "json"
    ) as running:
        await running.until(1)
        await reported.publish(a_retreat())
        await running.until(5)
        assert await running.end(signal.SIGINT) == 0
        await eventually(lambda: len(running.out) == 5, what="the end")
        assert [msgspec.json.decode(line)["id"] for line in running.out] == [
            IDS[-1],
            *(each.id for each in a_retreat()),
        ]
        assert running.err == []


async def test_following_goes_on_after_nats_was_killed(reported: Outside) -> None:
    async with started(reported, "default/greeter", "--follow", "-o", "json") as running:
        await running.until(len(EVENTS))
        reported.secured.server.kill()
        await eventually(lambda: running.err, within=TIMEOUT, what="a message about NATS")
        reported.secured.server.start()
        await reported.publish(a_retreat())
        await running.until(len(EVENTS) + 4)
        assert await running.end(signal.SIGINT) == 0
    assert [msgspec.json.decode(line)["id"] for line in running.out] == [
        *IDS,
        *(each.id for each in a_retreat()),
    ]
    assert "going on after the last event" in running.err[0]


async def test_following_begins_anew_where_the_stream_was_lost(reported: Outside) -> None:
    async with started(reported, "default/greeter", "--follow", "-o", "json") as running:
        await running.until(len(EVENTS))
        reported.secured.server.kill()
        reported.secured.server.lose_store()
        reported.secured.server.start()
        await reported.provide()
        await reported.publish([*EVENTS[-2:], *a_retreat()])
        await running.until(len(EVENTS) + 4)
        assert await running.end(signal.SIGINT) == 0
    assert [msgspec.json.decode(line)["id"] for line in running.out] == [
        *IDS,
        *(each.id for each in a_retreat()),
    ]


async def test_nothing_happened_yet(at: Outside) -> None:
    done = await ask(at)
    assert done == Done(0, [], ["raybus events: no events"])


async def test_an_unknown_id(reported: Outside) -> None:
    done = await ask(reported, "--replay", "nobody-knows-it", "--follow")
    assert (done.code, done.out) == (1, [])
    assert done.err == [
        "error: no event with the id 'nobody-knows-it' is stored; 'raybus events -o json' shows the ids"
    ]


async def test_a_server_without_the_stream(tmp_path: Path, at: Outside) -> None:
    at.secured.server.kill()
    at.secured.server.lose_store()
    at.secured.server.start()
    done = await ask(at, "--follow")
    assert (done.code, done.out) == (1, [])
    assert done.err == [
        f"error: {at.url} has no stream of events for subscriber: does raybus run with this NATS? "
        "'python -m nats_admin.provision streams' makes the stream"
    ]


async def test_credentials_of_another_server(tmp_path: Path, at: Outside) -> None:
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "seed").write_text(nkeys.new_seed())
    (stranger / "ca.crt").write_bytes((at.folder / "ca.crt").read_bytes())
    done = await run("--nats", at.url, "--nats-credentials", str(stranger))
    for _ in range(4):
        # A busy machine may lose the server's reason; the message names the server's log then.
        if "closed the connection at once" in "".join(done.err):
            done = await run("--nats", at.url, "--nats-credentials", str(stranger))
    assert (done.code, done.out, len(done.err)) == (1, [], 1)
    assert done.err[0].startswith(
        f"error: NATS at {at.url} does not know the user of {stranger}/seed; "
    )


async def test_a_server_that_is_away(at: Outside) -> None:
    at.secured.server.kill()
    done = await ask(at)
    assert (done.code, done.out, len(done.err)) == (1, [], 1)
    assert done.err[0].startswith(f"error: NATS at {at.url} is not reachable: ")


async def test_a_command_that_makes_no_sense(tmp_path: Path) -> None:
    done = await run("greeter", "--nats", "tls://localhost:1", "--nats-credentials", str(tmp_path))
    assert (done.code, done.out) == (2, [])
    assert done.err == [
        "error: 'greeter' names no RayService and no RayJob: expected NAMESPACE/NAME, such as "
        "default/chat, or rayjob/NAMESPACE/NAME",
    ]


async def test_a_reader_that_goes_away(reported: Outside) -> None:
    command = f"{sys.executable} -m raybus_cli.main events --nats {reported.url} --nats-credentials {reported.folder} | head -1"
    process = await asyncio.create_subprocess_shell(
        command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    async with asyncio.timeout(TIMEOUT):
        out, err = await process.communicate()
    assert (len(out.splitlines()), err) == (1, b"")


@pytest.mark.parametrize("file", ["seed", "ca.crt"])
async def test_credentials_that_are_none(at: Outside, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "seed").write_bytes((at.folder / "users" / "subscriber.seed").read_bytes())
    (folder / "ca.crt").write_bytes((at.folder / "ca.crt").read_bytes())
    (folder / file).write_text("nothing of use")
    done = await run("--nats", at.url, "--nats-credentials", str(folder))
    assert (done.code, done.out, len(done.err)) == (2, [], 1)
    assert str(folder / file) in done.err[0]
