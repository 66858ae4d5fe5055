"""Every alert fires on its cause in a real Prometheus, and falls silent afterwards."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from integration.monitoring.alarmed import CAUSES, Told
from localcluster.binaries import locate
from localcluster.settings import Settings
from support.manifests import ROOT
from support.monitoring import files

pytestmark = [pytest.mark.integration]

TESTS = Path(__file__).parents[2]
LIMIT_SECONDS = 1800


@pytest.fixture(scope="module")
def told(promtool: Path) -> Told:
    """Run the story once, in a network of its own; `promtool` says that Prometheus is there."""
    assert promtool.is_file()
    _, missing = locate(["gateway-crds", "kwok"], Settings.from_environment())
    if missing:
        pytest.skip(f"{missing[0]} is not built yet: `raybus cluster up` once")
    command = [sys.executable, "-m", "integration.monitoring.alarmed"]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]
    return msgspec.json.decode(done.stdout, type=Told)


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
