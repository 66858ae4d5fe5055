"""Ray versions as Kubernetes' generic version parser reads them (spec raycluster §4.2, below the table).

Optional blanks and a `v`, then at least two numbers with dots between; whatever follows is ignored, and a missing number
counts as 0.
"""

import json
import re
from typing import Final

Version = tuple[int, ...]

_PATTERN: Final = re.compile(r"[\s]*v?([0-9]+(?:\.[0-9]+)*)(.*)", re.ASCII)


_LONGEST_PART: Final = 19
"""Digits of a number that 64 bits hold."""


class VersionError(ValueError):
    """The text is not a version; the message is Kubernetes' own."""


def parse(text: str) -> Version:
    """Read a version: `2.52.0rc1` is (2, 52)."""
    quoted = json.dumps(text, ensure_ascii=False)
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise VersionError(f"could not parse {quoted} as version")
    parts = match[1].split(".")
    if len(parts) < 2:
        raise VersionError(f"illegal version string {quoted}")
    if parts[0].startswith("0") and parts[0] != "0":
        raise VersionError(f"illegal zero-prefixed version component {json.dumps(parts[0])} in {quoted}")
    if any(len(part) > _LONGEST_PART for part in parts):
        raise VersionError(f"illegal version string {quoted[:100]}: a number of more than {_LONGEST_PART} digits")
    return _without_trailing_zeros(tuple(int(part) for part in parts))


def is_at_least(text: str, minimum: Version) -> bool:
    """Return whether a text is a version not older than the minimum; no version at all is not."""
    try:
        return parse(text) >= _without_trailing_zeros(minimum)
    except VersionError:
        return False


def _without_trailing_zeros(version: Version) -> Version:
    while version and version[-1] == 0:
        version = version[:-1]
    return version
