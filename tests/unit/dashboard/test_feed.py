"""What a page is sent: all at first, then changes alone; and how waiting clients get them."""

import asyncio
import contextlib
from typing import Any

import msgspec

from raybus_cli.show.phase import Tone
from raybus_dashboard.board import Board, EventFeed, Feed, Sources, event
from raybus_dashboard.model import Detail, Row


def a_row(name: str, **fields: Any) -> Row:
    row = Row(
        namespace="default",
        name=name,
        phase="Ready",
        tone=Tone.GOOD,
        message="",
        strategy="NewCluster",
        endpoints=1,
        created=None,
    )
    return msgspec.structs.replace(row, **fields)


def a_list(*rows: Row) -> dict[str, Row]:
    return {f"{each.namespace}/{each.name}": each for each in rows}


def _events(update: bytes) -> list[tuple[str, Any]]:
    blocks = [each.split("\n") for each in update.decode().split("\n\n") if each]
    return [
        (name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: ")))
        for name, data in blocks
    ]


def _rows(update: bytes) -> Any:
    return dict(_events(update)).get("rows")


def test_the_list_is_not_published_before_it_was_read() -> None:
    assert [name for name, _ in _events(Feed(Board(Sources()), None).changes())] == ["sources"]


def test_an_empty_list_is_a_change_too() -> None:
    board = Board(Sources())
    board.list({})
    assert _rows(Feed(board, None).changes()) == {"all": True, "rows": [], "gone": []}


def test_all_rows_at_first_then_those_that_changed() -> None:
    board = Board(Sources())
    feed = Feed(board, None)
    board.list(a_list(a_row("a"), a_row("b"), a_row("c")))
    assert [each["name"] for each in _rows(feed.changes())["rows"]] == ["a", "b", "c"]
    assert feed.changes() == b""
    board.list(a_list(a_row("a"), a_row("b", phase="Upgrading")))
    changed = _rows(feed.changes())
    assert ([each["name"] for each in changed["rows"]], changed["gone"], changed["all"]) == (
        ["b"],
        ["default/c"],
        False,
    )


def test_a_page_gets_the_details_that_it_has_chosen() -> None:
    board = Board(Sources())
    with board.page("default/a"):
        board.show(Detail(key="default/a", problem="first"))
        board.show(Detail(key="default/b"))
        assert dict(_events(Feed(board, "default/a").changes()))["detail"]["problem"] == "first"
        assert "detail" not in dict(_events(Feed(board, "default/b").changes()))
    assert (board.wanted, board.details) == ([], {})


def test_two_pages_that_chose_the_same_share_it() -> None:
    board = Board(Sources())
    with board.page("default/a"):
        with board.page("default/a"):
            board.show(Detail(key="default/a"))
        assert (board.wanted, list(board.details)) == (["default/a"], ["default/a"])


async def test_a_waiting_client_gets_each_change_and_nothing_else() -> None:
    board = Board(Sources())
    board.list({})
    seen = await board.changed_since(-1)
    board.list({})
    board.set_sources(Sources())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await board.changed_since(seen)
    board.set_sources(Sources(event_feed=EventFeed.LIVE))
    assert await board.changed_since(seen) == seen + 1


def test_text_from_outside_cannot_end_an_event() -> None:
    written = event("detail", Detail(key="a/b", problem="x\n\nevent: rows\ndata: {}\n\n\r\u2028"))
    assert written.count(b"\n") == 3
    assert b"\r" not in written
