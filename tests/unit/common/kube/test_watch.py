"""The lists and events that a watch passes on, and where it resumes."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec
import pytest

from common import errors
from common.kube import resources
from common.kube.client import KubeClient
from common.kube.resources import Resource
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from support.tables import cases


def nested(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def an_object(version: int, *, levels: int = 0) -> bytes:
    return (
        b'{"metadata":{"name":"x","namespace":"ns","resourceVersion":"%d","managedFields":%s}}'
        % (version, nested(levels))
    )


def an_event(kind: str, content: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), content)


class Answer(asyncio.StreamReader):
    """The lines of a watch, as aiohttp reads them."""

    async def readany(self) -> bytes:
        return await self.read(65536)


class Api:
    """Answers one list, and then each watch with the next lines or with a refusal; implements what
    `Watch` needs of a `KubeClient`.
    """

    def __init__(self, listed: bytes, *watches: list[bytes] | errors.RaybusError) -> None:
        self.listed = listed
        self.watches = list(watches)
        self.resumed_at: list[str] = []
        self.lists = 0
        self.is_over = asyncio.Event()

    async def request(
        self, _method: str, _path: str, *, query: Mapping[str, str], headers: None
    ) -> bytes:
        assert query["limit"]
        assert headers is None  # JSON is the default
        self.lists += 1
        return b'{"metadata":{"resourceVersion":"10"},"items":[%s]}' % self.listed

    @asynccontextmanager
    async def stream(
        self, _path: str, *, query: Mapping[str, str], headers: None
    ) -> AsyncGenerator[Any]:
        assert headers is None
        self.resumed_at.append(query["resourceVersion"])
        if not self.watches:
            self.is_over.set()
            await asyncio.Event().wait()
        lines = self.watches.pop(0)
        if isinstance(lines, errors.RaybusError):
            raise lines
        reader = Answer()
        reader.feed_data(b"".join(line + b"\n" for line in lines))
        reader.feed_eof()
        yield reader


class Followed:
    """Records what a watch reports; implements `WatchSink`."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.refused: set[str] = set()

    def _take(self, what: str, raw: bytes) -> None:
        version = msgspec.json.decode(raw)["metadata"]["resourceVersion"]
        if version in self.refused:
            self.refused.remove(version)
            raise errors.Unavailable("not now")
        self.taken.append((what, version))

    def present(self, raw: bytes, reason: str = "") -> None:
        self._take("spoiled" if reason else "present", raw)

    def gone(self, raw: bytes) -> None:
        self._take("gone", raw)

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        self.taken.append((f"listed {len(keys)}", version))


async def follow(
    api: Api, resource: Resource = resources.POD, sink: Followed | None = None
) -> list[tuple[str, str]]:
    """Follow until there is no further answer for a watch; return what the sink received."""
    sink = sink or Followed()
    timing = WatchTiming(first_retry=0.0, longest_retry=0.0)
    watch = Watch(
        cast("KubeClient", api),
        WatchTarget(resource=resource),
        sink,
        jitter=lambda: 0.0,
        timing=timing,
    )
    task = asyncio.create_task(watch.run())  # noqa: TID251  (it never ends by itself)
    async with asyncio.timeout(5):
        await api.is_over.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return sink.taken


async def test_a_watch_resumes_at_the_newest_version_that_was_taken() -> None:
    events = [an_event("ADDED", an_object(11)), an_event("BOOKMARK", an_object(14))]
    api = Api(b"", events, [an_event("DELETED", an_object(15))])

    assert await follow(api) == [("listed 0", "10"), ("present", "11"), ("gone", "15")]
    assert (api.resumed_at, api.lists) == (["10", "14", "15"], 1)


async def test_what_a_sink_did_not_take_comes_again() -> None:
    events = [an_event("ADDED", an_object(version)) for version in (11, 12, 13)]
    api, sink = Api(b"", events, events[1:]), Followed()
    sink.refused = {"12"}

    assert await follow(api, sink=sink) == [
        ("listed 0", "10"),
        ("present", "11"),
        ("present", "12"),
        ("present", "13"),
    ]
    assert api.resumed_at == ["10", "11", "13"]


@pytest.mark.parametrize("code", [410, 500])
async def test_an_expired_version_is_listed_again_and_another_error_is_not(code: int) -> None:
    status = b'{"code":%d,"message":"m"}' % code
    api = Api(b"", [an_event("ADDED", an_object(11)), an_event("ERROR", status)])
    await follow(api)

    assert (api.lists, api.resumed_at[1:]) == ((2, ["10"]) if code == 410 else (1, ["11"]))


async def test_a_version_that_the_server_has_not_reached_is_listed_again() -> None:
    status = b'{"code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}'
    api = Api(b"", [an_event("ADDED", an_object(11)), an_event("ERROR", status)])
    await follow(api)

    assert (api.lists, api.resumed_at[1:]) == (2, ["10"])


@cases(
    ("refusal", "lists"),
    {
        "expired": (errors.Conflict("too old resource version"), 2),
        "restored": (errors.VersionAhead("Timeout: Too large resource version: 11, current: 3"), 2),
        "not served": (errors.NotFound("the server could not find the requested resource"), 2),
        "busy": (errors.Unavailable("the server is busy"), 1),
    },
)
async def test_a_refused_watch_is_listed_again_where_its_version_is_of_no_use(
    refusal: errors.RaybusError, lists: int
) -> None:
    api = Api(b"", [an_event("ADDED", an_object(11))], refusal)
    await follow(api)

    assert (api.lists, api.resumed_at[2:]) == (lists, ["10"] if lists == 2 else ["11"])


# The deeper one is beyond the limit of each Python: 1,000 levels in 3.11, 10,000 in 3.13.
@pytest.mark.parametrize("levels", [101, 50_000])
@pytest.mark.parametrize("resource", [resources.POD, resources.RAY_CLUSTER], ids=["flat", "free"])
async def test_an_object_arrives_with_those_beside_it_whatever_it_nests(
    resource: Resource, levels: int
) -> None:
    deep, plain = an_object(11, levels=levels), an_object(12)
    api = Api(
        deep + b"," + plain,
        [an_event("MODIFIED", an_object(13, levels=levels)), an_event("MODIFIED", plain)],
    )
    taken = await follow(api, resource)

    assert [version for _, version in taken] == ["11", "12", "10", "13", "12"]
    is_spoiled = levels > 1_000 or not resource.is_flat
    assert [what for what, _ in taken] == [
        "spoiled" if is_spoiled else "present",
        "present",
        "listed 1",
        "spoiled" if is_spoiled else "present",
        "present",
    ]
