"""Quantities behave as Kubernetes' do; the vectors were made by running its Go type (spec raycluster §11.4, §13.3)."""

from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common import quantity
from common.quantity import ZERO, Family, QuantityError
from support.tables import cases

GOLDEN = Path(__file__).parents[2] / "golden" / "quantity" / "vectors.json"


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """A quantity, another one, and Go's results for them; null where its 64 bits overflow."""

    text: str
    other: str
    canonical: str
    value: int | None
    float: float
    compare: int
    sum: str
    threefold: str


VECTORS = msgspec.json.decode(GOLDEN.read_bytes(), type=list[Vector])

TEXTS = st.builds(
    "{}{}{}".format,
    st.integers(min_value=0, max_value=10**17),
    st.sampled_from(["", ".5", ".25", ".125"]),
    st.sampled_from(["", "m", "u", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "e-3"]),
)


@pytest.mark.parametrize(
    "vector", [pytest.param(each, id=f"{each.text} and {each.other}") for each in VECTORS]
)
def test_a_quantity_prints_counts_and_adds_as_in_kubernetes(vector: Vector) -> None:
    amount, other = quantity.parse(vector.text), quantity.parse(vector.other)
    assert str(amount) == vector.canonical
    assert amount.compare(other) == vector.compare
    assert str(ZERO.add(amount).add(other)) == vector.sum
    assert str(amount.times(3)) == vector.threefold
    assert amount.to_float() == vector.float
    assert vector.value in {None, amount.round_up()}


@cases(
    ("terms", "total"),
    {
        "the first operand's family, with no suffix left": (["1G", "1Gi"], "2073741824"),
        "binary": (["1.5Gi", "512Mi"], "2Gi"),
        "thousandths": (["500m", "500m"], "1"),
        "nothing": ([], "0"),
    },
)
def test_a_sum_prints_as_the_status_shows_it(terms: list[str], total: str) -> None:
    amount = ZERO
    for term in terms:
        amount = amount.add(quantity.parse(term))
    assert str(amount) == total


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1"), (0, "0"), (0.5, "500m"), (1024, "1024"), (2000, "2k")]
)
def test_a_bare_number_is_a_quantity(number: float, text: str) -> None:
    assert str(quantity.parse(number)) == text


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "Gi", "e3", "1x", "1K", "1ee3", "--1", "1.2.3", "1Kii", "0x10", "1_000", "1e"],
)
def test_other_text_is_refused_by_name(text: str) -> None:
    with pytest.raises(QuantityError, match=r"is not a quantity|unknown suffix"):
        quantity.parse(text)


@pytest.mark.parametrize(
    "text", ["1e1000000000", "1e5000", "1e-301", "9" * 5001, "0." + "1" * 5001]
)
def test_a_number_that_would_cost_memory_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"exponent|more than 128 characters"):
        quantity.parse(text)


@given(TEXTS)
@example(
    "8906.25Ki"
)  # 9120000 has no binary suffix left, so it reads as decimal the next time: 9120k
def test_the_canonical_form_is_a_fixed_point(text: str) -> None:
    once = ZERO.add(quantity.parse(text))
    again = ZERO.add(quantity.parse(str(once)))
    assert once.compare(again) == 0
    assert str(ZERO.add(quantity.parse(str(again)))) == str(again)
    if once.family is not Family.BINARY or str(once)[-1] == "i":
        assert str(again) == str(once)


@given(TEXTS, TEXTS)
def test_sums_are_exact(left: str, right: str) -> None:
    a, b = quantity.parse(left), quantity.parse(right)
    assert Fraction(a.add(b).amount) == Fraction(a.amount) + Fraction(b.amount)
    assert a.add(b).compare(b.add(a)) == 0


@given(TEXTS, st.integers(min_value=0, max_value=2000))
def test_a_product_is_a_repeated_sum(text: str, factor: int) -> None:
    amount = quantity.parse(text)
    assert amount.times(factor).add(amount).compare(amount.times(factor + 1)) == 0


@given(TEXTS)
def test_rounding_up_loses_nothing(text: str) -> None:
    amount = quantity.parse(text)
    assert quantity.parse(amount.round_up()).compare(amount) >= 0
    assert quantity.parse(amount.round_up()).compare(amount.add(quantity.parse(1))) < 0
