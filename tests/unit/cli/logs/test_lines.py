"""Lines of a log: complete, with the name of their pod, and without control characters."""

import msgspec
import pytest

from raybus_cli.logs import selection
from raybus_cli.logs.selection import LineFormat, LogSource, Piece, Splitter
from support.golden import Golden
from support.tables import cases

POD = LogSource("demo-head", "ray-head")
HEAD = LogSource("demo-blue-head-aaaaa", "ray-head")
WORKER = LogSource("demo-blue-gpu-worker-00001", "ray-worker")
NASTY = b"\x1b[2J\x1b]0;owned\x07red \x1b[31mtext\r"


@cases(
    ("chunks", "found", "rest"),
    {
        "two lines": ([b"a\nb\n"], [b"a", b"b"], []),
        "a line in two chunks, and one without an end": ([b"a", b"b\n", b"c"], [b"ab"], [b"c"]),
        "empty lines": ([b"\n\n"], [b"", b""], []),
        "a character in two chunks": ([b"\xe2\x82", b"\xac\n"], ["€".encode()], []),
        "nothing": ([], [], []),
    },
)
def test_chunks_become_lines(chunks: list[bytes], found: list[bytes], rest: list[bytes]) -> None:
    splitter = Splitter()
    assert [line for chunk in chunks for line in splitter.split(chunk)] == found
    assert splitter.end() == rest


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "MAX_LINE_SIZE", 4)
    splitter = Splitter()
    assert splitter.split(b"abcdefghij") == [b"abcd", b"efgh"]
    assert splitter.split(b"k\nlmnopq\n") == [b"ijk", b"lmno", b"pq"]


def test_the_pieces_of_a_long_line_do_not_depend_on_the_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(selection, "MAX_LINE_SIZE", 4)
    content = b"abcd\nefghijkl\n\nm"
    pieces = [
        Piece(b"abcd", begins_line=True),
        Piece(b"efgh", begins_line=True),
        Piece(b"ijkl", begins_line=False),
        Piece(b"", begins_line=True),
        Piece(b"m", begins_line=True),
    ]
    for size in range(1, len(content) + 1):
        splitter, found = Splitter(), list[Piece]()
        for begin in range(0, len(content), size):
            found += splitter.split_pieces(content[begin : begin + size])
        assert found + splitter.end_pieces() == pieces


@cases(
    ("form", "shown"),
    {
        "text": (LineFormat(), b"red text\n"),
        "with its pod": (LineFormat(is_prefixed=True), b"[pod/demo-head/ray-head] red text\n"),
        "raw": (LineFormat(is_raw=True), NASTY + b"\n"),
        "JSON": (
            LineFormat(is_json=True, is_prefixed=True),
            b'{"pod":"demo-head","container":"ray-head","line":"red text"}\n',
        ),
    },
)
def test_a_line_is_harmless_unless_it_is_wanted_raw(form: LineFormat, shown: bytes) -> None:
    assert selection.render(POD, NASTY, form) == shown


def test_the_output_is_as_the_page_shows_it(golden: Golden) -> None:
    logs = [
        (HEAD, b"Ray runtime started."),
        (HEAD, b"2026-01-01 12:00:04 INFO serve 212 -- Deployed app 'app'."),
    ]
    logs += [
        (WORKER, b"Ray runtime started."),
        (WORKER, b"2026-01-01 12:00:09 INFO replica 99 -- GET / 200 12ms"),
    ]
    golden.check(
        "cli/logs.txt",
        b"".join(selection.render(*each, LineFormat(is_prefixed=True)) for each in logs).decode(),
    )
    replica = LogSource(WORKER.pod, "replica_app_Model_8u2xk0.log")
    golden.check(
        "cli/logs-json.txt",
        selection.render(replica, logs[-1][1], LineFormat(is_json=True)).decode(),
    )


def test_raw_json_keeps_the_escapes_in_its_text() -> None:
    found = msgspec.json.decode(selection.render(POD, NASTY, LineFormat(is_json=True, is_raw=True)))
    assert found["line"] == NASTY.decode()


def test_what_is_no_text_and_the_name_of_a_file_cannot_control_a_terminal() -> None:
    shown = selection.render(
        LogSource("a\x1b[2J", "b\x9b"), b"\xff\xfe", LineFormat(is_prefixed=True)
    )
    assert shown.decode() == "[pod/a/b\ufffd] \ufffd\ufffd\n"
