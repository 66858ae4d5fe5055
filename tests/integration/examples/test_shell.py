"""The shell subscriber: its syntax always; with the nats CLI on the path (or in $NATS_CLI), the whole of it."""

import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from support.builders.upgrade_story import a_story
from support.servers.outside import Outside
from support.waiting import eventually

from .conftest import EXAMPLES, PATIENCE, access, running

pytestmark = [pytest.mark.integration]

SCRIPT = str(EXAMPLES / "shell" / "subscriber.sh")
STORY = a_story()


def _path() -> str:
    """Return a PATH with the nats CLI; leave the test out where there is none."""
    found = os.environ.get("NATS_CLI") or shutil.which("nats")
    if found is None:
        pytest.skip("no nats CLI: put it on the PATH, or name it in NATS_CLI")
    return f"{Path(found).parent}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_syntax_holds_in_every_shell(shell: str) -> None:
    done = subprocess.run([shell, "-n", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["RAYBUS_NATS_URL", "RAYBUS_NATS_CREDENTIALS"])
async def test_it_says_what_it_needs(missing: str) -> None:
    variables = {"RAYBUS_NATS_URL": "tls://nowhere:4222", "RAYBUS_NATS_CREDENTIALS": "/nowhere", missing: ""}
    async with running(SCRIPT, variables=variables) as example:
        assert await example.ended() == 2
    assert len(example.err) == 1
    assert f"{missing}: is needed" in example.err[0]


async def test_it_hands_events_on_in_order_and_goes_on_where_it_was(at: Outside) -> None:
    variables = {**access(at), "PATH": _path()}
    await at.publish(STORY[:4])
    async with running(SCRIPT, variables=variables) as first:
        await eventually(lambda: len(first.out) == 4, within=PATIENCE, what=str(first.err))
    await at.publish(STORY[4:])
    async with running(SCRIPT, variables=variables) as second:
        await eventually(lambda: len(second.out) == len(STORY) - 4, within=PATIENCE, what=str(second.err))
        at.secured.server.kill()
        at.secured.server.start()
        await at.publish(STORY[:1], again="-again")
        await eventually(lambda: len(second.out) == len(STORY) - 3, within=PATIENCE, what=str(second.err))
    told = [msgspec.json.decode(line)["id"] for line in (*first.out, *second.out)]
    assert told == [event.id for event in (*STORY, STORY[0])]


async def test_a_command_that_fails_is_told(at: Outside) -> None:
    await at.publish(STORY[:1])
    async with running(SCRIPT, "false", variables={**access(at), "PATH": _path()}) as example:
        await eventually(lambda: example.err, within=PATIENCE, what="a word about the event")
    assert example.err[0].startswith('not handled: {"specversion":"1.0"')
