"""Every alert fires on its cause in a real Prometheus, and falls silent afterwards."""

from pathlib import Path

import pytest

from integration.monitoring.alarmed import CAUSES, Told
from integration.story import heard
from support.manifests import ROOT
from support.monitoring import files

pytestmark = [pytest.mark.integration, pytest.mark.story]

LIMIT_SECONDS = 1800


@pytest.fixture(scope="module")
def told(promtool: Path) -> Told:
    """Run the story once, in a network of its own; `promtool` says that Prometheus is there."""
    assert promtool.is_file()
    return heard("integration.monitoring.alarmed", kind=Told, within=LIMIT_SECONDS)


def test_every_alert_fires_on_its_cause_and_falls_silent_afterwards(told: Told) -> None:
    assert told.problems == []
    assert {alert for each in told.fired for alert in each.alerts} == {each["alert"] for each in files.alerts()}
    assert {each.cause for each in told.fired} == {each.text for each in CAUSES}


def test_nothing_fires_before_a_cause(told: Told) -> None:
    assert told.before == []


def test_alerts_say_what_they_are_about(told: Told) -> None:
    assert [text for text in told.texts if "no value" in text or "rror" in text] == []


def test_the_page_says_by_which_cause_each_alert_is_tried() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text()
    assert [each.text for each in CAUSES if each.text not in " ".join(page.split())] == []
