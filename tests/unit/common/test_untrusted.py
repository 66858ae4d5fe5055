"""A text that nests too deep is known before a decoder meets it, and what is above the limit can still be read."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import untrusted


def deep(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(deep(100), False, id="at the limit"),
        pytest.param(deep(101), True, id="above the limit"),
        pytest.param(b"[" + b",".join([b"{}"] * 500) + b"]", False, id="wide"),
        pytest.param(json.dumps(["[{" * 500]).encode(), False, id="brackets in a string"),
        pytest.param(
            json.dumps(['\\"[{' * 500]).encode(), False, id="brackets behind escaped quotes"
        ),
        pytest.param(
            json.dumps(["\\" * 3, *['"]}'] * 300]).encode(), False, id="closing brackets in strings"
        ),
        pytest.param(
            b'["\\\\",' + deep(101) + b"]",
            True,
            id="an escaped backslash before the end of a string",
        ),
    ],
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
