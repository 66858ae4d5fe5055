"""Spans are written to the file with the ids that a message's header promises; tracing can be off;
wrong settings give one clear line.
"""

import asyncio
import socket
import threading
import time
from pathlib import Path

import msgspec
import pytest

from common import errors
from common.bus import messages
from common.observability import tracing
from common.observability.open_telemetry import SpanLine
from common.settings import Settings
from support.tables import cases

TRACE = messages.derive_trace("uid", "7")
_, TRACE_ID, SPAN_ID, _ = TRACE.split("-")


def spans(file: Path) -> list[SpanLine]:
    return [msgspec.json.decode(line, type=SpanLine) for line in file.read_bytes().splitlines()]


@cases(
    ("environment", "is_on"),
    {
        "nobody asks": ({}, False),
        "a collector": ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        "a collector of traces": (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318"},
            True,
        ),
        "the collector at its usual place": ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        "metrics alone": (
            {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "x"},
            False,
        ),
        "switched off": ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, False),
    },
)
def test_the_environment_switches_it_on(environment: dict[str, str], is_on: bool) -> None:
    assert (tracing.get_exporter_name(environment) != "none") == is_on


def test_off_nothing_is_recorded_and_no_clock_is_read() -> None:
    with tracing.configure("test", file=None, environment={}):
        tracing.root("watch", TRACE, tracing.now())
        tracing.child("publish", TRACE, tracing.now())
        with tracing.around("reconcile", TRACE), tracing.step("write"):
            assert (tracing.is_on(), tracing.now()) == (False, 0)


@pytest.mark.long
def test_the_root_is_the_span_that_the_header_names(tmp_path: Path) -> None:
    with tracing.configure("watcher", file=tmp_path / "traces", environment={}):
        tracing.root("watch", TRACE, tracing.now(), object="Pod ns/a")
        tracing.child("publish", TRACE, tracing.now())

    watch, publish = spans(tmp_path / "traces")
    assert (watch.name, watch.trace, watch.span, watch.parent) == ("watch", TRACE_ID, SPAN_ID, "")
    assert (watch.service, watch.attributes) == ("raybus-watcher", {"object": "Pod ns/a"})
    assert (publish.name, publish.trace, publish.parent) == ("publish", TRACE_ID, SPAN_ID)
    assert publish.span not in {SPAN_ID, ""}
    assert 0 < watch.begin <= watch.end <= publish.end


@pytest.mark.long
async def test_a_step_stands_below_the_block_around_it_and_nowhere_else(tmp_path: Path) -> None:
    async def reconcile(trace: str) -> None:
        with tracing.around("reconcile", trace, object="ns/a"):
            await asyncio.sleep(0)
            with tracing.step("write", method="PATCH"):
                await asyncio.sleep(0)

    with tracing.configure("test", file=tmp_path / "traces", environment={}):
        with tracing.step("write", method="PUT"):  # a Lease, for nobody's change
            pass
        async with asyncio.TaskGroup() as group:
            for uid in ("one", "two"):
                group.create_task(reconcile(messages.derive_trace(uid, "1")))

    found = spans(tmp_path / "traces")
    reconciles = {span.trace: span.span for span in found if span.name == "reconcile"}
    writes = {span.trace: span.parent for span in found if span.name == "write"}
    assert len(reconciles) == 2
    assert writes == reconciles


@pytest.mark.long
def test_several_processes_share_a_file(tmp_path: Path) -> None:
    for _ in range(2):
        with tracing.configure("test", file=tmp_path / "traces", environment={}):
            tracing.child("publish", TRACE, tracing.now())

    assert len(spans(tmp_path / "traces")) == 2


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00",
        "00-0-0-01",
        "00-xx-yy-01",
        f"00-{'0' * 32}-{'0' * 16}-01",
        f"00-{'a' * 40}-{'b' * 16}-zz",
    ],
)
@pytest.mark.long
def test_a_header_that_is_none_starts_a_trace_of_its_own_or_none(
    tmp_path: Path, header: str
) -> None:
    with tracing.configure("test", file=tmp_path / "traces", environment={}):
        tracing.root("watch", header, tracing.now())
        tracing.child("publish", header, tracing.now())

    assert [span.parent for span in spans(tmp_path / "traces")] in ([], [""])


@pytest.mark.long
def test_a_collector_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
            with tracing.configure(
                "test", file=None, environment={"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
            ):
                tracing.child("publish", TRACE, tracing.now())
                began = time.monotonic()
        assert time.monotonic() - began < 4.0
    # The exporter draws random delays in its thread, which must not happen in another test.
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("environment", "problem_text"),
    [
        (
            {"OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER='zipkin': expected one of otlp, console, none",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL='grpc': traces leave by http/protobuf only (port 4318 of a collector)",
        ),
    ],
)
@pytest.mark.long
def test_a_wrong_variable_is_named(environment: dict[str, str], problem_text: str) -> None:
    with (
        pytest.raises(errors.InvalidSpec) as problem,
        tracing.configure("test", file=None, environment=environment),
    ):
        pass
    assert str(problem.value) == problem_text


@pytest.mark.long
def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(errors.InvalidSpec, match=r"RAYBUS_TRACES=.*name a file that may be written"),
        tracing.configure("test", file=tmp_path, environment={}),
    ):
        pass


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSpec, match=r"RAYBUS_TRACES=.*there is no such folder"):
        Settings.from_environment(
            "watcher", {"RAYBUS_TRACES": str(tmp_path / "missing" / "traces")}
        )
