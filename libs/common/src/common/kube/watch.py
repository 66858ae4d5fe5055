"""List and watch one collection of the API server.

A list is consistent and paged. A watch resumes at the version of the last event or bookmark; after
a 410 the collection is listed again. The server sends a bookmark about every minute, so a
connection that is silent for longer is dead and is replaced. Every ten minutes the collection is
listed again and compared, in case a watch missed an event. A kind that is not served is reported
and retried, since its CRD may be installed later.

Objects are read as JSON, or as protobuf if there is a `ProtobufSink` (ADR 53).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, NoReturn, Protocol, TypeVar

import aiohttp
import msgspec
import structlog

from common import errors, untrusted
from common.kube import answers, protobuf
from common.kube.answers import VERSION_AHEAD, ApiStatus
from common.kube.client import KubeClient
from common.kube.resources import Resource
from common.observability import tasks

log = structlog.get_logger()
T = TypeVar("T")

NamespacedName = tuple[str, str]
"""Namespace and name of an object."""


class WatchTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Time limits in seconds; tests shorten them."""

    silence: float = 90.0
    """Seconds without an event or bookmark after which a watch is replaced."""
    open: float = 15.0
    """Seconds without an answer after which a watch request counts as failed."""
    relist: float = 600.0
    absent: float = 30.0
    """Seconds between two attempts to list an optional kind that is missing or forbidden."""
    first_retry: float = 0.1
    longest_retry: float = 10.0
    longest_watch: float = 290.0
    longest_wait: float = 60.0
    """Maximum seconds before the next request, even if `Retry-After` asks for a longer wait."""


class WatchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The collection to watch."""

    resource: Resource
    namespace: str | None = None
    """Namespace of the collection; None for all namespaces."""
    selector: str = ""
    fields: str = ""
    """A field selector, such as `metadata.name=demo`; empty for none."""
    is_optional: bool = False
    """Whether the kind may be missing or forbidden without making the process unready."""

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        selectors = ",".join(selector for selector in (self.selector, self.fields) if selector)
        which = f" ({selectors})" if selectors else ""
        return f"{self.resource.plural}{where}{which}"


class WatchSink(Protocol):
    """Receives the objects of a collection; its methods must not block."""

    def present(self, raw: bytes, /, reason: str = "") -> None:
        """Take the newest state of an object.

        If fields were removed from `raw`, `reason` says why, else it is empty. The metadata is
        never removed.
        """

    def gone(self, raw: bytes, /) -> None:
        """Take the last state of a deleted object, with the resourceVersion of its deletion."""

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        """Record that a list at resourceVersion `version` held exactly these objects."""


class ProtobufSink(Protocol):
    """Receives the objects of a collection as protobuf; its methods must not block.

    The watch still needs a `WatchSink`. It records each complete list, and takes the objects if the
    server answers in JSON.
    """

    def present(self, content: bytes, /) -> None:
        """Take the newest state of an object."""

    def gone(self, content: bytes, /) -> None:
        """Take the last state of a deleted object, with the resourceVersion of its deletion."""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    go_on: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct, frozen=True):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Change(NamedTuple):
    take: Callable[[bytes], None]
    object: bytes
    read_version: Callable[[bytes], str]
    """Function that returns the resourceVersion of the object."""


class _Splitter(Protocol):
    def feed(self, chunk: bytes) -> Iterator[bytes]: ...
    def end(self) -> None: ...


class VersionExpired(errors.Retryable):
    """The API server cannot resume a watch from the last version, so a new list is needed (410)."""


PAGE: Final = 500
TOO_DEEP: Final = (
    f"it nests deeper than {untrusted.DEEPEST} levels; remove the deepest lists and maps"
)
_page = msgspec.json.Decoder(_Page)
_head = msgspec.json.Decoder(_Head)
_event = msgspec.json.Decoder(_Event)
_status = msgspec.json.Decoder(ApiStatus)


class Watch:
    """A watch of one collection. `run` lists and watches until cancelled."""

    def __init__(  # noqa: PLR0913  (two are callbacks)
        self,
        client: KubeClient,
        target: WatchTarget,
        sink: WatchSink,
        *,
        jitter: Callable[[], float],
        timing: WatchTiming,
        failed: Callable[[errors.RaybusError], None] = lambda _problem: None,
        reached: Callable[[str], None] = lambda _version: None,
        protobuf_sink: ProtobufSink | None = None,
    ) -> None:
        """Prepare the watch; `run` starts it.

        With `protobuf_sink` the API server is asked for protobuf.

        `failed` is called with each error before the retry; an exception from `failed` ends `run`.
        `reached` is called with the version of each bookmark: the sink has received all changes up
        to that version.
        """
        self.target = target
        self.problem: str | None = f"{target}: not yet listed"
        """Why the collection may be out of date; None if it is current."""
        self.known = asyncio.Event()
        """Set once the collection has been listed, or an optional kind was missing or forbidden."""
        self.is_served = True
        """False if the kind is optional, and the API server does not serve it or forbids it."""
        self.received_at = asyncio.get_running_loop().time()
        """When the server last sent anything about the collection, in seconds of the event loop."""
        self.active_at = self.received_at
        """When `run` last made progress, in seconds of the event loop, for the liveness probe."""
        self._client = client
        self._sink = sink
        self._protobuf_sink = protobuf_sink
        self._jitter = jitter
        self._timing = timing
        self._report = failed
        self._reached = reached
        selectors = {"labelSelector": target.selector, "fieldSelector": target.fields}
        self._selection = {name: value for name, value in selectors.items() if value}
        self._version: str | None = None
        self._listed_at = 0.0
        self._failures = 0

    async def run(self) -> None:
        """List and watch until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.active_at = loop.time()
            try:
                async with tasks.survive_stray_cancellation(f"watch of {self.target}"):
                    if (
                        self._version is None
                        or loop.time() >= self._listed_at + self._timing.relist
                    ):
                        self._version = await self._list()
                        self._listed_at = loop.time()
                        self._mark_received()
                        self.is_served = True
                        self.known.set()
                    async with contextlib.aclosing(self._read_changes(self._version)) as changes:
                        async for take, raw in changes:
                            take(raw)
            except VersionExpired:
                log.info("watch expired; listing again", watch=str(self.target))
                self._version = None
            except errors.RaybusError as problem:
                await asyncio.sleep(self._record_failure(problem))
            except Exception as problem:  # noqa: BLE001  (only this collection is listed again)
                self._version = None
                await asyncio.sleep(
                    self._record_failure(errors.Unavailable(f"unreadable answer: {problem!r}"))
                )

    async def _list(self) -> str:
        """Pass every object to the sink; return the resourceVersion of the list."""
        path, keys = self.target.resource.path(self.target.namespace), set[NamespacedName]()
        query = {"limit": str(PAGE), **self._selection}
        while True:
            answer = await self._client.request(
                "GET", path, query=query, headers=self._accept(protobuf.ACCEPT)
            )
            self.active_at = asyncio.get_running_loop().time()
            if self._protobuf_sink is not None and protobuf.is_envelope(answer):
                version, go_on = self._take_protobuf_page(self._protobuf_sink, answer, keys)
            else:
                version, go_on = self._take_page(answer, keys)
            if not go_on:
                self._sink.listed(keys, version)
                return version
            query["continue"] = go_on

    def _take_page(self, answer: bytes, keys: set[NamespacedName]) -> tuple[str, str]:
        """Pass the objects of a page to the sink, and add their keys to `keys`.

        Returns the resourceVersion of the list and the token of the next page.
        """
        page = self._decode(_page, answer, around=2)
        for item in page.items or []:
            meta, raw = _head.decode(item).metadata, bytes(item)
            keys.add((meta.namespace, meta.name))
            self._sink.present(raw, TOO_DEEP if untrusted.CUT in raw else "")
        return page.metadata.resource_version, page.metadata.go_on

    def _take_protobuf_page(
        self, sink: ProtobufSink, answer: bytes, keys: set[NamespacedName]
    ) -> tuple[str, str]:
        """Do the same as `_take_page` for a page in protobuf."""
        page = protobuf.read_page(answer, self.target.resource.kind)
        for content in page.items:
            key = protobuf.read_key(content)
            keys.add((key.namespace, key.name))
            sink.present(content)
        return page.version, page.go_on

    def _accept(self, content_types: str) -> dict[str, str] | None:
        """Return the headers that ask for `content_types`; None if the watch reads JSON."""
        return None if self._protobuf_sink is None else {"Accept": content_types}

    async def _read_changes(
        self, version: str
    ) -> AsyncGenerator[tuple[Callable[[bytes], None], bytes]]:
        """Yield each change after `version` with the sink's method for it.

        The generator ends when the watch request ends. It raises `Unavailable` if the server is
        silent for `silence` seconds, and `VersionExpired` if the collection must be listed again.
        """
        began = asyncio.get_running_loop().time()
        remaining = self._listed_at + self._timing.relist - began
        seconds = max(
            1.0, min(remaining, self._timing.longest_watch * (0.8 + 0.2 * self._jitter()))
        )
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(int(seconds)), **self._selection}
        path, newest = self.target.resource.path(self.target.namespace), None
        async with contextlib.AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._timing.open):
                    content = await stack.enter_async_context(
                        self._client.stream(
                            path, query=query, headers=self._accept(protobuf.ACCEPT_WATCH)
                        )
                    )
            except TimeoutError:
                raise errors.Unavailable(f"no answer within {self._timing.open:g} s") from None
            self._mark_received()
            splitter, read = None, self._read_event
            try:
                while chunk := await self._read_chunk(content):
                    if splitter is None:
                        splitter, read = self._choose_format(chunk)
                    for piece in splitter.feed(chunk):
                        change = read(piece)
                        yield change.take, change.object
                        newest = change
                        self._mark_received()
                if splitter is not None:
                    splitter.end()
            finally:
                if newest is not None:  # decoded once after the watch, not for each event
                    self._version = newest.read_version(newest.object)
        if asyncio.get_running_loop().time() - began < 1.0:
            raise errors.Unavailable("the watch ended at once")

    def _choose_format(self, chunk: bytes) -> tuple[_Splitter, Callable[[bytes], _Change]]:
        """Return how to read a watch whose answer begins with `chunk`."""
        if self._protobuf_sink is None or chunk.startswith(b"{"):
            return _LineSplitter(), self._read_event
        return protobuf.FrameSplitter(), partial(self._read_frame, self._protobuf_sink)

    def _read_event(self, line: bytes) -> _Change:
        event = self._decode(_event, line, around=1)
        raw = bytes(event.object)
        match event.type:
            case "ADDED" | "MODIFIED" if untrusted.CUT in raw:
                take = partial(self._sink.present, reason=TOO_DEEP)
            case "ADDED" | "MODIFIED":
                take = self._sink.present
            case "DELETED":
                take = self._sink.gone
            case "BOOKMARK":
                take = partial(self._take_bookmark, _read_version)
            case _:
                _fail(event.type, _status.decode(event.object))
        return _Change(take, raw, _read_version)

    def _read_frame(self, sink: ProtobufSink, frame: bytes) -> _Change:
        event = protobuf.read_event(frame)
        kind, content = event.object
        if event.type == "ERROR" and kind == "Status":
            _fail(event.type, answers.read_protobuf_status(content))
        if kind != self.target.resource.kind:
            raise protobuf.MalformedMessage(f"{event.type[:60]} of a {kind[:60]}")
        match event.type:
            case "ADDED" | "MODIFIED":
                take = sink.present
            case "DELETED":
                take = sink.gone
            case "BOOKMARK":
                take = partial(self._take_bookmark, _read_protobuf_version)
            case _:
                raise protobuf.MalformedMessage(f"an event {event.type[:60]}")
        return _Change(take, content, _read_protobuf_version)

    def _take_bookmark(self, read_version: Callable[[bytes], str], content: bytes) -> None:
        self._reached(read_version(content))

    def _decode(self, decoder: msgspec.json.Decoder[T], answer: bytes, *, around: int) -> T:
        """Decode an answer; values that are nested too deeply are pruned first.

        `around` is the number of levels that enclose an object in the answer. For a flat kind (one
        without free-form fields), an answer is pruned only if the decoder fails.
        """
        if self.target.resource.is_flat:
            with contextlib.suppress(RecursionError):
                return decoder.decode(answer)
        limit = untrusted.DEEPEST + around
        return decoder.decode(
            untrusted.pruned(answer, limit) if untrusted.is_too_deep(answer, limit) else answer
        )

    async def _read_chunk(self, content: aiohttp.StreamReader) -> bytes:
        """Return the next bytes of the answer, empty at its end; raise `Unavailable` on silence."""
        try:
            async with asyncio.timeout(self._timing.silence):
                return await content.readany()
        except TimeoutError:
            raise errors.Unavailable(f"no bookmark for {self._timing.silence:g} s") from None

    def _mark_received(self) -> None:
        self.received_at = self.active_at = asyncio.get_running_loop().time()
        self._failures = 0
        if self.problem is not None:
            log.info("watching", watch=str(self.target))
            self.problem = None

    def _record_failure(self, problem: errors.RaybusError) -> float:
        """Record a failure; return the seconds until the next attempt.

        If the kind is optional and missing, its collection counts as empty. If it is optional and
        forbidden, its known objects are kept. Any other failure sets `problem`, which makes the
        process unready.
        """
        self._report(problem)
        self._failures += 1
        wait = min(
            self._timing.longest_retry, self._timing.first_retry * 2 ** min(self._failures - 1, 20)
        )
        is_missing = isinstance(problem, errors.NotFound)
        is_not_served = is_missing or isinstance(problem, errors.Forbidden)
        reason = "is not served by the API server; install its CRD" if is_missing else str(problem)
        if is_not_served or isinstance(problem, errors.Conflict | errors.VersionAhead):
            self._version = None  # a conflict here is a 410 in the middle of a paged list
        if is_not_served and self.target.is_optional:
            if not self.known.is_set() or self.is_served:
                log.info("optional kind not watched", watch=str(self.target), why=reason)
            if is_missing:
                self._sink.listed(set(), "")
            self.problem = None
            self._mark_received()
            self.known.set()
            self.is_served = False
            return self._timing.absent
        text = f"{self.target}: {reason}"
        if text != self.problem:
            log.warning("watch failed", watch=str(self.target), why=reason)
        self.problem = text
        if is_not_served:
            return wait
        after = (problem.after if isinstance(problem, errors.Retryable) else None) or 0.0
        return max(min(after, self._timing.longest_wait), wait * (0.5 + 0.5 * self._jitter()))


class _LineSplitter:
    """Splits an answer into lines of any length."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Take the next bytes of the answer; yield the lines that are complete."""
        start = len(self._buffer)
        self._buffer += chunk
        if b"\n" not in chunk:
            return
        *lines, tail = bytes(self._buffer).split(b"\n") if start else chunk.split(b"\n")
        self._buffer = bytearray(tail)
        for line in lines:
            if line:
                yield line

    def end(self) -> None:
        """Ignore a line that was cut off: the next watch delivers its event again."""


def _read_version(raw: bytes) -> str:
    return _head.decode(raw).metadata.resource_version


def _read_protobuf_version(content: bytes) -> str:
    return protobuf.read_key(content).version


def _fail(event_type: str, status: ApiStatus) -> NoReturn:
    """Raise the error for a watch event that has a `Status` instead of an object."""
    if event_type == "ERROR" and (status.code == 410 or VERSION_AHEAD in status.causes):
        raise VersionExpired(status.message)
    raise errors.Unavailable(f"the watch failed: {event_type} {status.message}")
