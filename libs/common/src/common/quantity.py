"""Kubernetes quantities, exact: parse, print, add, multiply, compare, round up.

A quantity is digits, a decimal point, and a suffix of one of three families: binary (Ki, Mi, …), decimal (n, u, m, k, M, …) or an exponent
(e3). The family survives arithmetic, so a sum prints as its first non-zero operand was written. Values are integers times a power of ten:
no float takes part, except in `Quantity.to_float`, which exists because Ray is given floats.

Behaviour: Kubernetes' `resource.Quantity`; vectors in spec raycluster §11.4, §13.3.
"""

import re
from enum import StrEnum
from typing import Final

import msgspec

from common.errors import InvalidSpec


class QuantityError(InvalidSpec, ValueError):
    """The text is not a quantity, or one that no machine has."""


class Family(StrEnum):
    """How the amount is written."""

    UNSET = ""
    BINARY = "binary"
    DECIMAL = "decimal"
    EXPONENT = "exponent"


_NANO: Final = -9
_LARGEST_BINARY: Final = (1 << 63) - 1
_FAST_DIGITS: Final = 18  # an int64 holds any number of 18 decimal digits
_FAR_APART: Final = 4096  # powers of ten; more would only burn memory
_LONGEST: Final = 128
"""Characters; the cost of a number grows with the square of its digits."""
_LARGEST_EXPONENT: Final = 300
"""What a float holds, since Ray is given floats."""
_PATTERN: Final = re.compile(r"([+-]?)(?=\.?[0-9])0*([0-9]*)(?:(\.)([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]{1,10})", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", *_BINARY)


class Quantity(msgspec.Struct, frozen=True):
    """The amount `unscaled` x 10^`scale`; compare amounts with `compare`, since `==` also sees how they were written."""

    unscaled: int = 0
    scale: int = 0
    family: Family = Family.UNSET
    text: str = ""
    """The text as given, when Kubernetes keeps it instead of printing the canonical form."""

    def __str__(self) -> str:
        """Print as Kubernetes does: the largest suffix that leaves no fraction."""
        return self.text or _canonical(self)

    @property
    def is_zero(self) -> bool:
        """Whether the amount is nothing."""
        return self.unscaled == 0

    def add(self, other: "Quantity") -> "Quantity":
        """Sum; zero takes the family of the other."""
        left, right, scale = _aligned(self, other)
        return Quantity(left + right, scale, other.family if self.is_zero else self.family)

    def times(self, factor: int) -> "Quantity":
        """Product with a whole number."""
        return Quantity(self.unscaled * factor, self.scale, self.family)

    def compare(self, other: "Quantity") -> int:
        """Return -1, 0 or 1 as the amount is less than, equal to or more than the other."""
        left, right, _ = _aligned(self, other)
        return (left > right) - (left < right)

    def round_up(self) -> int:
        """Return the whole number next to the amount, away from zero."""
        return _rescale_up(self.unscaled, self.scale, 0)

    def to_float(self) -> float:
        """Multiply the digits by the power of ten in double arithmetic: `1200m` is 1.2, but `1.2` is 1.2000000000000002."""
        if self.scale < 0:
            return float(self.unscaled) * (1.0 / 10.0**-self.scale)
        return float(self.unscaled) * 10.0**self.scale


ZERO: Final = Quantity()


def parse(value: str | float) -> Quantity:
    """Read a quantity; a JSON number counts as its decimal text."""
    if isinstance(value, str) and len(value) > _LONGEST:
        raise QuantityError(
            f"{value[:20]!r}… has more than {_LONGEST} characters; write a number with a suffix, such as 500m, 2 or 1.5Gi"
        )
    text = str(value).strip()
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(
            f"{text!r} is not a quantity; write a number with an optional suffix, such as 500m, 2 or 1.5Gi"
        )
    sign, number, _, fraction, suffix = match.groups(default="")
    power, family = _interpret(suffix, text)
    number = number or "0"
    digits = number + fraction
    amount = -int(digits) if sign == "-" else int(digits)
    if family is Family.BINARY:
        return _binary(amount, number, fraction, power, text)
    scale = power - len(fraction)
    if len(digits) > _FAST_DIGITS or scale < _NANO:
        return _in_nanos(amount, scale, family)
    keeps_text = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(amount, scale, family, text if keeps_text or text == "0" else "")


def canonical(value: str | float) -> str:
    """Return the text that Kubernetes stores for a quantity."""
    return str(parse(value))


def _interpret(suffix: str, text: str) -> tuple[int, Family]:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix], Family.DECIMAL
    if suffix in _BINARY:
        return _BINARY[suffix], Family.BINARY
    if match := _EXPONENT.fullmatch(suffix):
        power = int(match[1])
        if abs(power) > _LARGEST_EXPONENT:
            raise QuantityError(
                f"{text!r} has the exponent {power}; use one between -{_LARGEST_EXPONENT} and {_LARGEST_EXPONENT}"
            )
        return power, Family.EXPONENT
    raise QuantityError(
        f"{text!r} has the unknown suffix {suffix!r}; use one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
    )


