"""The lists and events in protobuf that a watch passes on, and what it does with damaged ones."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import msgspec

from common.kube import protobuf, resources
from common.kube.client import KubeClient
from common.kube.watch import NamespacedName, Watch, WatchTarget, WatchTiming
from support.builders.protobuf import POD, encode, envelope, failure, frame, page
from support.tables import cases


def a_pod(version: int, name: str = "x", **annotations: str) -> bytes:
    meta = {"name": name, "namespace": "ns", "resourceVersion": str(version)}
    return encode({"metadata": {**meta, "annotations": annotations}, "spec": {}, "status": {}}, POD)


def an_event(event_type: str, version: int, **annotations: str) -> bytes:
    return frame(event_type, "Pod", a_pod(version, **annotations))


LISTED = page("Pod", [a_pod(9)], "10")


class Answer(asyncio.StreamReader):
    """The bytes of a watch, as aiohttp reads them."""

    async def readany(self) -> bytes:
        return await self.read(1000)


class Api:
    """Answers each list and each watch with the next bytes; implements what `Watch` needs of a
    `KubeClient`.
    """

    def __init__(self, lists: list[bytes], *watches: bytes) -> None:
        self.lists = lists
        self.watches = list(watches)
        self.asked: list[str] = []
        self.accepted: set[str] = set()
        self.is_over = asyncio.Event()

    async def request(
        self, _method: str, _path: str, *, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> bytes:
        self.asked.append(f"list {query.get('continue', '')}".strip())
        self.accepted.add(headers["Accept"])
        return self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]

    @asynccontextmanager
    async def stream(
        self, _path: str, *, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> AsyncGenerator[Any]:
        self.asked.append(f"watch {query['resourceVersion']}")
        self.accepted.add(headers["Accept"])
        if not self.watches:
            self.is_over.set()
            await asyncio.Event().wait()
        reader = Answer()
        reader.feed_data(self.watches.pop(0))
        reader.feed_eof()
        yield reader


class Sink:
    """Records what a watch reports; implements `WatchSink`, and `ProtobufSink` by `protobuf`."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, str]] = []
        self.protobuf = _ProtobufSink(self.taken)

    def present(self, raw: bytes, reason: str = "") -> None:
        self.taken.append(("JSON", msgspec.json.decode(raw)["metadata"]["resourceVersion"]))

    def gone(self, raw: bytes) -> None:
        self.taken.append(("gone", msgspec.json.decode(raw)["metadata"]["resourceVersion"]))

    def listed(self, keys: set[NamespacedName], version: str) -> None:
        self.taken.append((f"listed {sorted(name for _, name in keys)}", version))


class _ProtobufSink:
    def __init__(self, taken: list[tuple[str, str]]) -> None:
        self.taken = taken

    def present(self, content: bytes) -> None:
        self.taken.append(("present", protobuf.read_key(content).version))

    def gone(self, content: bytes) -> None:
        self.taken.append(("gone", protobuf.read_key(content).version))


async def follow(api: Api) -> tuple[list[tuple[str, str]], list[str]]:
    """Follow until there is no further answer for a watch; return what the sink received, and the
    errors that the watch reported.
    """
    sink, problems = Sink(), list[str]()
    watch = Watch(
        cast("KubeClient", api),
        WatchTarget(resource=resources.POD),
        sink,
        jitter=lambda: 0.0,
        timing=WatchTiming(first_retry=0.0, longest_retry=0.0),
        failed=lambda problem: problems.append(str(problem)),
        reached=lambda version: sink.taken.append(("reached", version)),
        protobuf_sink=sink.protobuf,
    )
    task = asyncio.create_task(watch.run())  # noqa: TID251  (it never ends by itself)
    async with asyncio.timeout(5):
        await api.is_over.wait()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return sink.taken, [problem for problem in problems if "ended at once" not in problem]


FIRST_LIST = [("present", "9"), ("listed ['x']", "10")]


