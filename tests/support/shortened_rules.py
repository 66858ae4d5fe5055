"""Shortens all times of the alerts in deploy/monitoring to a thirtieth, for tests.

Changed are `for:`, ranges in brackets, and how long an alert remembers an ended upgrade (`time() -
… < seconds`). Thresholds for values do not change.
"""

import re
from typing import Final

from generators.monitoring.files import Json

SHARE: Final = 30
MIN_FOR: Final = 4
"""Minimum `for:` in seconds. Less would be one or two scrapes, which a busy machine may miss."""
MIN_RANGE: Final = 10
"""Minimum range in seconds. A rate needs several scrapes, which are one second apart."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
_RANGE: Final = re.compile(r"\[(\d+)([smh])\]")
_MEMORY: Final = re.compile(r"(time\(\) - [a-z_]+(?:\{[^}]*\})? < )(\d+)\b")


def rules(groups: list[Json], *, share: int = SHARE) -> list[Json]:
    """Return the alert groups with shorter times."""
    return [{**group, "rules": [_rule(rule, share) for rule in group["rules"]]} for group in groups]


def _rule(rule: Json, share: int) -> Json:
    shorter = {"for": f"{_of(rule['for'], share, least=MIN_FOR)}s"} if "for" in rule else {}
    return {**rule, "expr": _expression(rule["expr"], share), **shorter}


def _expression(text: str, share: int) -> str:
    ranged = _RANGE.sub(
        lambda found: f"[{_of(found[1] + found[2], share, least=MIN_RANGE)}s]", text
    )
    return _MEMORY.sub(
        lambda found: f"{found[1]}{_of(f'{found[2]}s', share, least=MIN_RANGE)}", ranged
    )


def _of(duration: str, share: int, *, least: int) -> int:
    """Divide a Prometheus duration and return the seconds, at least `least`."""
    return max(least, int(duration[:-1]) * _SECONDS[duration[-1]] // share)
