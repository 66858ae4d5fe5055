"""Lines of a page of metrics: which are read, and the time that a hostile page takes."""

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from common.ray import dashboard, exposition, ongoing, request_metrics
from common.ray.exposition import MAX_LABELS, MAX_LINE_BYTES, Line

NAME = b"ray_serve_num_http_requests_total"
BUCKET = b"ray_serve_http_request_latency_ms_bucket"


def lines(text: bytes, *names: bytes) -> list[Line]:
    return list(exposition.lines(text, names or (b"ray_a", b"ray_ab")))


CASES: list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes], float]]]] = [
    (b"ray_a 1\nray_ab 2\nray_abc 3\nx_ray_a 4", [(b"ray_a", {}, 1), (b"ray_ab", {}, 2)]),
    (b"# ray_a 1\nray_a\t5 1700 # {x=\"y\"} 3\r\n", [(b"ray_a", {}, 5)]),
    (b'ray_a{} 1\nray_a{b="x", c = "y",} 2', [(b"ray_a", {}, 1), (b"ray_a", {b"b": b"x", b"c": b"y"}, 2)]),
    (b'ray_a{b="}{,c=",d=""} 1 1700 # {x="}"} 0.4\n', [(b"ray_a", {b"b": b"}{,c=", b"d": b""}, 1)]),
    (rb'ray_a{b="\"\\\n\\n"} 1', [(b"ray_a", {b"b": b'"\\\n\\n'}, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_lines(text: bytes, expected: list[tuple[bytes, dict[bytes, bytes], float]]) -> None:
    assert lines(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        b"ray_a",
        b"ray_a ",
        b"ray_a x",
        b"ray_a{",
        b'ray_a{b="x"',
        b'ray_a{b="x',
        b'ray_a{b="x"}',
        b'ray_a{b"x"} 1',
        b"ray_a{b} ",
        b'ray_a{b="\\\x00"} 1',
        b"ray_a{" + b'b="",' * (MAX_LABELS + 1) + b"} 1",
        b"ray_a " + b" " * MAX_LINE_BYTES + b"1",
    ],
)
def test_a_malformed_line_makes_the_page_unreadable(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        lines(b"ray_ab 1\n" + text)


def test_limits_are_reached() -> None:
    labels = b"".join(b'b%d="",' % number for number in range(MAX_LABELS))
    assert len(lines(b"ray_a{" + labels + b"} 1")[0].labels) == MAX_LABELS
    text = b"ray_a " + b"1".rjust(MAX_LINE_BYTES - 1)
    assert lines(text) == lines(text + b"\n" * 9) == [(b"ray_a", {}, 1)]


def filled(line: bytes) -> bytes:
    return line * (dashboard.MAX_METRICS_SIZE // len(line))


HOSTILE = {
    "one label": NAME + b'{a="' + b"x" * 2**23 + b'"} 1',
    "labels of 1 MiB": filled(NAME + b'{a="' + b"x" * 2**20 + b'"} 1\n'),
    "empty lines": filled(b"\n"),
    "no line break": filled(b"a"),
    "no line break and our names": filled(NAME),
    "other names": filled(NAME + b"_\n"),
    "counters": filled(NAME + b"{} 1\n"),
    "routes": b"".join(NAME + b'{route="/%d"} 1\n' % number for number in range(160_000)),
    "routes within the limit": b"".join(
        NAME + b'{route="/%0100d"} 1\n' % number for number in range(exposition.MAX_LINES)
    ),
    "labels": filled(NAME + b"{" + b'a="",' * 25 + b"} 1\n"),
    "too many labels": filled(NAME + b"{" + b'a="",' * 2000 + b"} 1\n"),
    "quotes": filled(NAME + b"{" + b'"' * 3000 + b"} 1\n"),
    "escapes": filled(NAME + b'{a="' + b'\\"' * 1000 + b'"} 1\n'),
    "labels without an end": NAME + b"{" + b',a="\\' * 1_600_000,
    "histograms": b"".join(
        BUCKET + b'{route="/%d",le="%d"} 1\n' % divmod(number, 20) for number in range(49_000)
    ),
}


READERS: list[Callable[[bytes], Any]] = [request_metrics.parse, ongoing.count]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("page", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_page_takes_linear_time(page: bytes, read: Callable[[bytes], Any]) -> None:
    """A page of 8 MiB takes at most 0.6 s where nothing else runs; quadratic time would be hours."""
    began = time.process_time()
    read(b"ray_x 1\n" + page)
    assert time.process_time() - began < 10


@pytest.mark.parametrize(
    "name", ["one label", "labels of 1 MiB", "labels without an end", "routes within the limit"]
)
def test_a_hostile_page_takes_little_memory(name: str) -> None:
    page = b"ray_x 1\n" + HOSTILE[name]
    tracemalloc.start()
    try:
        for read in READERS:
            read(page)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 48 * 2**20
