"""Spans of a change, from the API server to the writes of a reconciler; off by default.

One trace belongs to one change of one object. Its id follows from uid and resourceVersion (`common.bus.messages`), so every
process knows it from the message alone, and so does the client that made the change:

    span        where                  from … to
    watch       watcher (the root)     the API server's event is here … it is ready to be published
    publish     watcher                … NATS has stored it
    receive     each replica           the message is here … it is in the cache
    queue       replica that owns it   a key is enqueued … its reconcile begins
    reconcile   the same               the reconcile; one for several changes is part of the newest one's trace
    write       the same               one write to the API server, or one Serve config

A reconcile runs under the traceparent of the newest message that enqueued its key, and one that a timer enqueues under that of the last
change, since it still works on it. While spans are taken, each change that enqueued a key records how long it waited for the reconcile.

While tracing is off each call costs the test of one variable. `common.observability.open_telemetry` is loaded when it is on.
"""

import time
from collections.abc import Generator, Hashable, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from common import errors

if TYPE_CHECKING:
    from common.observability.open_telemetry import Spans

MOST_WAITING: Final = 64
"""Changes of one key that record their wait; a key may be enqueued a thousand times before its reconcile."""
CURRENT: Final[ContextVar[str]] = ContextVar("traceparent", default="")
"""The W3C traceparent of the running reconcile, empty outside of one and where no message had one."""


class _Switch:
    recorder: "Spans | None" = None


_switch: Final = _Switch()
_NOTHING: Final = nullcontext()


@contextmanager
def configured(
    service: str, *, file: Path | None, environment: Mapping[str, str]
) -> Generator[None]:
    """Trace for the length of a block, if a file or the `OTEL_*` variables of OpenTelemetry ask for it."""
    exporter = exporter_of(environment)
    if file is None and exporter == "none":
        yield
        return
    try:
        from common.observability import open_telemetry  # noqa: PLC0415  (100 modules that are not needed while it is off)
    except ImportError as problem:
        why = "RAYBUS_TRACES" if file is not None else "an OTEL_* variable"
        raise errors.InvalidSpec(
            f"{why} asks for traces, and {problem.name} is not installed; install opentelemetry-sdk or unset it"
        ) from problem
    _switch.recorder = open_telemetry.recorder(
        service, file=file, environment=environment, exporter=exporter
    )
    try:
        yield
    finally:
        _switch.recorder.end()
        _switch.recorder = None


def exporter_of(environment: Mapping[str, str]) -> str:
    """Return the exporter that OpenTelemetry's own variables ask for; `none` for none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return "none"
    endpoints = (
        environment.get(f"OTEL_EXPORTER_OTLP_{which}ENDPOINT", "") for which in ("", "TRACES_")
    )
    default = "otlp" if any(each.strip() for each in endpoints) else "none"
    return environment.get("OTEL_TRACES_EXPORTER", "").strip().lower() or default


def is_on() -> bool:
    """Return whether spans are taken; a caller that would have to compute something for them checks first."""
    return _switch.recorder is not None


def now() -> int:
    """Return the time to begin a span with, in nanoseconds since 1970; 0 while tracing is off."""
    return time.time_ns() if _switch.recorder is not None else 0


def root(name: str, traceparent: str, begin: int, **attributes: str) -> None:
    """Record a trace's first span, which ends now."""
    if _switch.recorder is not None and traceparent:
        _switch.recorder.root(name, traceparent, begin, attributes)


def child(name: str, traceparent: str, begin: int, **attributes: str) -> None:
    """Record a span that ends now."""
    if _switch.recorder is not None and traceparent:
        _switch.recorder.child(name, traceparent, begin, attributes)


def around(name: str, traceparent: str, **attributes: str) -> AbstractContextManager[object]:
    """Record how long a block takes."""
    if _switch.recorder is None or not traceparent:
        return _NOTHING
    return _switch.recorder.around(name, traceparent, attributes)


def step(name: str, **attributes: str) -> AbstractContextManager[object]:
    """Record how long a block takes within the one around it."""
    return _NOTHING if _switch.recorder is None else _switch.recorder.step(name, attributes)


class ReconcileTraces:
    """The changes that enqueued each key."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, str] = {}
        self._waiting: dict[Hashable, list[tuple[str, int]]] = {}
        """While spans are taken: the changes since the last reconcile, each with its time."""

    def enqueued(self, key: Hashable, trace: str, *, waits: bool) -> None:
        """Remember a change, unless its trace is empty. `waits` for a change of a complete state, not for one of a load."""
        if not trace:
            return
        self._newest[key] = trace
        if waits and is_on() and len(waiting := self._waiting.setdefault(key, [])) < MOST_WAITING:
            waiting.append((trace, now()))

    def forget(self, key: Hashable) -> None:
        """Drop a key that another replica reconciles, or that is gone."""
        self._newest.pop(key, None)
        self._waiting.pop(key, None)

    @contextmanager
    def reconciling(self, key: Hashable) -> Generator[None]:
        """Run a reconcile, and what it starts, under the newest change's trace."""
        newest = self._newest.get(key, "")
        for trace, since in self._waiting.pop(key, ()):
            child("queue", trace, since, object=str(key))
        token = CURRENT.set(newest)
        try:
            with around("reconcile", newest, object=str(key)):
                yield
        finally:
            CURRENT.reset(token)
