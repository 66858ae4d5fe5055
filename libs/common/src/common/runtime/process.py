"""One service process: settings, log, event loop, signals, a bounded end, an exit code.

Exit codes: 0 after SIGTERM or SIGINT, 1 when the service failed, 2 when a setting is wrong (one line says which).
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final, cast

import structlog
import uvloop

from common import errors
from common.observability import logging, loop_lag, tracing
from common.runtime.settings import Settings

log = structlog.get_logger()

CLEANUP_SECONDS: Final = 8.0
"""A process that is told to end is gone after this long, whatever hangs; `raybus up` promises 10 s."""
STOPPED: Final = 0
FAILED: Final = 1
MISCONFIGURED: Final = 2

Main = Callable[[Settings], Awaitable[None]]
"""Runs a service until cancelled."""


def run(service: str, main: Main) -> int:
    """Run a service until it is told to stop; return the exit code."""
    try:
        settings = Settings.from_environment(service, os.environ)
        logging.configure(service, level=settings.log_level)
        traces = tracing.configured(service, file=settings.traces_file, environment=os.environ)
        with traces, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_until_told(main, settings))
    except errors.InvalidSpec as problem:
        sys.stderr.write(f"{service}: {problem}\n")
        return MISCONFIGURED
    except BaseExceptionGroup as problems:
        wrong = problems.subgroup(_is_misconfigured)
        if wrong is not None:
            first = _first(wrong)
            remedy = "; set RAYBUS_HTTP_PORT to a free port" if isinstance(first, OSError) else ""
            sys.stderr.write(f"{service}: {first}{remedy}\n")
            return MISCONFIGURED
        log.critical("the service failed", error=str(_first(problems)), exc_info=problems)
        return FAILED
    except Exception:  # the last frame: what gets here ends the process, with its traceback
        log.critical("the service failed", exc_info=True)
        return FAILED
    return STOPPED


async def _until_told(main: Main, settings: Settings) -> None:
    """Run `main`; a signal cancels it and starts the countdown."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    task = asyncio.current_task()

    def stop(name: str) -> None:
        if not told.is_set() and task is not None:
            log.info("stopping", signal=name)
            told.set()
            loop.call_later(CLEANUP_SECONDS, _give_up)
            task.cancel()

    loop_lag.measure(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    try:
        await main(settings)
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        log.info("stopped")


def _is_misconfigured(problem: BaseException) -> bool:
    """Tell a wrong setting from a failure; a port in use is one: the text of the error names it."""
    return isinstance(problem, errors.InvalidSpec) or (
        isinstance(problem, OSError) and problem.errno in {errno.EADDRINUSE, errno.EACCES}
    )


def _give_up() -> None:
    log.critical("cleaning up took too long", seconds=CLEANUP_SECONDS)
    os._exit(FAILED)


def _first(problem: BaseException) -> BaseException:
    """Return the first error inside nested groups."""
    while isinstance(problem, BaseExceptionGroup):
        problem = cast("BaseExceptionGroup[BaseException]", problem).exceptions[0]
    return problem
