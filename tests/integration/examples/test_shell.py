"""The shell subscriber, with the nats CLI that `make prepare-long-running` built."""

import os
import subprocess

import msgspec
import pytest

from common.bus.cloud_events import Event
from localcluster import binaries
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.servers.outside import Outside
from support.servers.programs import prepared
from support.waiting import eventually

from .conftest import EXAMPLES, TIMEOUT, Running, access, running

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

SCRIPT = str(EXAMPLES / "shell" / "subscriber.sh")
EVENTS, RETREAT = an_example_upgrade(), a_retreat()


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PATH with the nats CLI."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "nats").symlink_to(prepared(binaries.NATS_CLI))
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_syntax_holds_in_every_shell(shell: str) -> None:
    done = subprocess.run([shell, "-n", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["RAYBUS_NATS_URL", "RAYBUS_NATS_CREDENTIALS"])
async def test_it_names_what_it_needs(missing: str) -> None:
    variables = {
        "RAYBUS_NATS_URL": "tls://nowhere:4222",
        "RAYBUS_NATS_CREDENTIALS": "/nowhere",
        missing: "",
    }
    async with running(SCRIPT, variables=variables) as example:
        assert await example.ended() == 2
    assert len(example.err) == 1
    assert f"{missing}: is needed" in example.err[0]


async def test_it_hands_events_on_in_order_and_goes_on_where_it_was(at: Outside, path: str) -> None:
    variables = {**access(at), "PATH": path}
    await at.publish(EVENTS[:4])
    async with running(SCRIPT, variables=variables) as first:
        await eventually(lambda: len(first.out) == 4, within=TIMEOUT, what=str(first.err))
    await at.publish(EVENTS[4:])
    async with running(SCRIPT, variables=variables) as second:
        await _until(second, EVENTS[-1])
        at.secured.server.kill()
        at.secured.server.start()
        await at.publish(RETREAT)
        await _until(second, RETREAT[-1])
    reported = [_id(line) for line in (*first.out, *second.out)]
    # What was not yet acknowledged, or lost its acknowledgement with the server, may come again.
    assert list(dict.fromkeys(reported)) == [event.id for event in (*EVENTS, *RETREAT)]


async def _until(example: Running, event: Event) -> None:
    await eventually(
        lambda: example.out and _id(example.out[-1]) == event.id,
        within=TIMEOUT,
        what=f"{event}; {example.err}",
    )


def _id(line: str) -> str:
    return msgspec.json.decode(line)["id"]


async def test_a_command_that_fails_is_reported(at: Outside, path: str) -> None:
    await at.publish(EVENTS[:1])
    async with running(SCRIPT, "false", variables={**access(at), "PATH": path}) as example:
        await eventually(lambda: example.err, within=TIMEOUT, what="a message about the event")
    assert example.err[0].startswith('not handled: {"specversion":"1.0"')
