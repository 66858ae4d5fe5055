"""How long a RayService may take to become ready for the first time: annotation `ray.io/initializing-timeout`.

Spec rayservice §3.2 (M3), §15; acceptance 5, 83, 84.
"""

import re
from datetime import timedelta
from typing import Final

from common import durations, labels
from common.errors import InvalidSpec

LONGEST: Final = 10**9
"""Seconds that a clock can count on from now; more is for ever."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
"""What Go reads as a whole number: no blanks, no underscores, no digits of other scripts."""


def limit(annotations: dict[str, str]) -> timedelta | None:
    """Return the time limit, None without one; `InvalidSpec` when it cannot be read."""
    value = annotations.get(labels.INITIALIZING_TIMEOUT, "")
    if not value:
        return None
    name = f"annotation {labels.INITIALIZING_TIMEOUT}"
    length = durations.parse(value)
    if length is not None:
        if length <= timedelta(0):
            raise InvalidSpec(f"{name} must be a positive duration, got: {value}")
        return length
    if not _NUMBER.fullmatch(value):
        expected = "Expected Go duration format (e.g., '5m', '1h') or positive integer seconds"
        raise InvalidSpec(f"{name} has invalid format: {value}. {expected}")
    seconds = int(value)
    if seconds <= 0:
        raise InvalidSpec(f"{name} must be a positive integer (seconds), got: {value}")
    return timedelta(seconds=min(seconds, LONGEST))
