"""What a page is sent: all at first, then changes alone; and how those who wait hear of them."""

import asyncio
import contextlib
from typing import Any

import msgspec

from raybus_cli.dashboard.board import Board, Hearing, Standing
from raybus_cli.dashboard.feed import Feed, event
from raybus_cli.dashboard.model import Detail, Row
from raybus_cli.show.phase import Tone


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


def _events(news: bytes) -> list[tuple[str, Any]]:
    blocks = [each.split("\n") for each in news.decode().split("\n\n") if each]
    return [(name.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))) for name, data in blocks]


def _rows(news: bytes) -> Any:
    return dict(_events(news)).get("rows")


def test_nothing_is_said_of_the_list_before_it_was_read() -> None:
    assert [name for name, _ in _events(Feed(Board(Standing()), None).news())] == ["standing"]


def test_an_empty_list_is_news_too() -> None:
    board = Board(Standing())
    board.list({})
    assert _rows(Feed(board, None).news()) == {"all": True, "rows": [], "gone": []}


def test_all_rows_at_first_then_those_that_changed() -> None:
    board = Board(Standing())
    feed = Feed(board, None)
    board.list(a_list(a_row("a"), a_row("b"), a_row("c")))
    assert [each["name"] for each in _rows(feed.news())["rows"]] == ["a", "b", "c"]
    assert feed.news() == b""
    board.list(a_list(a_row("a"), a_row("b", phase="Upgrading")))
    changed = _rows(feed.news())
    assert ([each["name"] for each in changed["rows"]], changed["gone"], changed["all"]) == (
        ["b"],
        ["default/c"],
        False,
    )


def test_a_page_gets_the_details_that_it_has_chosen() -> None:
    board = Board(Standing())
    with board.page("default/a"):
        board.tell(Detail(key="default/a", problem="first"))
        board.tell(Detail(key="default/b"))
        assert dict(_events(Feed(board, "default/a").news()))["detail"]["problem"] == "first"
        assert "detail" not in dict(_events(Feed(board, "default/b").news()))
    assert (board.wanted, board.details) == ([], {})


def test_two_pages_that_chose_the_same_share_it() -> None:
    board = Board(Standing())
    with board.page("default/a"):
        with board.page("default/a"):
            board.tell(Detail(key="default/a"))
        assert (board.wanted, list(board.details)) == (["default/a"], ["default/a"])


async def test_who_waits_hears_of_a_change_and_of_nothing_else() -> None:
    board = Board(Standing())
    board.list({})
    seen = await board.turned(-1)
    board.list({})
    board.stand(Standing())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await board.turned(seen)
    board.stand(Standing(hearing=Hearing.LIVE))
    assert await board.turned(seen) == seen + 1


def test_text_from_outside_cannot_end_an_event() -> None:
    written = event("detail", Detail(key="a/b", problem="x\n\nevent: rows\ndata: {}\n\n\r\u2028"))
    assert written.count(b"\n") == 3
    assert b"\r" not in written
