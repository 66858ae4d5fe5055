"""Names that raybus derives (spec raycluster §2.7)."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import names
from support.tables import cases


@cases(
    ("prefix", "node_type", "expected"),
    {
        "a short name is kept": ("demo", "head", "demo-head-"),
        "case 104: the first 50 characters are kept": ("a" * 60, "worker", "a" * 50 + "-worker-"),
        "the whole is lower case": ("Demo-Small", "worker", "demo-small-worker-"),
    },
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


NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)
ENDINGS = st.lists(
    st.sampled_from(
        [
            *names.SideRole,
            "httproute",
            "grpcroute",
            "gateway",
            "svc",
            "head",
            "serve",
            "headless",
            "head-svc",
            "serve-svc",
            "preview-svc",
        ]
    ),
    max_size=3,
)
OF_KIND: dict[str, list[Callable[[str], str]]] = {
    "HTTPRoute": [
        names.http_route,
        *(partial(names.side_route, role=role) for role in names.SideRole),
    ],
    "Service": [
        names.head_service,
        names.serve_service,
        names.preview_service,
        names.headless_service,
    ],
}
"""By kind: functions that derive the names of objects of that kind."""


@pytest.mark.parametrize("kind", OF_KIND)
@given(base=NAMES, first=ENDINGS, second=ENDINGS)
def test_names_of_objects_with_different_uses_never_coincide(
    kind: str, base: str, first: list[str], second: list[str]
) -> None:
    owners = {"-".join((base, *endings)) for endings in (first, second)}
    derived = [derive(owner) for owner in owners for derive in OF_KIND[kind]]
    assert len(derived) == len(set(derived))
