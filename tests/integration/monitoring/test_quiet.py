"""No alert fires while all is well: two minutes of what `make quiet` does for an hour."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from integration.monitoring.quiet import Report
from support.monitoring import files

pytestmark = [pytest.mark.integration]

TESTS = Path(__file__).parents[2]
LIMIT_SECONDS = 900


@pytest.fixture(scope="module")
def report(promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Run it once, in a network of its own; `promtool` says that Prometheus is there."""
    assert promtool.is_file()
    logs = tmp_path_factory.mktemp("quiet")
    command = [sys.executable, "-m", "integration.monitoring.quiet", "--minutes=2", "--every=45", f"--out={logs}"]
    done = subprocess.run(
        [*command, "-o=json"], cwd=TESTS, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert done.stdout, done.stderr[-4000:]
    return msgspec.json.decode(done.stdout, type=Report)


def test_no_alert_fires(report: Report) -> None:
    assert report.broken == []
    assert [each.alert for each in report.rules] == [each["alert"] for each in files.alerts()]


def test_upgrades_went_on_meanwhile(report: Report) -> None:
    assert report.upgrades >= 2
