"""A span as it is recorded and as it is written: what `tracing`, which takes spans, and `open_telemetry`, which exports them, share."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

Attributes = Mapping[str, str]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A span in the file that `RAYBUS_TRACES` names; times in nanoseconds since 1970."""

    service: str
    instance: str
    name: str
    trace: str
    span: str
    parent: str
    begin: int
    end: int
    attributes: dict[str, str] = {}
    links: list[str] = []


class Recorder(Protocol):
    """Takes spans and hands them on, without ever holding up the caller."""

    def root(self, name: str, traceparent: str, begin: int, attributes: Attributes) -> None:
        """Record the span that a traceparent itself names; it ends now."""
        ...

    def child(self, name: str, traceparent: str, begin: int, attributes: Attributes) -> None:
        """Record a span below a traceparent; it ends now."""
        ...

    def around(self, name: str, traceparent: str, attributes: Attributes) -> AbstractContextManager[None]:
        """Record the length of a block, below a traceparent; steps within stand below the block."""
        ...

    def step(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:
        """Record the length of a block below the block around it, if there is one."""
        ...

    def end(self) -> None:
        """Export the remaining spans; takes about two seconds at most."""
        ...
