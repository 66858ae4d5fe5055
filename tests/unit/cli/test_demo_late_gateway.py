"""The gateway of a demo comes from a command that runs beside it: its progress is shown, its failure raised, and it never outlives the demo."""

import sys

import pytest

from common import errors
from raybus_cli.demo import late_gateway
from raybus_cli.demo.late_gateway import LateGateway
from support.waiting import eventually
from unit.cli.test_help import parse


async def _until(late: LateGateway, *, shown: str) -> None:
    await eventually(lambda: shown in late.activity, within=20, what=shown)


async def _ended(late: LateGateway) -> None:
    await eventually(lambda: late.has_ended, within=20, what="the end of the command")


async def test_the_last_line_of_progress_is_shown_without_its_mark() -> None:
    script = "printf '  … building a\\n  ✓ building a: done in 1.0 s\\n  … building b: 4 s\\n' >&2; exec sleep 60"
    async with late_gateway.adding(["sh", "-c", script]) as late:
        await _until(late, shown="building b")
        assert late.activity == "building b: 4 s"
        assert not late.has_ended


async def test_a_failure_is_raised_with_its_last_line() -> None:
    async with late_gateway.adding(["sh", "-c", "echo 'error: no space left' >&2; exit 1"]) as late:
        await _ended(late)
        with pytest.raises(errors.Rejected, match="no space left"):
            late.expect_success()


async def test_success_raises_nothing() -> None:
    async with late_gateway.adding(["true"]) as late:
        await _ended(late)
        late.expect_success()


async def test_a_command_that_still_runs_is_interrupted_and_can_clean_up() -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (print('cleaned up', flush=True), sys.exit(3)))\n"
        "print('runs', flush=True)\ntime.sleep(60)\n"
    )
    async with late_gateway.adding([sys.executable, "-c", script]) as late:
        await _until(late, shown="runs")
        await late.end()
        assert late.activity == "cleaned up"
        assert late.has_ended


async def test_a_command_that_ignores_the_interrupt_is_killed() -> None:
    async with late_gateway.adding(["sh", "-c", "trap '' INT; echo runs; sleep 5 & wait"]) as late:
        await _until(late, shown="runs")
        await late.end(within=0.2)
        assert late.has_ended


def test_the_command_is_one_that_a_user_can_type() -> None:
    _, _, _, *arguments = late_gateway.command("built", "demo")
    parse(arguments)
