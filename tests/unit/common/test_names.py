"""Names that we derive (spec raycluster §2.7)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import names


@pytest.mark.parametrize(
    ("prefix", "node_type", "expected"),
    [
        pytest.param("demo", "head", "demo-head-", id="a short name is kept"),
        pytest.param(
            "a" * 60,
            "worker",
            "a" * 50 + "-worker-",
            id="case 104: the first 50 characters are kept",
        ),
        pytest.param("Demo-Small", "worker", "demo-small-worker-", id="the whole is lower case"),
    ],
)
def test_pod_prefix(prefix: str, node_type: str, expected: str) -> None:
    assert names.pod_prefix(prefix, node_type) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("demo", "demo", id="a short name is kept"),
        pytest.param("x" + "a" * 50, "a" * 50, id="the last 50 characters are kept"),
        pytest.param("1demo", "rdemo", id="a leading digit is replaced"),
        pytest.param("-demo", "rdemo", id="a leading dash is replaced"),
    ],
)
def test_checked(name: str, expected: str) -> None:
    assert names.checked(name) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("x" * 70, "x" * 63, id="the last 63 characters are kept"),
        pytest.param("-" + "x" * 62, "r" + "x" * 62, id="leading punctuation is replaced"),
        pytest.param("1abc", "1abc", id="a digit may lead"),
    ],
)
def test_checked_label(value: str, expected: str) -> None:
    assert names.checked_label(value) == expected


@given(st.integers(min_value=0, max_value=2**64))
def test_a_suffix_is_five_safe_characters_and_repeats(number: int) -> None:
    suffix = names.suffix(number)
    assert len(suffix) == 5
    assert set(suffix) <= set(names.SAFE_ALPHABET)
    assert names.suffix(number) == suffix
