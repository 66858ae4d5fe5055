"""A text that is nested too deeply is detected before it reaches a decoder, and values just above
the limit can still be read.
"""

import json
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import untrusted
from support.tables import cases


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@cases(
    ("text", "expected"),
    {
        "at the limit": (deep(100), False),
        "above the limit": (deep(101), True),
        "wide": (b"[" + b",".join([b"{}"] * 500) + b"]", False),
        "brackets in a string": (json.dumps(["[{" * 500]).encode(), False),
        "brackets behind escaped quotes": (json.dumps(['\\"[{' * 500]).encode(), False),
        "closing brackets in strings": (json.dumps(["\\" * 3, *['"]}'] * 300]).encode(), False),
        "an escaped backslash before the end of a string": (b'["\\\\",' + deep(101) + b"]", True),
    },
)
def test_the_depth_is_what_a_decoder_would_recurse(text: bytes, *, expected: bool) -> None:
    assert untrusted.is_too_deep(text) is expected


def test_what_is_above_the_limit_survives_and_the_rest_is_cut() -> None:
    text = b'{"metadata":{"name":"one]"},"spec":{"a":' + deep(3000) + b',"b":[1,"\\"["]}}'
    assert json.loads(untrusted.pruned(text, 3)) == {
        "metadata": {"name": "one]"},
        "spec": {"a": [msgspec.json.decode(untrusted.CUT)], "b": [1, '"[']},
    }


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)  # pyright: ignore[reportUnknownArgumentType]
    return 0


@given(value=JSON, limit=st.integers(1, 6))
def test_any_text_is_judged_by_its_depth_and_pruned_to_it(value: Any, limit: int) -> None:
    for text in (json.dumps(value).encode(), msgspec.json.encode(value)):
        assert untrusted.is_too_deep(text, limit) is (depth_of(value) > limit)
        left = untrusted.pruned(text, limit)
        assert not untrusted.is_too_deep(left, limit)
        if depth_of(value) <= limit:
            assert left == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-01-01T12:00:00+02:00", "2026-01-01T10:00:00+00:00"),
        ("9999-12-31T23:59:59-12:00", "9000-01-01T00:00:00+00:00"),
        ("0001-01-01T00:00:00+14:00", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_any_time_can_be_added_to(text: str, shown: str) -> None:
    moment = untrusted.bounded(datetime.fromisoformat(text))
    assert moment.isoformat() == shown
    assert moment + timedelta(seconds=2**31 - 1) > moment


@pytest.mark.parametrize(
    ("texts", "shown"),
    [([], ""), (["a", "b"], "a, b"), (["a", "b", "c", "d"], "a, b and 2 more")],
)
def test_of_many_texts_the_first_are_shown_and_the_others_counted(
    texts: list[str], shown: str
) -> None:
    assert untrusted.joined(texts, 2) == shown


INVISIBLE = "\x7f\x80\x9f\u061c\u200e\u200f\u2028\u202e\u2066\u2069"
"""Characters that a terminal obeys, or that change the direction of a text."""


@pytest.mark.parametrize("character", INVISIBLE, ids=ascii)
def test_a_character_that_a_terminal_obeys_is_not_shown(character: str) -> None:
    assert untrusted.escaped(f"a{character}b") == f"a\\u{ord(character):04x}b"
    assert untrusted.plain(f"a{character}b") == "a\ufffdb"


@pytest.mark.parametrize("text", ["", "größer 日本 🙂", "a\tb\nc"])
def test_a_harmless_text_is_shown_as_it_is(text: str) -> None:
    assert untrusted.escaped(text) == untrusted.plain(text) == text
