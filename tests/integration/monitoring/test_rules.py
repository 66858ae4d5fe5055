"""Every alert fires on the series that its cause leaves, and none on those of a quiet hour
(promtool).
"""

import subprocess
from pathlib import Path

import pytest
import yaml

from generators.monitoring import files

pytestmark = [pytest.mark.integration]

CASES = Path(__file__).with_name("rules_test.yaml")


def run(promtool: Path, *arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(promtool), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=cwd,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    assert f"{len(files.alerts())} rules found" in run(promtool, "check", "rules", str(files.RULES))


def test_alerts_fire_on_their_cause_and_not_in_a_quiet_hour(promtool: Path, tmp_path: Path) -> None:
    bare = [
        {**group, "rules": [_without_text(rule) for rule in group["rules"]]}
        for group in files.groups()
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": bare}))
    cases = yaml.safe_load(CASES.read_text())
    (tmp_path / "cases.yaml").write_text(yaml.safe_dump({**cases, "rule_files": ["rules.yaml"]}))
    run(promtool, "test", "rules", str(tmp_path / "cases.yaml"))


def _without_text(rule: files.Json) -> files.Json:
    """Return a rule without the sentences for people, which a case would have to repeat."""
    return {key: each for key, each in rule.items() if key != "annotations"}


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    reported = {
        case["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert reported == {each["alert"] for each in files.alerts()}


def test_the_quiet_hour_asks_for_every_alert() -> None:
    quiet = next(
        each
        for each in yaml.safe_load(CASES.read_text())["tests"]
        if each["name"] == "a quiet hour"
    )
    assert {case["alertname"] for case in quiet["alert_rule_test"]} == {
        each["alert"] for each in files.alerts()
    }
    assert all(case["exp_alerts"] == [] for case in quiet["alert_rule_test"])