async def test_events_are_passed_on_and_the_watch_resumes_at_the_last_one() -> None:
    answer = an_event("ADDED", 11) + an_event("MODIFIED", 12) + an_event("BOOKMARK", 14)
    api = Api([LISTED], answer, an_event("DELETED", 15))

    assert await follow(api) == (
        [*FIRST_LIST, ("present", "11"), ("present", "12"), ("reached", "14"), ("gone", "15")],
        [],
    )
    assert api.asked == ["list", "watch 10", "watch 14", "watch 15"]
    assert api.accepted == {protobuf.ACCEPT, protobuf.ACCEPT_WATCH}


async def test_a_list_of_several_pages_is_one_list() -> None:
    pages = [page("Pod", [a_pod(1, "a")], "10", "more"), page("Pod", [a_pod(2, "b")], "10")]
    api = Api(pages)

    taken, _ = await follow(api)
    assert taken == [("present", "1"), ("present", "2"), ("listed ['a', 'b']", "10")]
    assert api.asked == ["list", "list more", "watch 10"]


async def test_a_version_that_is_gone_makes_the_watch_list_again() -> None:
    expired = frame("ERROR", "Status", failure(code=410, reason="Expired", message="too old"))
    api = Api([LISTED], an_event("ADDED", 11) + expired)

    taken, problems = await follow(api)
    assert taken == [*FIRST_LIST, ("present", "11"), *FIRST_LIST]
    assert (api.asked, problems) == (["list", "watch 10", "list", "watch 10"], [])


async def test_another_error_event_is_reported_and_the_watch_resumes() -> None:
    api = Api([LISTED], frame("ERROR", "Status", failure(code=500, message="etcd is away")))

    _, problems = await follow(api)
    assert problems == ["the watch failed: ERROR etcd is away"]
    assert api.asked == ["list", "watch 10", "watch 10"]


async def test_an_event_that_was_cut_off_comes_again() -> None:
    large = an_event("MODIFIED", 12, note="x" * 2**20)
    api = Api([LISTED], an_event("ADDED", 11) + large[:-1], large)

    taken, problems = await follow(api)
    assert taken == [*FIRST_LIST, ("present", "11"), ("present", "12")]
    assert problems == ["the watch ended within an event"]
    assert api.asked == ["list", "watch 10", "watch 11", "watch 12"]


@cases(
    "damaged",
    {
        "another kind": frame("MODIFIED", "Service", a_pod(12)),
        "another type of event": frame("RENAMED", "Pod", a_pod(12)),
        "an error without status": frame("ERROR", "Pod", a_pod(12)),
        "no envelope": len(a_pod(12)).to_bytes(4) + a_pod(12),
        "a damaged event": b"\0\0\0\1\xff",
        "a page of HTML": b"<html></html>",
        "an impossible size": b"\xff\xff\xff\xff",
    },
)
async def test_what_is_no_event_is_reported_and_all_is_listed_again(damaged: bytes) -> None:
    api = Api([LISTED], an_event("ADDED", 11) + damaged)

    taken, problems = await follow(api)
    assert taken == [*FIRST_LIST, ("present", "11"), *FIRST_LIST]
    assert len(problems) == 1
    assert problems[0].startswith("unreadable answer: ")


@cases(
    "damaged",
    {
        "another list": page("Service", [], "10"),
        "an object": envelope("Pod", a_pod(9)),
        "a part": LISTED[:-1],
        "HTML": b"<html></html>",
    },
)
async def test_what_is_no_list_is_reported_and_asked_for_again(damaged: bytes) -> None:
    taken, problems = await follow(Api([damaged, LISTED]))
    assert taken[-2:] == FIRST_LIST
    assert len(problems) == 1
    assert problems[0].startswith("unreadable answer: ")


async def test_a_server_may_answer_in_json() -> None:
    meta = b'{"metadata":{"name":"x","namespace":"ns","resourceVersion":"%d"}}'
    listed = b'{"metadata":{"resourceVersion":"10"},"items":[%s]}' % (meta % 9)
    events = [b'{"type":"ADDED","object":%s}\n', b'{"type":"DELETED","object":%s}\n']
    answer = b"".join(event % (meta % version) for version, event in enumerate(events, start=11))
    api = Api([listed], answer)

    taken, problems = await follow(api)
    assert taken == [("JSON", "9"), ("listed ['x']", "10"), ("JSON", "11"), ("gone", "12")]
    assert problems == []
