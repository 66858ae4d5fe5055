"""Spans of a change, from the API server to the writes of a reconciler; off by default.

Each change of an object has a trace. Its id is derived from uid and resourceVersion
(`common.bus.messages`), so every process knows it from the message alone, and so does the client
that made the change:

    span        process                begin … end
    watch       watcher (root span)    event of the API server received … ready to be published
    publish     watcher                … stored by NATS
    receive     each replica           message received … in the cache
    queue       owning replica         key enqueued … its reconcile begins
    reconcile   owning replica         the reconcile; in the trace of its newest change
    write       owning replica         one write to the API server, or one Serve config

A reconcile belongs to the trace of the newest message that enqueued its key. A reconcile that a
timer enqueued belongs to the trace of the last change. Each change that enqueued the key records in
its own trace how long it waited.

While tracing is off, each call costs one test of a variable. `common.observability.open_telemetry`
is imported only when tracing is on.
"""

import time
from collections.abc import Generator, Hashable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common import errors

if TYPE_CHECKING:
    from common.observability.open_telemetry import SpanRecorder

MAX_QUEUED_SPANS: Final = 64
"""Maximum number of changes of one key whose wait for the next reconcile is recorded as a span.

A key may be enqueued a thousand times before its reconcile.
"""
CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The W3C traceparent of the running reconcile; empty outside of one, or without a trace."""


class _Switch:
    recorder: "SpanRecorder | None" = None


_switch: Final = _Switch()
_NOTHING: Final = nullcontext()


@contextmanager
def configure(
    service: str, *, file: Path | None, environment: Mapping[str, str]
) -> Generator[None]:
    """Trace during a block, if a setting asks for it: `file`, or the `OTEL_*` variables.

    Raises:
        InvalidSpec: A setting is wrong, or opentelemetry-sdk is not installed.
    """
    exporter = get_exporter_name(environment)
    if file is None and exporter == "none":
        yield
        return
    try:
        from common.observability import open_telemetry  # noqa: PLC0415  (100 modules)
    except ImportError as problem:
        setting = "RAYBUS_TRACES" if file is not None else "an OTEL_* variable"
        raise errors.InvalidSpec(
            f"{setting} asks for traces, and {problem.name} is not installed; install "
            "opentelemetry-sdk or unset it"
        ) from problem
    _switch.recorder = open_telemetry.make_recorder(
        service, file=file, environment=environment, exporter=exporter
    )
    try:
        yield
    finally:
        _switch.recorder.end()
        _switch.recorder = None


def get_exporter_name(environment: Mapping[str, str]) -> str:
    """Return the exporter that OpenTelemetry's variables select; `none` if they select none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "none"
    endpoints = (
        environment.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT", "") for which in ("", "TRACES_")
    )
    default = "otlp" if any(endpoint.strip() for endpoint in endpoints) else "none"
    return environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() or default


def is_on() -> bool:
    """Return whether spans are recorded, for callers that would compute attributes for them."""
    return _switch.recorder is not None


def now() -> int:
    """Return the start time for a span, in nanoseconds since 1970; 0 while tracing is off."""
    return time.time_ns() if _switch.recorder is not None else 0


def root(name: str, traceparent: str, begin: int, **attributes: str) -> None:
    """Record the root span of a trace, from `begin` (a result of `now`) until now."""
    if _switch.recorder is not None and traceparent:
        _switch.recorder.root(name, traceparent, begin, attributes)


def child(name: str, traceparent: str, begin: int, **attributes: str) -> None:
    """Record a span of a trace, from `begin` (a result of `now`) until now."""
    if _switch.recorder is not None and traceparent:
        _switch.recorder.child(name, traceparent, begin, attributes)


def around(name: str, traceparent: str, **attributes: str) -> AbstractContextManager[object]:
    """Record the duration of a block as a span of a trace."""
    if _switch.recorder is None or not traceparent:
        return _NOTHING
    return _switch.recorder.around(name, traceparent, attributes)


def step(name: str, **attributes: str) -> AbstractContextManager[object]:
    """Record the duration of a block as a child of the current span."""
    return _NOTHING if _switch.recorder is None else _switch.recorder.step(name, attributes)


class ReconcileTraces:
    """For each key, the traces of the changes that enqueued it."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, str] = {}
        self._waiting: dict[Hashable, list[tuple[str, int]]] = {}
        """Changes since the last reconcile of each key, and their times; empty if tracing is off.
        """

    def enqueued(self, key: Hashable, trace: str, *, waits: bool) -> None:
        """Record that a change has enqueued a key.

        `trace` is the traceparent of the change; nothing is recorded if it is empty. With `waits`,
        the span `queue` of the change will show how long the key waited. Objects of the initial
        load are enqueued without `waits`.
        """
        if not trace:
            return
        self._newest[key] = trace
        if (
            waits
            and is_on()
            and len(waiting := self._waiting.setdefault(key, [])) < MAX_QUEUED_SPANS
        ):
            waiting.append((trace, now()))

    def forget(self, key: Hashable) -> None:
        """Forget a key whose object is gone, or that a different replica reconciles now."""
        self._newest.pop(key, None)
        self._waiting.pop(key, None)

    @contextmanager
    def reconciling(self, key: Hashable) -> Generator[None]:
        """Run the block, a reconcile of a key, in the trace of the key's newest change."""
        newest = self._newest.get(key, "")
        for trace, since in self._waiting.pop(key, ()):
            child("queue", trace, since, object=str(key))
        token = CURRENT.set(newest)
        try:
            with around("reconcile", newest, object=str(key)):
                yield
        finally:
            CURRENT.reset(token)
