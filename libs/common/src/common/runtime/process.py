"""Runs one service process: settings, log, event loop, signals, bounded shutdown, exit code.

Exit codes: 0 after SIGTERM or SIGINT, 1 if the service failed, 2 if a setting is wrong (standard
error has one line about it).
"""

import asyncio
import errno
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NoReturn

import structlog
import uvloop

from common import errors
from common.observability import logging, metrics, tracing
from common.settings import Settings

log = structlog.get_logger()

CLEANUP_SECONDS: Final = 8.0
"""Default limit in seconds from SIGTERM until the process exits by force."""
STOPPED, FAILED, MISCONFIGURED = 0, 1, 2

Main = Callable[[Settings], Awaitable[None]]
"""Function that runs a service until cancelled."""


def run(service: str, main: Main, *, cleanup_seconds: float = CLEANUP_SECONDS) -> int:
    """Run a service until a signal stops it; return the exit code.

    After a signal, the service has `cleanup_seconds` to clean up.
    """
    try:
        settings = Settings.from_environment(service, os.environ)
        logging.configure(service, level=settings.log_level)
        gc.collect()
        # Modules live as long as the process, so later garbage collections need not scan their
        # 200,000 objects.
        gc.freeze()
        traces = tracing.configure(service, file=settings.traces_file, environment=os.environ)
        with traces, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_signalled(main, settings, cleanup_seconds))
    # No other code handles an error that arrives here: the process ends.
    except (Exception, BaseExceptionGroup) as problem:
        causes = list(errors.leaves(problem))
        for cause in causes:
            match cause:
                case errors.InvalidSpec():
                    remedy = ""
                # The error text contains the port.
                case OSError(errno=errno.EADDRINUSE | errno.EACCES):
                    remedy = "; set RAYBUS_HTTP_PORT to a free port"
                case _:
                    continue
            sys.stderr.write(f"{service}: {cause}{remedy}\n")
            return MISCONFIGURED
        log.critical("service failed", error=str(causes[0]), exc_info=problem)
        return FAILED
    return STOPPED


def exit_process(code: int) -> NoReturn:
    """Flush the output and exit without Python's teardown of modules.

    The teardown takes 0.25 s of processor time, which replicas on the same node need to take over.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _until_signalled(main: Main, settings: Settings, cleanup_seconds: float) -> None:
    """Run `main` until a signal cancels it; then exit by force after `cleanup_seconds`."""
    loop, task, stopping = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()

    def end_at_once() -> None:
        log.critical("cleaning up took too long", seconds=cleanup_seconds)
        os._exit(FAILED)

    def stop(name: str) -> None:
        if not stopping.is_set() and task is not None:
            log.info("stopping", signal=name)
            stopping.set()
            loop.call_later(cleanup_seconds, end_at_once)
            task.cancel()

    metrics.measure_lag(loop)
    loop.add_signal_handler(signal.SIGUSR1, _log_tasks)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await main(settings)
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise
        log.info("stopped")


def _log_tasks() -> None:
    """Log where each task waits; called after `kill -USR1`.

    A line shows the coroutines of one task, from the outermost to the innermost.
    """
    for task in asyncio.all_tasks():
        log.info("task", awaits=" > ".join(_await(task.get_coro())))


def _await(coroutine: object) -> Iterator[str]:
    while (
        code := getattr(coroutine, "cr_code", None) or getattr(coroutine, "ag_code", None)
    ) is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        yield f"{code.co_qualname}:{frame.f_lineno if frame is not None else '?'}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
