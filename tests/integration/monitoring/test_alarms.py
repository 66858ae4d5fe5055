"""Every alert fires on its cause in a real Prometheus, and falls silent afterwards."""

from pathlib import Path

import pytest

from generators.monitoring import files
from integration.isolated import result_of
from integration.monitoring.alarmed import CAUSES, Report

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

LIMIT_SECONDS = 1800


@pytest.fixture(scope="module")
def reported(promtool: Path) -> Report:
    """Run it once, in a network of its own; `promtool` shows that Prometheus is there."""
    assert promtool.is_file()
    return result_of("integration.monitoring.alarmed", kind=Report, within=LIMIT_SECONDS)


def test_every_alert_fires_on_its_cause_and_falls_silent_afterwards(reported: Report) -> None:
    assert reported.problems == []
    assert {alert for each in reported.fired for alert in each.alerts} == {
        each["alert"] for each in files.alerts()
    }
    assert {each.cause for each in reported.fired} == {each.text for each in CAUSES}


def test_nothing_fires_before_a_cause(reported: Report) -> None:
    assert reported.before == []


def test_alerts_name_their_object(reported: Report) -> None:
    assert [text for text in reported.texts if "no value" in text or "rror" in text] == []
