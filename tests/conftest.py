"""Fixtures that all stages share: golden files, default logging, and a limit on a test's wait."""

import asyncio
import gc
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from support.golden import Golden

pytest_plugins = ["support.acceptance", "support.servers.control_plane"]
"""The acceptance cases that tests prove, and fixtures that several stages use."""

# As services have it by default, what a reconcile at rest planned is not logged; and each line costs little, for scenarios make many.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
        structlog.processors.KeyValueRenderer(key_order=["level", "event"]),
    ],
    wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
)

# looptime asks each test's thread for its event loop; without this the first question makes one that nobody closes.
asyncio.set_event_loop(None)

# A script that puts the tests into the background lets them, and all that they start, ignore Ctrl-C; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that rewrite golden files and that prolong the simulation."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite tests/golden from what the code does now",
    )
    parser.addoption(
        "--update-pictures", action="store_true", help="take the pictures of docs/images anew"
    )
    parser.addoption(
        "--sim-seeds",
        type=int,
        default=0,
        help="simulate every fault at every point, with so many seeds each",
    )


def pytest_collection_finish() -> None:
    """Exclude all imported and collected objects from garbage collection.

    They stay until the end, and each collection would traverse them again.
    """
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show why a test was repeated: a test that passes the second time has a cause too."""
    for report in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare text with a file of tests/golden."""
    return Golden(
        root=Path(__file__).parent / "golden",
        update=bool(request.config.getoption("--update-golden")),
    )


@pytest.fixture(autouse=True)
def leaks_are_found(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a socket, transport, or process open, not a later test.

    The warning comes when the garbage collector frees the object, which may be many tests later.
    Only tests that start servers pay for the collection.
    """
    yield
    if request.node.get_closest_marker("integration"):
        gc.collect()


@pytest.fixture(autouse=True)
def logs_as_found() -> Iterator[None]:
    """Restore the logging of the process after each test, so that the next test finds the default."""
    found = structlog.get_config()
    yield
    structlog.configure(**found)
    logging.disable(logging.NOTSET)