def _binary(amount: int, number: str, fraction: str, power: int, text: str) -> Quantity:
    is_short = len(number) + power * 3 // 10 < 15  # the bound of Kubernetes' fast path
    if not fraction and is_short:
        return Quantity(amount << power, 0, Family.BINARY, text if amount % 8 else "")
    exact = _in_nanos(amount << power, -len(fraction), Family.BINARY)
    if abs(exact.unscaled) > _LARGEST_BINARY * 10**-_NANO:
        return Quantity(_LARGEST_BINARY if amount > 0 else -_LARGEST_BINARY, 0, Family.BINARY)
    if 0 < abs(exact.unscaled) < 10**-_NANO:
        return Quantity(exact.unscaled, exact.scale, Family.DECIMAL)
    return exact


def _in_nanos(amount: int, scale: int, family: Family) -> Quantity:
    """Round up to whole nanos, the smallest amount there is."""
    if scale > _FAR_APART or amount == 0:
        return Quantity(amount, scale, family)
    return Quantity(_rescale_up(amount, scale, _NANO), _NANO, family)


def _rescale_up(amount: int, scale: int, wanted: int) -> int:
    if amount == 0:
        return 0
    if scale >= wanted:
        _require_near(scale - wanted)
        return amount * 10 ** (scale - wanted)
    if wanted - scale > len(str(amount)):
        return 1 if amount > 0 else -1
    whole = -(-abs(amount) // 10 ** (wanted - scale))
    return whole if amount > 0 else -whole


def _aligned(a: Quantity, b: Quantity) -> tuple[int, int, int]:
    if a.is_zero or b.is_zero:
        return a.unscaled, b.unscaled, b.scale if a.is_zero else a.scale
    _require_near(abs(a.scale - b.scale))
    scale = min(a.scale, b.scale)
    return a.unscaled * 10 ** (a.scale - scale), b.unscaled * 10 ** (b.scale - scale), scale


def _require_near(powers: int) -> None:
    if powers > _FAR_APART:
        raise QuantityError(f"the quantities differ by 10^{powers}; use exponents below {_FAR_APART}")


def _canonical(quantity: Quantity) -> str:
    if quantity.is_zero:
        return "0"
    if quantity.family is Family.BINARY and (whole := _whole(quantity)) is not None and abs(whole) >= 1024:  # 1Ki
        steps = 0
        while whole % 1024 == 0 and steps < len(_BINARY):
            whole, steps = whole // 1024, steps + 1
        return f"{whole}{_BINARY_SUFFIX[steps]}"
    return _decimal(quantity)


def _whole(quantity: Quantity) -> int | None:
    """Return the amount if it is a whole number."""
    if quantity.scale >= 0:
        return _rescale_up(quantity.unscaled, quantity.scale, 0)
    whole, rest = divmod(quantity.unscaled, 10**-quantity.scale)
    return None if rest else whole


def _decimal(quantity: Quantity) -> str:
    digits = str(quantity.unscaled)
    stripped = digits.rstrip("0")
    exponent = quantity.scale + len(digits) - len(stripped)
    spare = exponent % 3
    if quantity.family in {Family.EXPONENT, Family.UNSET}:
        power = exponent - spare
        return f"{stripped}{'0' * spare}" + (f"e{power}" if power else "")
    spare = max(spare, exponent - 18)  # there is no suffix beyond E
    return f"{stripped}{'0' * spare}{_DECIMAL_SUFFIX[exponent - spare]}"
