"""A process ends with its exit code and with all of its output written."""

import subprocess
import sys


def test_exit_writes_what_is_buffered() -> None:
    code = "import sys; from common.runtime import process; sys.stdout.write('out'); sys.stderr.write('err'); process.exit_process(3)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "out", "err")


def test_sigusr1_logs_what_each_task_awaits() -> None:
    code = (
        "import asyncio, os, signal, sys; from common.runtime import process\n"
        "async def main(settings):\n    os.kill(os.getpid(), signal.SIGUSR1)\n    await asyncio.sleep(0.2)\n"
        "process.exit_process(process.run('test', main))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "main:" in ended.stdout + ended.stderr


def test_modules_are_exempt_from_garbage_collection_when_the_work_begins() -> None:
    code = (
        "import gc; from common.runtime import process\n"
        "async def work(settings):\n    assert gc.isenabled() and gc.get_freeze_count() > 10_000\n"
        "assert process.run('test', work) == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
