"""The services under test: each is a process of its own with a cache that the bus fills."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from common import labels
from common.api.opaque import Body
from common.clock import Clock
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, SERVICE
from common.runtime.replica import ReconcilerParts

GATEWAY_API = frozenset({GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind})


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that the API server sent to its watchers."""

    at: float
    kind: str
    body: bytes
    is_gone: bool
    is_labelled: bool = True
    """Whether the object belongs to the RayService, so that a sharded bus delivers it."""


class SimulatedService(msgspec.Struct, kw_only=True):
    """One service; `begin` starts a new process without memory."""

    name: str
    kinds: Mapping[str, type[Any]]
    assemble: Callable[[], ReconcilerParts]
    parts: ReconcilerParts = msgspec.UNSET  # pyright: ignore[reportAssignmentType]
    lag: float = 0.0
    """Seconds by which the service receives changes late."""
    received: int = 0
    """Number of changes that the service has received."""
    due: float | None = 0.0
    """Time of the next reconcile in seconds of the monotonic clock; None if none is due."""
    is_down: bool = False

    def begin(self, at: float) -> None:
        """Start a new process with an empty cache."""
        self.parts = self.assemble()
        self.received = 0
        self.due = at

    def receive(self, change: Change) -> None:
        """Add a change to the cache."""
        view = self.kinds[change.kind]
        obj = msgspec.json.decode(change.body, type=view)
        if change.is_gone:
            meta = obj.metadata
            version = int(meta.resource_version)
            self.parts.cache.remove(view, meta.namespace, meta.name, version=version)
        else:
            self.parts.cache.put(obj, partition=0)


class SimulatedBus:
    """Keeps every change of the API server, and delivers each to the services in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.changes: list[Change] = []
        self.is_silent = False
        """Whether no change reaches a cache, so that only traffic-manager's guard acts."""
        self.is_sharded = False
        """Whether the bus delivers only objects that are labelled as part of the service."""

    def publish(self, kind: str, body: Body, *, is_gone: bool) -> None:
        """Accept a change from the API server."""
        meta = body["metadata"]
        is_labelled = not {labels.ORIGIN_NAME, labels.CLUSTER}.isdisjoint(meta.get("labels", {}))
        is_labelled |= kind in GATEWAY_API and bool(meta.get("ownerReferences"))
        is_labelled |= kind not in {*GATEWAY_API, SERVICE.kind}
        self.changes.append(
            Change(
                at=self._clock.monotonic(),
                kind=kind,
                body=msgspec.json.encode(body),
                is_gone=is_gone,
                is_labelled=is_labelled,
            )
        )

    def deliver(self, service: SimulatedService) -> None:
        """Deliver all changes that are older than the service's lag; each makes the service due."""
        now = self._clock.monotonic()
        horizon = now - service.lag
        while not self.is_silent and service.received < len(self.changes):
            change = self.changes[service.received]
            if change.at > horizon:
                return
            service.received += 1
            if change.kind in service.kinds and (change.is_labelled or not self.is_sharded):
                service.receive(change)
                service.due = now
