"""Children that asyncio watches: ended without a message of its watcher, whatever they do meanwhile."""

import asyncio
import logging
import signal
from pathlib import Path

import pytest

from localcluster import processes
from raybus_cli import child_processes

TRIES = 60
"""Number of tries; with `Process.kill` a fifth of them met the message of the watcher."""


async def test_a_child_that_ends_while_it_is_ended_is_reaped_by_its_watcher(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="asyncio")
    for _ in range(TRIES):
        child = await asyncio.create_subprocess_exec("/bin/true", stdout=asyncio.subprocess.PIPE)
        assert child.stdout is not None
        assert await child.stdout.read() == b""
        await child_processes.end_child(child)
        assert child.returncode in {0, -signal.SIGKILL}
    assert caplog.messages == []


async def test_a_child_that_ended_is_not_signalled() -> None:
    child = await asyncio.create_subprocess_exec("/bin/true")
    assert await child.wait() == 0
    child_processes.signal_child(child, signal.SIGKILL)
    assert child.returncode == 0


async def test_a_child_that_goes_on_is_killed() -> None:
    child = await asyncio.create_subprocess_exec("/bin/sleep", "60")
    await child_processes.end_child(child)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("own", "seen"), [(None, "300"), ("50", "50")])
def test_a_default_of_the_environment_gives_way_to_the_callers_own(
    own: str | None, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOGC", own) if own else monkeypatch.delenv("GOGC", raising=False)
    log = tmp_path / "log"
    started = processes.spawn(
        "sh", ["sh", "-c", "echo $GOGC"], log, dies_with_us=True, defaults={"GOGC": "300"}
    )
    assert started.popen is not None
    assert started.popen.wait() == 0
    assert log.read_text().strip() == seen
