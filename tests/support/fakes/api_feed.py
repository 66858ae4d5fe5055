"""The state as read directly from the API server, without watcher and NATS: a `Feed` for trying one
service on a real API server.
"""

import asyncio
from collections.abc import Mapping

from common.bus.feed import PartitionListener
from common.kube.client import KubeClient
from common.kube.resources import Resource
from common.kube.watch import Watch, WatchTarget, WatchTiming
from support.builders.messages import a_state, a_tombstone


class ApiFeed:
    """Feed that lists and watches whole kinds, in one namespace or all; implements
    `common.bus.feed.Feed` and reports all partitions as one.
    """

    def __init__(
        self, kube: KubeClient, resources: Mapping[str, Resource], *, namespace: str | None = None
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._resources = resources

    async def follow(self, partition: int, listener: PartitionListener) -> None:
        """Deliver every object to the listener, until cancelled."""
        listener.loading("started")
        waiting = set(self._resources)
        async with asyncio.TaskGroup() as group:
            for kind, resource in self._resources.items():
                sink = _Sink(kind, listener, waiting)
                target = WatchTarget(resource=resource, namespace=self._namespace)
                watch = Watch(self._kube, target, sink, jitter=lambda: 1.0, timing=WatchTiming())
                group.create_task(watch.run())


class _Sink:
    """Receives the changes of one kind; when the last kind has been listed, it reports that the
    load is complete.
    """

    def __init__(self, kind: str, listener: PartitionListener, waiting: set[str]) -> None:
        self._kind = kind
        self._listener = listener
        self._waiting = waiting

    def present(self, raw: bytes, reason: str = "") -> None:
        self._listener.take(a_state(self._kind, raw), trace="")

    def gone(self, raw: bytes) -> None:
        self._listener.take(a_tombstone(self._kind, raw), trace="")

    def listed(self, keys: set[tuple[str, str]], version: str) -> None:
        if self._kind in self._waiting:
            self._waiting.discard(self._kind)
            if not self._waiting:
                self._listener.synced(int(version))
