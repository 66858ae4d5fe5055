"""A row is one line, whatever the width."""

import pytest
from rich.cells import cell_len

from raybus_cli.printing import Column, Table

COLUMNS = (Column("name"), Column("phase"), Column("age", 1), Column("reason", 2))
ROW = ("a-service-with-a-long-name", "Ready", "5s", "NonZeroServeEndpoints")


@pytest.mark.parametrize(
    ("room", "heading", "line"),
    [
        pytest.param(
            80,
            "NAME                         PHASE   AGE   REASON",
            "a-service-with-a-long-name   Ready   5s    NonZeroServeEndpoints",
            id="all columns have room",
        ),
        pytest.param(
            50,
            "NAME                         PHASE   AGE",
            "a-service-with-a-long-name   Ready   5s",
            id="the least important column is dropped",
        ),
        pytest.param(
            35,
            "NAME                         PHASE",
            "a-service-with-a-long-name   Ready",
            id="then the next one",
        ),
        pytest.param(20, "NAME           PHASE", "a-service-w…   Ready", id="then cells are cut"),
    ],
)
def test_columns_are_dropped_and_then_cut(room: int, heading: str, line: str) -> None:
    assert Table(COLUMNS, [ROW]).lines(room) == [heading, line]


@pytest.mark.parametrize("text", ["two\nlines", "日本語の名前が長い", "\x1b[2J\x1b[31mred\x07"])
@pytest.mark.parametrize("room", [9, 30])
def test_no_text_makes_a_row_wider_or_two(text: str, room: int) -> None:
    lines = Table((Column("name"),), [(text,)]).lines(room)
    assert len(lines) == 2
    assert all(cell_len(each) <= room and "\n" not in each and "\x1b" not in each for each in lines)


def test_an_image_keeps_its_tag() -> None:
    image = Column("image", keeps_end=True)
    assert Table((image,), [("docker.io/rayproject/ray:2.60.0",)]).lines(15)[1] == "…ect/ray:2.60.0"
