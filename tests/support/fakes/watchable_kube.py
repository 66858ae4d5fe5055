"""An API server in memory that answers lists and watches by path, as `common.kube.watch` requests
them.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from common import errors
from common.api.opaque import Body
from common.kube.resources import EVENT, HTTP_ROUTE, POD, RAY_CLUSTER, RAY_SERVICE, Resource
from support.fakes.kube import FakeKube

_SERVED = (RAY_SERVICE, RAY_CLUSTER, POD, EVENT, HTTP_ROUTE)


class Stream:
    """The answer to a watch request."""

    def __init__(self) -> None:
        self.lines = asyncio.Queue[bytes]()

    async def readany(self) -> bytes:
        return await self.lines.get()


class WatchableKube(FakeKube):
    """Implements the methods of `KubeClient` that `Watch` needs; `requests` contains the watch
    requests with the verb `watch`.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._streams: list[tuple[Resource, str | None, Mapping[str, str], Stream]] = []
        self.on_change.append(self._send)

    @property
    def watches(self) -> list[str]:
        """Return the kinds that are currently watched."""
        return sorted(resource.kind for resource, _, _, _ in self._streams)

    async def request(
        self, _method: str, path: str, *, query: Mapping[str, str] | None = None, **_more: Any
    ) -> bytes:
        """Answer a list with selectors; there is no dashboard."""
        resource, namespace = _asked(path)
        if resource is None:
            raise errors.Unavailable("no dashboard")
        selector = (query or {}).get("labelSelector", "")
        body = msgspec.json.decode(await self.list(resource, namespace, label_selector=selector))
        body["items"] = [each for each in body["items"] if _has_fields(each, query or {})]
        return msgspec.json.encode(body)

    @asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], **_more: Any
    ) -> AsyncGenerator[Stream]:
        """Send each later change of a collection to a watch, always as JSON."""
        resource, namespace = _asked(path)
        assert resource is not None, path
        self._receive("watch", resource, namespace, query.get("labelSelector", ""))
        watch = (resource, namespace, query, Stream())
        self._streams.append(watch)
        try:
            yield watch[3]
        finally:
            self._streams.remove(watch)

    def end_watches(self) -> None:
        """End every watch, like a server that shuts down."""
        for _, _, _, stream in self._streams:
            stream.lines.put_nowait(b"")

    async def close(self) -> None:
        """Do nothing, since there is no connection."""

    def _send(self, kind: str, body: Body, is_gone: bool) -> None:
        for resource, namespace, query, stream in self._streams:
            if resource.kind != kind or namespace not in {None, body["metadata"]["namespace"]}:
                continue
            if _has_labels(body, query) and _has_fields(body, query):
                event = {"type": "DELETED" if is_gone else "MODIFIED", "object": body}
                stream.lines.put_nowait(msgspec.json.encode(event) + b"\n")


def _asked(path: str) -> tuple[Resource | None, str | None]:
    parts = path.strip("/").split("/")
    namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts else None
    return next((each for each in _SERVED if each.path(namespace) == path), None), namespace


def _has_labels(body: Body, query: Mapping[str, str]) -> bool:
    wanted = dict(part.split("=", 1) for part in query.get("labelSelector", "").split(",") if part)
    return wanted.items() <= body["metadata"].get("labels", {}).items()


def _has_fields(body: Body, query: Mapping[str, str]) -> bool:
    wanted = query.get("fieldSelector", "").removeprefix("metadata.name=")
    return not wanted or body["metadata"]["name"] == wanted
