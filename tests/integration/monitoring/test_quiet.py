"""No alert fires while all is well: two minutes of what `make quiet` does for an hour."""

from pathlib import Path

import pytest

from generators.monitoring import files
from integration.isolated import result_of
from integration.monitoring.quiet import Report

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

LIMIT_SECONDS = 900


@pytest.fixture(scope="module")
def report(promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Run it once, in a network of its own; `promtool` shows that Prometheus is there."""
    assert promtool.is_file()
    options = ("--minutes=2", "--every=45", f"--out={tmp_path_factory.mktemp('quiet')}", "-o=json")
    return result_of(
        "integration.monitoring.quiet", *options, kind=Report, within=LIMIT_SECONDS, codes=(0, 1)
    )


def test_no_alert_fires(report: Report) -> None:
    assert report.broken == []
    assert [each.alert for each in report.rules] == [each["alert"] for each in files.alerts()]


def test_upgrades_went_on_meanwhile(report: Report) -> None:
    assert report.upgrades >= 2
