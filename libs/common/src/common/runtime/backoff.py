"""Backoff of a key after its n-th failure in a row."""

from typing import Final

FIRST: Final = 0.005
"""Seconds after the first failure, as controller-runtime waits (spec raycluster §5.4)."""
LONGEST: Final = 30.0
"""Seconds at most. KubeRay waits up to 1000 s for problems that last seconds (spec rayservice W21)."""


def delay(failures: int, *, longest: float = LONGEST) -> float:
    """Return the seconds to wait after `failures` failures in a row: 5 ms, 10 ms, 20 ms … `longest`."""
    if failures <= 0:
        return 0.0
    return min(longest, FIRST * 2.0 ** min(failures - 1, 40))
