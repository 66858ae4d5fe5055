"""Sessions and namespaces: users and namespaces share nothing, and each has a limit of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from typing import cast

import msgspec
import pytest

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from raybus_cli.session import AccessDenied
from raybus_dashboard import polling
from raybus_dashboard.board import EventFeed
from raybus_dashboard.incluster import sessions as module
from raybus_dashboard.incluster.identity import UserIdentity
from raybus_dashboard.incluster.places import UserLimit
from raybus_dashboard.incluster.sessions import BoardSessions
from raybus_dashboard.polling import Connect
from support.builders.snapshots import READY, a_service
from support.waiting import eventually

ANN, BOB = UserIdentity(user="ann", groups=("a",)), UserIdentity(user="bob")


class Kube:
    """The API server for one user: RayServices with this user's name, or a refusal."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.refusal: errors.RaybusError | None = None
        self.is_closed = False

    async def list(self, _resource: object, namespace: str | None, **_more: object) -> bytes:
        if self.refusal is not None:
            raise self.refusal
        body: Body = a_service(READY)
        body["metadata"] |= {"name": f"of-{self.user}", "namespace": namespace or "all"}
        return msgspec.json.encode({"items": [body]})

    async def close(self) -> None:
        self.is_closed = True


class Kubes:
    """API servers, one for each connection."""

    def __init__(self) -> None:
        self.made: list[Kube] = []

    def __call__(self, identity: UserIdentity) -> Connect:
        async def connect() -> KubeClient:
            self.made.append(Kube(identity.user))
            return cast("KubeClient", self.made[-1])

        return connect


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll without a pause between requested reads."""
    monkeypatch.setattr(polling, "LULL", 0.01)


@pytest.fixture
def kubes() -> Kubes:
    return Kubes()


@pytest.fixture
def sessions(kubes: Kubes) -> BoardSessions:
    return BoardSessions(kubes, has_controls=False, event_feed=EventFeed.OFF)


@pytest.fixture
async def group(sessions: BoardSessions) -> AsyncGenerator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as found:
        yield found
        sessions.end()


async def until(check: Callable[[], object]) -> None:
    await eventually(check, within=5, what="the state")


async def test_each_user_and_namespace_has_a_board_of_its_own(
    sessions: BoardSessions, group: asyncio.TaskGroup
) -> None:
    with (
        sessions.open_page(group, (ANN, "a"), None) as first,
        sessions.open_page(group, (ANN, "a"), None) as again,
        sessions.open_page(group, (ANN, "b"), None) as elsewhere,
        sessions.open_page(group, (BOB, "a"), None) as theirs,
        sessions.open_page(
            group, (msgspec.structs.replace(ANN, groups=()), "a"), None
        ) as without_group,
    ):
        assert first is again
        assert len({id(each) for each in (first, elsewhere, theirs, without_group)}) == 4
        await until(
            lambda: first.board.is_listed and elsewhere.board.is_listed and theirs.board.is_listed
        )
        assert [list(each.board.rows) for each in (first, elsewhere, theirs)] == [
            ["a/of-ann"],
            ["b/of-ann"],
            ["a/of-bob"],
        ]
        assert [each.board.sources.user for each in (first, theirs)] == ["ann", "bob"]


async def test_nothing_that_was_read_before_a_right_was_revoked_stays(
    sessions: BoardSessions, kubes: Kubes, group: asyncio.TaskGroup
) -> None:
    with sessions.open_page(group, (ANN, "a"), None) as session:
        await until(lambda: session.board.rows)
        for each in kubes.made:
            each.refusal = AccessDenied("cannot list rayservices in namespace a")
        session.board.request_read()
        await until(lambda: not session.board.rows)
        assert session.board.sources.problem == "cannot list rayservices in namespace a"


async def test_an_api_server_that_does_not_answer_leaves_what_was_shown(
    sessions: BoardSessions, kubes: Kubes, group: asyncio.TaskGroup
) -> None:
    with sessions.open_page(group, (ANN, "a"), None) as session:
        await until(lambda: session.board.rows)
        for each in kubes.made:
            each.refusal = errors.Unavailable("no answer")
        session.board.request_read()
        await until(lambda: session.board.sources.problem)
        assert session.board.rows


async def test_the_namespaces_of_a_user_are_bounded_and_an_unused_one_makes_room(
    sessions: BoardSessions, group: asyncio.TaskGroup
) -> None:
    with ExitStack() as pages:
        opened = [
            pages.enter_context(sessions.open_page(group, (ANN, f"n{each}"), None))
            for each in range(3)
        ]
        with sessions.open_page(group, (ANN, "unused"), None) as unused:
            with pytest.raises(errors.Throttled, match="you have pages of 4 namespaces open"):
                pages.enter_context(sessions.open_page(group, (ANN, "n4"), None))
            pages.enter_context(sessions.open_page(group, (BOB, "n4"), None))
        pages.enter_context(sessions.open_page(group, (ANN, "n4"), None))
        assert unused.has_ended
        assert not any(each.has_ended for each in opened)


async def test_the_sessions_of_all_are_bounded(
    sessions: BoardSessions, group: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SESSIONS", 3)
    with ExitStack() as pages:
        for each in range(3):
            pages.enter_context(
                sessions.open_page(group, (UserIdentity(user=f"u{each}"), None), None)
            )
        with pytest.raises(errors.Throttled):
            pages.enter_context(sessions.open_page(group, (BOB, None), None))


async def test_an_unused_session_ends_with_its_connections(
    sessions: BoardSessions, kubes: Kubes, group: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNUSED_SECONDS", 0.05)
    monkeypatch.setattr(module, "EXPIRY_SECONDS", 0.05)
    expiring = group.create_task(sessions.expire())
    with sessions.open_page(group, (ANN, "a"), None) as session:
        await until(lambda: session.board.is_listed)
        await asyncio.sleep(0.2)
        assert not session.has_ended
    await until(lambda: session.has_ended and all(each.is_closed for each in kubes.made))
    expiring.cancel()


async def test_an_error_ends_one_session_and_no_other(
    sessions: BoardSessions, kubes: Kubes, group: asyncio.TaskGroup
) -> None:
    with sessions.open_page(group, (BOB, "a"), None) as theirs:
        await until(lambda: theirs.board.is_listed)
        with sessions.open_page(group, (ANN, "a"), None) as session:
            await until(lambda: session.board.is_listed)
            for each in kubes.made:
                each.refusal = (
                    cast("errors.RaybusError", ZeroDivisionError()) if each.user == "ann" else None
                )
                session.board.request_read()
            await until(lambda: session.has_ended)
        assert not theirs.has_ended
        with sessions.open_page(group, (ANN, "a"), None) as renewed:
            assert renewed is not session
            await until(lambda: renewed.board.is_listed)


def test_places_are_bounded_for_each_user_and_for_all() -> None:
    places = UserLimit("pages", max_per_user=2, max_total=3)
    with ExitStack() as taken:
        for _ in range(2):
            taken.enter_context(places.occupy("ann"))
        with pytest.raises(errors.Throttled, match="you have 2 pages open"):
            taken.enter_context(places.occupy("ann"))
        taken.enter_context(places.occupy("bob"))
        with pytest.raises(errors.Throttled, match="all 3 pages"):
            taken.enter_context(places.occupy("cid"))
    with places.occupy("cid"), places.occupy("ann"), places.occupy("ann"):
        pass
