"""Kubernetes quantities with exact arithmetic: parse, print, add, multiply, compare, round up.

A quantity has digits, a decimal point, and a suffix of one of three families: binary (Ki, Mi, …),
decimal (n, u, m, k, M, …) or exponent (e3). A sum keeps the family of its first non-zero operand.
Floats are used only in `Quantity.to_float`, for Ray.

Behaviour: Kubernetes' `resource.Quantity`; vectors in spec raycluster §11.4, §13.3.
"""

from decimal import ROUND_UP, Context, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Final, cast

import msgspec
import re2

from common.errors import InvalidSpec


class QuantityError(InvalidSpec, ValueError):
    """The text is not a quantity, or too large to calculate with."""


class Family(StrEnum):
    """The suffix family of an amount."""

    BINARY = "binary"
    DECIMAL = "decimal"
    EXPONENT = "exponent"


_EXACT: Final = Context(prec=4096, rounding=ROUND_UP)
"""Decimal context for exact arithmetic.

It has more digits than any sum or product of quantities, and rounds away from zero."""
_NANO: Final = Decimal("1e-9")
"""The smallest amount that Kubernetes can represent."""
_MAX_BINARY_VALUE: Final = Decimal((1 << 63) - 1)
_FAST_DIGITS: Final = 18  # an int64 holds any number of 18 decimal digits
_MAX_LENGTH: Final = 128
"""Maximum length of a quantity, in characters. The cost of parsing is quadratic in the digits."""
_MAX_EXPONENT: Final = 300
"""Maximum power of ten; Ray takes quantities as floats, which can hold it."""
_PATTERN: Final = re2.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_EXPONENT: Final = re2.compile(r"[eE]([-+]?[0-9]{1,10})")
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)


class Quantity(msgspec.Struct, frozen=True):
    """An amount with its notation. Use `compare` for amounts: `==` also compares the notation."""

    amount: Decimal = Decimal(0)
    family: Family = Family.DECIMAL
    text: str = ""
    """The original text, where Kubernetes keeps it instead of printing the canonical form."""

    def __str__(self) -> str:
        """Format as Kubernetes does, with the largest suffix that leaves no fraction."""
        return self.text or _canonical(self)

    @property
    def is_zero(self) -> bool:
        return not self.amount

    def add(self, other: "Quantity") -> "Quantity":
        """Return the sum; a zero takes the family of the other operand."""
        return Quantity(
            _EXACT.add(self.amount, other.amount), other.family if self.is_zero else self.family
        )

    def times(self, factor: int) -> "Quantity":
        return Quantity(_EXACT.multiply(self.amount, factor), self.family)

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1 if the amount is less than, equal to or more than the other."""
        return (self.amount > other.amount) - (self.amount < other.amount)

    def round_up(self) -> int:
        """Round to a whole number, away from zero."""
        return int(self.amount.to_integral_value(ROUND_UP))

    def to_float(self) -> float:
        """Return digits times a power of ten in double arithmetic, as Go does.

        `1200m` is 1.2, but `1.2` is 1.2000000000000002.
        """
        digits, power = _parts(self.amount)
        return float(digits) * (1.0 / 10.0**-power if power < 0 else 10.0**power)


ZERO: Final = Quantity()


def parse(value: str | float) -> Quantity:
    """Parse a quantity; a JSON number counts as its decimal text. Raises `QuantityError`."""
    if isinstance(value, str) and len(value) > _MAX_LENGTH:
        raise QuantityError(
            f"{value[:20]!r}… has more than {_MAX_LENGTH} characters; write a number with a "
            "suffix, such as 500m, 2 or 1.5Gi"
        )
    return _parsed(str(value))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Quantity:
    text = text.strip()
    match = _PATTERN.fullmatch(text)
    if match is None or not (match[2] or match[3] or match[4]):
        raise QuantityError(
            f"{text!r} is not a quantity; write a number with an optional suffix, such as "
            "500m, 2 or 1.5Gi"
        )
    sign, _, number, fraction, suffix = match.groups(default="")
    power, family = _interpret(suffix, text)
    digits = (number or "0") + fraction
    amount = int(sign + digits)
    if family is Family.BINARY:
        return _binary(amount, len(fraction), power, text)
    scale = power - len(fraction)
    exact = Decimal(amount).scaleb(scale, _EXACT)
    if len(digits) > _FAST_DIGITS or scale < -9:
        return Quantity(exact.quantize(_NANO, context=_EXACT), family)
    keeps_text = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(exact, family, text if keeps_text or text == "0" else "")


def _interpret(suffix: str, text: str) -> tuple[int, Family]:
    """Return the exponent (of 2 for binary suffixes, else of 10) and the family of a suffix."""
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], Family.DECIMAL
    if suffix in _BINARY:
        return _BINARY[suffix], Family.BINARY
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise QuantityError(
            f"{text!r} has the unknown suffix {suffix!r}; use one of n u m k M G T P E, "
            "Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
        )
    if abs(power := int(match[1])) > _MAX_EXPONENT:
        raise QuantityError(
            f"{text!r} has the exponent {power}; use one between -{_MAX_EXPONENT} and "
            f"{_MAX_EXPONENT}"
        )
    return power, Family.EXPONENT


def _binary(amount: int, places: int, power: int, text: str) -> Quantity:
    """Return the quantity `amount` / 10^`places` * 2^`power`; `text` is its original spelling."""
    # The limit of Kubernetes' fast path with int64.
    if not places and len(str(abs(amount))) + power * 3 // 10 < 15:
        return Quantity(Decimal(amount << power), Family.BINARY, text if amount % 8 else "")
    exact = Decimal(amount << power).scaleb(-places, _EXACT).quantize(_NANO, context=_EXACT)
    if abs(exact) > _MAX_BINARY_VALUE:
        return Quantity(_MAX_BINARY_VALUE.copy_sign(exact), Family.BINARY)
    return Quantity(exact, Family.DECIMAL if 0 < abs(exact) < 1 else Family.BINARY)


def _canonical(quantity: Quantity) -> str:
    amount = _EXACT.normalize(quantity.amount)
    # The smallest binary suffix is 1Ki.
    if (
        quantity.family is Family.BINARY
        and abs(amount) >= 1024
        and amount == amount.to_integral_value()
    ):
        whole, steps = int(amount), 0
        while whole % 1024 == 0 and steps < len(_BINARY):
            whole, steps = whole // 1024, steps + 1
        return f"{whole}{_BINARY_SUFFIX[steps]}"
    digits, exponent = _parts(amount)
    spare = exponent % 3
    if quantity.family is Family.EXPONENT:
        power = exponent - spare
        return f"{digits}{'0' * spare}" + (f"e{power}" if power else "")
    spare = max(spare, exponent - 18)  # there is no suffix beyond E
    return f"{digits}{'0' * spare}{_DECIMAL_SUFFIX[exponent - spare]}"


def _parts(amount: Decimal) -> tuple[int, int]:
    """Return the signed digits as an integer, and the power of ten to multiply it by."""
    exponent = cast("int", amount.as_tuple().exponent)
    return int(amount.scaleb(-exponent, _EXACT)), exponent
