"""Messages that are read, skipped or rejected."""

from random import Random

import pytest

from common import errors
from common.kube import answers, protobuf
from common.kube.protobuf import MalformedMessage
from support.builders.protobuf import envelope, failure, frame, page, sized, varint
from support.tables import cases

FIELDS = dict(
    [
        protobuf.text(1, "text"),
        protobuf.integer(2, "number"),
        protobuf.boolean(3, "flag"),
        protobuf.text(20, "items", repeated=True),
    ]
)


def test_wanted_fields_are_read_and_all_others_are_skipped() -> None:
    data = b"".join(
        [
            sized(1, b"a"),
            varint(2 << 3) + varint(-5),
            varint(4 << 3 | 1) + bytes(8),  # fixed64
            varint(3 << 3) + varint(1),
            varint(5 << 3 | 5) + bytes(4),  # fixed32
            sized(20, b"x"),
            varint(1000 << 3) + varint(2**63),
            sized(1001, bytes(200)),
            sized(20, b""),
        ]
    )
    expected = {"text": "a", "number": -5, "flag": True, "items": ["x", ""]}
    assert protobuf.read_fields(data, FIELDS) == expected


def test_a_field_of_another_wire_type_counts_as_unknown() -> None:
    assert protobuf.read_fields(varint(1 << 3) + varint(7) + sized(2, b"a"), FIELDS) == {}


@cases(
    "data",
    {
        "a size beyond the end": sized(1, b"abc")[:-1],
        "a huge size": varint(1 << 3 | 2) + varint(2**63),
        "a tag alone": varint(2 << 3),
        "an unfinished number": varint(2 << 3) + b"\x80",
        "a number of eleven bytes": varint(2 << 3) + b"\x80" * 10 + b"\x01",
        "a fixed number beyond the end": varint(4 << 3 | 1) + bytes(7),
        "a group": varint(4 << 3 | 3),
        "JSON": b'{"kind":"Pod"}',
    },
)
def test_what_is_no_message_is_rejected(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        protobuf.read_fields(data, FIELDS)


@cases(
    ("data", "text"),
    {
        "a byte": (b"a\xffb", "a\ufffdb"),
        "the begin of a character": (b"\xe2\x82z", "\ufffd\ufffdz"),
        "a surrogate": (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        "a character of four bytes": ("🦊".encode(), "🦊"),
        "NUL": (b"\0", "\0"),
    },
)
def test_bytes_that_are_no_text_are_replaced_one_by_one(data: bytes, text: str) -> None:
    assert protobuf.read_text(data) == text


def test_a_page_has_its_items_its_version_and_the_next_page() -> None:
    assert protobuf.read_page(page("Pod", [b"a", b""], "7", "more"), "Pod") == (
        "7",
        "more",
        [b"a", b""],
    )
    assert protobuf.read_page(page("Pod", [], "7"), "Pod") == ("7", "", [])


@cases(
    "body",
    {
        "another kind": page("Service", [], "7"),
        "an object": envelope("Pod", b""),
        "a compressed object": envelope("PodList", b"", encoding="gzip"),
        "no envelope": page("Pod", [], "7")[4:],
        "nothing": b"",
    },
)
def test_another_envelope_is_rejected(body: bytes) -> None:
    with pytest.raises(MalformedMessage):
        protobuf.read_page(body, "Pod")


def test_frames_are_found_wherever_the_answer_is_cut() -> None:
    frames = [frame("ADDED", "Pod", bytes(size)) for size in (0, 1, 200, 70_000)]
    answer, random = b"".join(frames), Random(1)
    for _ in range(50):
        splitter, pieces, at = protobuf.FrameSplitter(), list[bytes](), 0
        while at < len(answer):
            size = random.choice((1, 3, 7, 1000, 100_000))
            pieces += splitter.feed(answer[at : at + size])
            at += size
        splitter.end()
        assert [len(piece).to_bytes(4) + piece for piece in pieces] == frames


def test_an_answer_that_ends_within_a_frame_is_an_error() -> None:
    splitter = protobuf.FrameSplitter()
    assert list(splitter.feed(frame("ADDED", "Pod", b"")[:-1])) == []
    with pytest.raises(errors.Unavailable):
        splitter.end()


def test_a_size_that_no_event_has_is_rejected() -> None:
    with pytest.raises(MalformedMessage):
        list(protobuf.FrameSplitter().feed(b"\x01\0\0\0"))
    with pytest.raises(MalformedMessage):
        list(protobuf.FrameSplitter().feed(b"<html>"))


def test_a_refusal_in_protobuf_is_the_same_error_as_in_json() -> None:
    body = envelope("Status", failure(code=404, message="no pods", details={"name": "x"}))
    error = answers.make_error(404, body)
    assert isinstance(error, errors.NotFound)
    assert (str(error), error.name) == ("no pods", "x")
    ahead = failure(
        code=504, message="wait", details={"causes": [{"reason": "ResourceVersionTooLarge"}]}
    )
    assert isinstance(answers.make_error(504, envelope("Status", ahead)), errors.VersionAhead)


def test_a_refusal_that_cannot_be_read_is_an_error_of_its_code() -> None:
    body = envelope("Status", failure(code=404))[:-5]
    assert isinstance(answers.make_error(410, body), errors.Conflict)


def test_small_messages_are_remembered_and_large_ones_are_not() -> None:
    reads: list[bytes] = []

    def read(data: bytes) -> bytes:
        reads.append(data)
        return data

    remembered = protobuf.cache_results(read, entries=2, max_size=2)
    for data in (b"a", b"a", b"abc", b"abc"):
        assert remembered(data) == data
    assert reads == [b"a", b"abc", b"abc"]
