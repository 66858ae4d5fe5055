"""Spans by OpenTelemetry's SDK. Only this module imports it, and only when tracing is on.

Exporters: a file of JSON lines (`RAYBUS_TRACES`), OTLP over HTTP, or the console
(`OTEL_TRACES_EXPORTER`). A thread exports batches; spans that do not fit into the SDK's queue are
dropped, so an unreachable collector delays nothing. The SDK does the sampling.
`OTEL_TRACES_SAMPLER=traceidratio` keeps or drops whole traces, since every process knows the trace
id.
"""

import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, TextIO

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import SpanContext
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from common import errors

Attributes = Mapping[str, str]
FILE_DELAY_MS: Final = 200.0
"""Milliseconds between two writes to the file. A killed process loses at most the spans of this
time.
"""
END_SECONDS: Final = 2.0
_EXPORTERS: Final = ("otlp", "console", "none")


class SpanLine(msgspec.Struct, frozen=True, kw_only=True):
    """A span as a line of the file `RAYBUS_TRACES`; times in nanoseconds since 1970."""

    service: str
    instance: str
    name: str
    trace: str
    span: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, str] = {}


class TraceparentIds(RandomIdGenerator):
    """Generates random ids, except for a root span, whose ids are taken from a traceparent."""

    next: SpanContext | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next.trace_id

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.next is None else self.next.span_id


class SpanRecorder:
    """Records and exports spans without blocking the caller."""

    def __init__(
        self, resource: Resource, processors: Sequence[SpanProcessor], file: TextIO | None
    ) -> None:
        self._file = file
        self._ids = TraceparentIds()
        # The provider reads the sampler's variables. At the end of the process, it must not wait
        # for a collector.
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        for processor in processors:
            self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("raybus")

    def root(self, name: str, traceparent: str, begin: int, attributes: Attributes) -> None:
        """Record the root span of `traceparent` from `begin` (nanoseconds since 1970) to now."""
        context = trace.get_current_span(_make_context(traceparent)).get_span_context()
        if not context.is_valid:
            return
        self._ids.next = context
        try:
            self._tracer.start_span(
                name, Context(), start_time=begin or None, attributes=attributes
            ).end()
        finally:
            self._ids.next = None

    def child(self, name: str, traceparent: str, begin: int, attributes: Attributes) -> None:
        """Record a child span of `traceparent` from `begin` (nanoseconds since 1970) to now."""
        self._tracer.start_span(
            name, _make_context(traceparent), start_time=begin or None, attributes=attributes
        ).end()

    def around(
        self, name: str, traceparent: str, attributes: Attributes
    ) -> AbstractContextManager[object]:
        """Record the duration of a block as a child span of `traceparent`.

        The new span is the current span during the block.
        """
        return self._tracer.start_as_current_span(
            name, _make_context(traceparent), attributes=attributes
        )

    def step(self, name: str, attributes: Attributes) -> AbstractContextManager[object]:
        """Record the duration of a block as a child span of the current span, if there is one."""
        is_within = trace.get_current_span().get_span_context().is_valid
        return (
            self._tracer.start_as_current_span(name, attributes=attributes)
            if is_within
            else nullcontext()
        )

    def end(self) -> None:
        """Export the remaining spans, for at most `END_SECONDS`."""
        # The SDK's own shutdown waits for an unreachable collector until its timeouts end.
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(END_SECONDS)
        if self._file is not None:
            self._file.close()


def make_recorder(
    service: str, *, file: Path | None, environment: Mapping[str, str], exporter: str
) -> SpanRecorder:
    """Return the recorder of a service's spans; raise `InvalidSpec` for a wrong setting."""
    # Each line is one write, because other processes may append to the file too.
    try:
        lines = None if file is None else file.open("a", buffering=1)
    except OSError as problem:
        raise errors.InvalidSpec(
            f"RAYBUS_TRACES={str(file)!r}: {problem.strerror}; name a file that may be written"
        ) from problem
    processors = [
        BatchSpanProcessor(exporter_instance)
        for exporter_instance in _make_exporters(exporter, environment)
    ]
    if lines is not None:
        to_file = ConsoleSpanExporter(out=lines, formatter=_format_line)
        processors.append(BatchSpanProcessor(to_file, schedule_delay_millis=FILE_DELAY_MS))
    named: dict[str, str] = {SERVICE_INSTANCE_ID: str(os.getpid())}
    if "OTEL_SERVICE_NAME" not in environment:
        named[SERVICE_NAME] = f"raybus-{service}"
    return SpanRecorder(Resource.create(named), processors, lines)


def _make_context(traceparent: str) -> Context:
    """Return the context of a W3C traceparent; an empty one if it is invalid."""
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent}, Context())


def _make_exporters(exporter: str, environment: Mapping[str, str]) -> list[SpanExporter]:
    """Return the exporters for a value of `OTEL_TRACES_EXPORTER`; empty for `none`."""
    if exporter not in _EXPORTERS:
        raise errors.InvalidSpec(
            f"OTEL_TRACES_EXPORTER={exporter!r}: expected one of {', '.join(_EXPORTERS)}"
        )
    if exporter != "otlp":
        return [ConsoleSpanExporter()] if exporter == "console" else []
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get(
        "OTEL_EXPORTER_OTLP_PROTOCOL"
    )
    if protocol not in {None, "", "http/protobuf"}:
        raise errors.InvalidSpec(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: traces leave by http/protobuf only (port "
            "4318 of a collector)"
        )
    try:
        # An optional package.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415
            OTLPSpanExporter,
        )
    except ImportError as problem:
        raise errors.InvalidSpec(
            "traces are to go to a collector, and its exporter is not installed; "
            "install opentelemetry-exporter-otlp-proto-http, or set OTEL_TRACES_EXPORTER=none"
        ) from problem
    return [OTLPSpanExporter()]


def _format_line(span: ReadableSpan) -> str:
    context = span.get_span_context()
    attributes = span.resource.attributes
    line = SpanLine(
        service=str(attributes.get(SERVICE_NAME, "")),
        instance=str(attributes.get(SERVICE_INSTANCE_ID, "")),
        name=span.name,
        trace="" if context is None else f"{context.trace_id:032x}",
        span="" if context is None else f"{context.span_id:016x}",
        parent="" if span.parent is None else f"{span.parent.span_id:016x}",
        begin=span.start_time or 0,
        end=span.end_time or 0,
        attributes={name: str(value) for name, value in (span.attributes or {}).items()},
    )
    return f"{msgspec.json.encode(line).decode()}\n"
