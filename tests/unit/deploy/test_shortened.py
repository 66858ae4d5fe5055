"""Alerts are tried in a thirtieth of their time: only times change, and all of them."""

import pytest

from generators.monitoring import files
from support import shortened_rules as shortened


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        pytest.param(
            {"expr": "up == 0", "for": "2m"},
            {"expr": "up == 0", "for": "4s"},
            id="a thirtieth of two minutes",
        ),
        pytest.param(
            {"expr": "a > 150", "for": "30s"},
            {"expr": "a > 150", "for": "4s"},
            id="never less than 4 s",
        ),
        pytest.param(
            {"expr": "rate(a[5m]) > 0.05", "for": "10m"},
            {"expr": "rate(a[10s]) > 0.05", "for": "20s"},
            id="a range; the limit stays",
        ),
        pytest.param(
            {"expr": "increase(a[15m]) > 0"}, {"expr": "increase(a[30s]) > 0"}, id="without a wait"
        ),
        pytest.param(
            {"expr": 'time() - ended{outcome=~"A|B"} < 900'},
            {"expr": 'time() - ended{outcome=~"A|B"} < 30'},
            id="how long it remembers",
        ),
        pytest.param(
            {"expr": "min(expiry) - time() < 14 * 86400"},
            {"expr": "min(expiry) - time() < 14 * 86400"},
            id="days ahead are a limit",
        ),
    ],
)
def test_times_become_shorter(rule: files.Json, expected: files.Json) -> None:
    assert shortened.rules([{"name": "raybus", "rules": [rule]}]) == [
        {"name": "raybus", "rules": [expected]}
    ]


def test_our_alerts_keep_all_but_their_times() -> None:
    (group,) = shortened.rules(files.groups())
    kept = [
        {key: value for key, value in each.items() if key not in {"expr", "for"}}
        for each in group["rules"]
    ]
    assert kept == [
        {key: value for key, value in each.items() if key not in {"expr", "for"}}
        for each in files.alerts()
    ]
    assert not [
        each["expr"] for each in group["rules"] if "m]" in each["expr"] or "< 900" in each["expr"]
    ]
