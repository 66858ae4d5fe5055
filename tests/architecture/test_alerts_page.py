"""docs/alerts.md names the cause by which a test provokes each alert."""

from integration.monitoring.alarmed import CAUSES
from support.manifests import ROOT


def test_the_page_names_the_cause_that_provokes_each_alert() -> None:
    page = " ".join((ROOT / "docs" / "alerts.md").read_text().split())
    assert [each.text for each in CAUSES if each.text not in page] == []
