"""Logs of services: one JSON object a line, with the lines of libraries except the empty ones."""

import io
import logging
from collections.abc import Iterator
from contextlib import redirect_stderr

import msgspec
import pytest
import structlog

from common.observability import logging as logs


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Configure the log as a service does, and restore it afterwards."""
    root, stream = logging.getLogger(), io.StringIO()
    before = (list(root.handlers), root.level)
    with redirect_stderr(stream):
        logs.configure("watcher", level="INFO")
    yield stream
    root.handlers, root.level = before


def _lines(output: io.StringIO) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in output.getvalue().splitlines()]


def test_a_line_is_an_object_with_its_data_in_keys(output: io.StringIO) -> None:
    structlog.get_logger().info("state synced", partitions=64)
    (line,) = _lines(output)
    assert line.pop("ts")
    assert line == {
        "msg": "state synced",
        "partitions": 64,
        "level": "info",
        "service": "watcher",
    }


def test_libraries_log_in_the_same_form(output: io.StringIO) -> None:
    logging.getLogger("nats").warning("slow consumer")
    assert [(line["msg"], line["level"]) for line in _lines(output)] == [
        ("slow consumer", "warning")
    ]


def test_the_end_of_a_connection_with_tls_is_not_logged(output: io.StringIO) -> None:
    logging.getLogger("asyncio").warning(
        "returning true from eof_received() has no effect when using ssl"
    )
    logging.getLogger("asyncio").warning("something else")
    assert [line["msg"] for line in _lines(output)] == ["something else"]
