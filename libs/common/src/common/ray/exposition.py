"""Parse an untrusted metrics page (Prometheus' text format) with limited time and memory.

Wanted metrics are found by substring search, and only their lines are parsed. So the time is linear
in the length of the page, and the extra memory is one line.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

MAX_LINES: Final = 50_000
"""Maximum lines of the wanted metrics on one page.

A page with 300 routes, 3 status codes and 21 buckets has 19,000."""
MAX_LINE_BYTES: Final = 16 * 1024
"""Maximum bytes of a line. The labels of a line from Ray take about 400 bytes."""
MAX_LABELS: Final = 64
_ENDS_A_NAME: Final = {b"{", b" ", b"\t", b"\r", b"\n", b""}
_ESCAPED_BACKSLASH: Final = b"\x00"
_ESCAPED_QUOTE: Final = b"\x01"


class Line(NamedTuple):
    """One line of a page: name, labels and value of a series."""

    name: bytes
    labels: dict[bytes, bytes]
    value: float
    """The value of the series. It may be infinite, negative or NaN."""


def is_of_ray(page: bytes) -> bool:
    """Return whether a page has a metric of Ray: one with a name that begins with `ray_`."""
    return page.startswith(b"ray_") or b"\nray_" in page


def lines(page: bytes, names: Sequence[bytes]) -> Iterator[Line]:
    """Yield the lines of the metrics in `names`, in the order of `names`.

    Raises `ValueError` if the page exceeds the limits, or if a line of these metrics is malformed.
    The rest of a malformed page cannot be trusted; Prometheus drops the page, too.
    """
    count = 0
    for name in names:
        for begin in _begins(page, name):
            count += 1
            if count > MAX_LINES:
                raise ValueError(f"more than {MAX_LINES} lines")
            end = page.find(b"\n", begin, begin + MAX_LINE_BYTES + 1)
            if end < 0:
                end = len(page)
                if end - begin > MAX_LINE_BYTES:
                    raise ValueError(f"a line of more than {MAX_LINE_BYTES} bytes")
            yield _line(name, page[begin:end])


def _begins(page: bytes, name: bytes) -> Iterator[int]:
    """Yield the offset after the name in each line of the metric `name`."""
    if page.startswith(name) and page[len(name) : len(name) + 1] in _ENDS_A_NAME:
        yield len(name)
    needle = b"\n" + name
    position = page.find(needle)
    while position >= 0:
        begin = position + len(needle)
        if page[begin : begin + 1] in _ENDS_A_NAME:
            yield begin
        position = page.find(needle, begin)


def _line(name: bytes, text: bytes) -> Line:
    """Parse a line of the metric `name`; `text` is the rest of the line after the name."""
    if not text.startswith(b"{"):
        return Line(name, {}, _value(text))
    is_escaped = b"\\" in text
    if is_escaped:
        if _ESCAPED_BACKSLASH in text or _ESCAPED_QUOTE in text:
            raise ValueError("control characters in a label")
        text = text.replace(rb"\\", _ESCAPED_BACKSLASH).replace(rb"\"", _ESCAPED_QUOTE)
    labels: dict[bytes, bytes] = {}
    # After the brace, parts with odd indexes are label values. No part with an even index before
    # the end of the labels contains a brace.
    parts = text[1:].split(b'"', 2 * MAX_LABELS + 1)
    for index in range(0, len(parts), 2):
        label, brace, rest = parts[index].partition(b"}")
        if brace:
            return Line(name, labels, _value(rest))
        label = label.strip(b", \t")
        if index + 1 == len(parts) or not label.endswith(b"="):
            raise ValueError(f"malformed labels, or more than {MAX_LABELS}")
        value = parts[index + 1]
        labels[label[:-1].rstrip()] = _unescaped(value) if is_escaped else value
    raise ValueError("labels without an end")


def _unescaped(value: bytes) -> bytes:
    value = value.replace(rb"\n", b"\n").replace(_ESCAPED_QUOTE, b'"')
    return value.replace(_ESCAPED_BACKSLASH, b"\\")


def _value(text: bytes) -> float:
    """Return the number at the start of `text`; a timestamp or an exemplar may follow it."""
    words = text.split(None, 1)
    if not words:
        raise ValueError("a line without a value")
    return float(words[0])
