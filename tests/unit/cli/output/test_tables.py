"""A row is one line, whatever the width."""

import pytest
from rich.cells import cell_len

from raybus_cli.printing import Column, Table
from support.tables import cases

COLUMNS = (Column("name"), Column("phase"), Column("age", 1), Column("reason", 2))
ROW = ("a-service-with-a-long-name", "Ready", "5s", "NonZeroServeEndpoints")


@cases(
    ("room", "heading", "line"),
    {
        "all columns have room": (
            80,
            "NAME                         PHASE   AGE   REASON",
            "a-service-with-a-long-name   Ready   5s    NonZeroServeEndpoints",
        ),
        "the least important column is dropped": (
            50,
            "NAME                         PHASE   AGE",
            "a-service-with-a-long-name   Ready   5s",
        ),
        "then the next one": (
            35,
            "NAME                         PHASE",
            "a-service-with-a-long-name   Ready",
        ),
        "then cells are cut": (20, "NAME           PHASE", "a-service-w…   Ready"),
    },
)
def test_columns_are_dropped_and_then_cut(room: int, heading: str, line: str) -> None:
    assert Table(COLUMNS, [ROW]).format_lines(room) == [heading, line]


@pytest.mark.parametrize("text", ["two\nlines", "日本語の名前が長い", "\x1b[2J\x1b[31mred\x07"])
@pytest.mark.parametrize("room", [9, 30])
def test_no_text_makes_a_row_wider_or_two(text: str, room: int) -> None:
    lines = Table((Column("name"),), [(text,)]).format_lines(room)
    assert len(lines) == 2
    assert all(cell_len(each) <= room and "\n" not in each and "\x1b" not in each for each in lines)


def test_an_image_keeps_its_tag() -> None:
    image = Column("image", keeps_end=True)
    assert (
        Table((image,), [("docker.io/rayproject/ray:2.60.0",)]).format_lines(15)[1]
        == "…ect/ray:2.60.0"
    )
