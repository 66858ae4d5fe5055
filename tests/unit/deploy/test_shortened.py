"""Alerts are tested with a thirtieth of their times: all times change, and nothing else."""

from generators.monitoring import files
from support import shortened_rules as shortened


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
