"""The data that a page receives: everything at first, then only changes; and how waiting clients
get them.
"""

import asyncio
import contextlib
from typing import Any

import msgspec

from raybus_cli.show.phase import Tone
from raybus_dashboard.board import Board, EventFeed, PageFeed, PageSources, encode_event
from raybus_dashboard.model import Detail, ListedService


def a_row(name: str, **fields: Any) -> ListedService:
    row = ListedService(
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


def a_list(*rows: ListedService) -> dict[str, ListedService]:
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
    assert [name for name, _ in _events(PageFeed(Board(PageSources()), None).encode_changes())] == [
        "sources"
    ]


def test_an_empty_list_is_a_change_too() -> None:
    board = Board(PageSources())
    board.list({})
    assert _rows(PageFeed(board, None).encode_changes()) == {"all": True, "rows": [], "gone": []}


def test_all_rows_at_first_then_those_that_changed() -> None:
    board = Board(PageSources())
    feed = PageFeed(board, None)
    board.list(a_list(a_row("a"), a_row("b"), a_row("c")))
    assert [each["name"] for each in _rows(feed.encode_changes())["rows"]] == ["a", "b", "c"]
    assert feed.encode_changes() == b""
    board.list(a_list(a_row("a"), a_row("b", phase="Upgrading")))
    changed = _rows(feed.encode_changes())
    assert ([each["name"] for each in changed["rows"]], changed["gone"], changed["all"]) == (
        ["b"],
        ["default/c"],
        False,
    )


def test_a_page_gets_the_details_that_it_has_chosen() -> None:
    board = Board(PageSources())
    with board.count_page("default/a"):
        board.show(Detail(key="default/a", problem="first"))
        board.show(Detail(key="default/b"))
        assert (
            dict(_events(PageFeed(board, "default/a").encode_changes()))["detail"]["problem"]
            == "first"
        )
        assert "detail" not in dict(_events(PageFeed(board, "default/b").encode_changes()))
    assert (board.wanted, board.details) == ([], {})


def test_two_pages_that_chose_the_same_share_it() -> None:
    board = Board(PageSources())
    with board.count_page("default/a"):
        with board.count_page("default/a"):
            board.show(Detail(key="default/a"))
        assert (board.wanted, list(board.details)) == (["default/a"], ["default/a"])


async def test_a_waiting_client_gets_each_change_and_nothing_else() -> None:
    board = Board(PageSources())
    board.list({})
    seen = await board.wait_for_change(-1)
    board.list({})
    board.set_sources(PageSources())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await board.wait_for_change(seen)
    board.set_sources(PageSources(event_feed=EventFeed.LIVE))
    assert await board.wait_for_change(seen) == seen + 1


def test_text_from_outside_cannot_end_an_event() -> None:
    written = encode_event(
        "detail", Detail(key="a/b", problem="x\n\nevent: rows\ndata: {}\n\n\r\u2028")
    )
    assert written.count(b"\n") == 3
    assert b"\r" not in written
