"""Lines of a log: whole ones, with the name of their pod, and harmless."""

import msgspec
import pytest

from raybus_cli.logs import selection
from raybus_cli.logs.selection import Form, Source, Splitter
from support.golden import Golden

POD = Source("demo-head", "ray-head")
HEAD = Source("demo-blue-head-aaaaa", "ray-head")
WORKER = Source("demo-blue-gpu-worker-00001", "ray-worker")
NASTY = b"\x1b[2J\x1b]0;owned\x07red \x1b[31mtext\r"


@pytest.mark.parametrize(
    ("chunks", "found", "rest"),
    [
        pytest.param([b"a\nb\n"], [b"a", b"b"], [], id="two lines"),
        pytest.param(
            [b"a", b"b\n", b"c"], [b"ab"], [b"c"], id="a line in two chunks, and one without an end"
        ),
        pytest.param([b"\n\n"], [b"", b""], [], id="empty lines"),
        pytest.param([b"\xe2\x82", b"\xac\n"], ["€".encode()], [], id="a character in two chunks"),
        pytest.param([], [], [], id="nothing"),
    ],
)
def test_chunks_become_lines(chunks: list[bytes], found: list[bytes], rest: list[bytes]) -> None:
    splitter = Splitter()
    assert [line for chunk in chunks for line in splitter.feed(chunk)] == found
    assert splitter.end() == rest


def test_a_line_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "LONGEST", 4)
    splitter = Splitter()
    assert splitter.feed(b"abcdefghij") == [b"abcd", b"efgh"]
    assert splitter.feed(b"k\nlmnopq\n") == [b"ijk", b"lmno", b"pq"]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        pytest.param(Form(), b"red text\n", id="text"),
        pytest.param(
            Form(is_prefixed=True), b"[pod/demo-head/ray-head] red text\n", id="with its pod"
        ),
        pytest.param(Form(is_raw=True), NASTY + b"\n", id="raw"),
        pytest.param(
            Form(is_json=True, is_prefixed=True),
            b'{"pod":"demo-head","container":"ray-head","line":"red text"}\n',
            id="JSON",
        ),
    ],
)
def test_a_line_is_harmless_unless_it_is_wanted_raw(form: Form, shown: bytes) -> None:
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
        b"".join(selection.render(*each, Form(is_prefixed=True)) for each in logs).decode(),
    )
    replica = Source(WORKER.pod, "replica_app_Model_8u2xk0.log")
    golden.check(
        "cli/logs-json.txt", selection.render(replica, logs[-1][1], Form(is_json=True)).decode()
    )


def test_raw_json_keeps_the_escapes_in_its_text() -> None:
    found = msgspec.json.decode(selection.render(POD, NASTY, Form(is_json=True, is_raw=True)))
    assert found["line"] == NASTY.decode()


def test_what_is_no_text_and_the_name_of_a_file_cannot_control_a_terminal() -> None:
    shown = selection.render(Source("a\x1b[2J", "b\x9b"), b"\xff\xfe", Form(is_prefixed=True))
    assert shown.decode() == "[pod/a/b\ufffd] \ufffd\ufffd\n"
