"""`-w` of `get` and `list`, on an API server in memory that has lists and watches."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from io import StringIO
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from common import errors
from common.api.opaque import Body
from common.kube.resources import EVENT, POD, RAY_CLUSTER, RAY_SERVICE, Resource
from generators.docs import outputs
from raybus_cli import printing, session
from raybus_cli.printing import Output
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from raybus_cli.show import watching
from raybus_cli.show.sources import ObjectSource, TableSource, TreeSource
from support.builders import snapshots
from support.builders.snapshots import BLUE, GREEN, NOW, a_cluster, a_config, a_pod, an_event
from support.fakes.kube import Request
from support.fakes.watchable_kube import WatchableKube
from support.waiting import eventually

SERVICES = (kinds.SERVICE,)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    clock = [NOW]
    monkeypatch.setattr(session, "read_clock", lambda: clock[0])
    monkeypatch.setattr(watching, "LULL_SECONDS", 0.001)
    monkeypatch.setattr(watching, "RETRY_SECONDS", 0.001)
    return clock


@pytest.fixture
def server() -> WatchableKube:
    made = WatchableKube(now=lambda: NOW)
    made.put(RAY_SERVICE, snapshots.a_ready_service())
    made.put(RAY_CLUSTER, a_cluster(BLUE, a_config()))
    made.put(POD, a_pod(BLUE, "gpu", 1, ready=False))
    return made


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """Return a function that returns the lines printed so far."""
    found: list[str] = []

    def read() -> list[str]:
        found.extend(capsys.readouterr().out.splitlines())
        return found

    return read


@asynccontextmanager
async def _following(
    server: Any, source: ObjectSource, output: Output = Output.TEXT
) -> AsyncGenerator[asyncio.Task[None]]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(watching.follow(server, source, output))
        yield task
        task.cancel()


def _tables(
    shown: tuple[kinds.ArgumentKind, ...] = SERVICES,
    *,
    scope: str | None = "default",
    selector: str = "",
) -> TableSource:
    return TableSource(shown, scope, selector, wide=False)


def _tree(name: str = "demo") -> TreeSource:
    return TreeSource("default", [NamedTarget(kinds.SERVICE, name)], wide=False)


def _is_watching(server: WatchableKube, kind: str = "RayService") -> Callable[[], bool]:
    return lambda: kind in server.watches


async def _to_the_end(server: Any, source: ObjectSource) -> None:
    async with asyncio.timeout(5):
        await watching.follow(server, source, Output.NAME)


async def _quiet(server: WatchableKube) -> list[Request]:
    """Return the requests during a moment in which nothing changes."""
    await asyncio.sleep(0.05)
    before = len(server.requests)
    await asyncio.sleep(0.1)
    return server.requests[before:]


async def test_a_table_is_listed_once_and_then_watched(
    server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tables()):
        await eventually(_is_watching(server), what="the watch")
        assert await _quiet(server) == []
        server.put(RAY_SERVICE, snapshots.a_service(snapshots.UPGRADING, endpoints=0))
        await eventually(lambda: len(lines()) == 3, what="the change")
        server.finish_deletion(RAY_SERVICE, "default", "demo")
        await eventually(lambda: len(lines()) == 4, what="the deletion")
        assert await _quiet(server) == []
    assert [" ".join(each.split()[:2]) for each in lines()] == [
        "NAME PHASE",
        "demo Ready",
        "demo Upgrading",
        "demo Deleted",
    ]
    assert [str(each) for each in server.requests] == ["list RayService", "watch RayService"]


async def test_a_table_of_all_namespaces_has_the_first_lines_of_all_kinds_at_once(
    server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tables(kinds.KINDS, scope=None), Output.NAME):
        await eventually(_is_watching(server, "RayCluster"), what="the watch")
        await eventually(lambda: len(lines()) == 2, what="the lines")
    assert lines() == ["rayservice.ray.io/demo", f"raycluster.ray.io/{BLUE}"]


@pytest.mark.parametrize(
    ("source", "schema"), [(lambda: _tables(kinds.KINDS), "row"), (_tree, "tree")]
)
async def test_each_line_has_the_schema_of_the_documentation(
    source: Callable[[], ObjectSource],
    schema: str,
    server: WatchableKube,
    lines: Callable[[], list[str]],
) -> None:
    validator: Any = jsonschema.Draft202012Validator(outputs.schema(schema))
    async with _following(server, source(), Output.JSON):
        await eventually(_is_watching(server), what="the watch")
        server.put(RAY_SERVICE, snapshots.a_service(snapshots.UPGRADING, endpoints=0))
        await eventually(lambda: len(lines()) >= 2, what="the lines")
    for line in lines():
        validator.validate(json.loads(line))
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**json.loads(line), "unknown": 1})


async def test_only_objects_with_the_labels_are_watched(
    server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tables(selector="team=b"), Output.NAME):
        await eventually(_is_watching(server), what="the watch")
        for name, team in (("other", "b"), ("third", "c")):
            body = snapshots.a_service(endpoints=0)
            body["metadata"] |= {"name": name, "labels": {"team": team}}
            server.put(RAY_SERVICE, body)
        await eventually(lambda: bool(lines()), what="the line")
    assert lines() == ["rayservice.ray.io/other"]


async def test_a_program_gets_an_object_on_each_line(
    server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tables(), Output.JSON):
        await eventually(_is_watching(server), what="the watch")
        await eventually(lambda: len(lines()) == 1, what="the first line")
        server.put(RAY_SERVICE, snapshots.a_service(snapshots.UPGRADING, endpoints=0))
        await eventually(lambda: len(lines()) == 2, what="the second line")
    assert [(each["name"], each["phase"]) for each in map(json.loads, lines())] == [
        ("demo", "Ready"),
        ("demo", "Upgrading"),
    ]


CHANGES: dict[str, tuple[Resource, Body]] = {
    "a pod": (POD, a_pod(BLUE, "gpu", 1)),
    "a new cluster": (RAY_CLUSTER, a_cluster(GREEN, a_config())),
    "an Event": (EVENT, an_event("Created", "a head", about=("RayCluster", BLUE), at=1)),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_of_what_a_tree_shows_is_a_new_document(
    change: str, server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tree(), Output.JSON):
        await eventually(
            lambda: set(server.watches) >= {"RayService", "RayCluster", "Pod", "Event"},
            what="watches",
        )
        await _quiet(server)
        assert await _quiet(server) == []
        assert len(lines()) == 1
        server.put(*CHANGES[change])
        await eventually(lambda: len(lines()) == 2, what=change)
    assert lines()[0] != lines()[1]


async def test_an_event_about_another_object_leads_to_no_read(server: WatchableKube) -> None:
    async with _following(server, _tree()):
        await eventually(lambda: "Event" in server.watches, what="watches")
        await _quiet(server)
        server.put(EVENT, an_event("Created", "a head", about=("RayCluster", "another"), at=1))
        assert await _quiet(server) == []


async def test_pods_of_a_cluster_that_is_gone_are_not_watched_any_more(
    server: WatchableKube,
) -> None:
    server.put(RAY_CLUSTER, a_cluster(GREEN, a_config()))
    async with _following(server, _tree()):
        await eventually(lambda: server.watches.count("Pod") == 2, what="both watches")
        server.finish_deletion(RAY_CLUSTER, "default", GREEN)
        await eventually(lambda: server.watches.count("Pod") == 1, what="the end of one")


async def test_a_change_that_a_line_does_not_show_is_no_line_and_a_document(
    server: WatchableKube, lines: Callable[[], list[str]]
) -> None:
    async with _following(server, _tree(), Output.TEXT):
        await eventually(lambda: "Event" in server.watches, what="watches")
        await _quiet(server)
        server.put(*CHANGES["an Event"])
        await _quiet(server)
        assert len(lines()) == 1
        server.put(*CHANGES["a pod"])
        await eventually(lambda: len(lines()) == 2, what="the ready pod")


async def test_a_tree_that_only_ages_is_one_document(
    server: WatchableKube,
    lines: Callable[[], list[str]],
    now: list[datetime],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raybus_cli.show.sources.RESYNC_SECONDS", 0.01)
    async with _following(server, _tree(), Output.JSON):
        await eventually(_is_watching(server), what="the watch")
        now[0] += timedelta(minutes=1)
        assert await _quiet(server) != []
    assert len(lines()) == 1


async def test_a_terminal_gets_a_live_table_with_ages_need_no_request(
    server: WatchableKube, now: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = StringIO()
    monkeypatch.setattr(watching, "REDRAW_SECONDS", 0.01)
    monkeypatch.setattr(
        printing, "create_console", lambda: Console(file=file, force_terminal=True, width=80)
    )
    async with _following(server, _tables()):
        await eventually(lambda: "Ready" in file.getvalue(), what="the table")
        now[0] += timedelta(days=300)
        await eventually(lambda: "300d" in file.getvalue(), what="the new age")
        assert await _quiet(server) == []
        server.finish_deletion(RAY_SERVICE, "default", "demo")
        await eventually(lambda: "No resources found." in file.getvalue(), what="the empty table")
    assert "\x1b[?25h" in file.getvalue(), "the cursor is shown again"


def _refused(
    verb: str, kind: str, problem: errors.RaybusError
) -> Callable[[Request], errors.RaybusError | None]:
    return lambda request: problem if (request.verb, request.kind) == (verb, kind) else None


CANNOT_WATCH = errors.Forbidden(
    'rayservices.ray.io is forbidden: User "guest" cannot watch resource "rayservices" in API group "ray.io" '
    'in the namespace "default"'
)


@pytest.mark.parametrize("source", [_tables, _tree])
async def test_a_user_that_may_not_watch_gets_the_missing_right(
    source: Callable[[], ObjectSource], server: WatchableKube
) -> None:
    server.faults.append(_refused("watch", "RayService", CANNOT_WATCH))
    with pytest.raises(errors.Forbidden, match='cannot watch resource "rayservices"'):
        await _to_the_end(server, source())


async def test_pods_that_may_not_be_watched_are_noted_once(
    server: WatchableKube, capsys: pytest.CaptureFixture[str]
) -> None:
    server.faults.append(
        _refused("watch", "Pod", errors.Forbidden('pods is forbidden: User "guest" cannot watch'))
    )
    async with _following(server, _tree(), Output.NAME):
        await eventually(_is_watching(server), what="the other watches")
        await _quiet(server)
    assert (
        capsys.readouterr().err
        == 'changes of pods show late: pods is forbidden: User "guest" cannot watch\n'
    )


async def test_a_selector_that_the_api_server_refuses_is_a_misuse(server: WatchableKube) -> None:
    server.faults.append(_refused("list", "RayService", errors.Rejected("found '='")))
    with pytest.raises(errors.InvalidSpec, match="--selector 'a=' is no label selector"):
        await _to_the_end(server, _tables(selector="a="))


async def test_an_object_that_is_deleted_ends_the_view_of_it(server: WatchableKube) -> None:
    async def delete() -> None:
        await eventually(_is_watching(server), what="the watch")
        server.finish_deletion(RAY_SERVICE, "default", "demo")

    async with asyncio.TaskGroup() as group:
        group.create_task(delete())
        with pytest.raises(session.NoSuchObject):
            await _to_the_end(server, _tree())


@pytest.mark.parametrize("source", [_tables, _tree])
async def test_an_api_server_that_is_away_is_reported_once_and_waited_for(
    source: Callable[[], ObjectSource], server: WatchableKube, capsys: pytest.CaptureFixture[str]
) -> None:
    is_away = [True]
    server.faults.append(lambda _: errors.Unavailable("does not answer") if is_away[0] else None)
    async with _following(server, source(), Output.NAME):
        await asyncio.sleep(0.15)
        is_away[0] = False
        await eventually(_is_watching(server), what="the watch")
        await _quiet(server)
    printed = capsys.readouterr()
    assert printed.err == "does not answer; is it up, and is the --context right?\n"
    assert printed.out == "rayservice.ray.io/demo\n"


async def test_a_restarted_api_server_may_refuse_for_a_while(
    server: WatchableKube, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = [
        errors.Unavailable("does not answer"),
        errors.Forbidden("cannot list"),
        errors.NotFound("not served"),
    ]
    server.faults.append(lambda _: answers.pop(0) if answers else None)
    async with _following(server, _tables(), Output.NAME):
        await eventually(_is_watching(server), what="the watch")
        await _quiet(server)
    assert capsys.readouterr().out == "rayservice.ray.io/demo\n"


async def test_a_reader_that_has_enough_ends_the_view(
    server: WatchableKube, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_text: str, **_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(printing, "print_message", closed)
    with pytest.raises(BrokenPipeError):
        await _to_the_end(server, _tables())
