"""No event of an upgrade is missing for an external consumer, whichever process is killed.

The consumer reads all events at the end. There are few upgrades by default; `UPGRADES=50
KILL_SEED=1 pytest tests/integration/events` runs more. Each run prints its figures.
"""

import os
import sys
from pathlib import Path

import pytest

from integration.events.reported import Run
from integration.isolated import result_of

pytestmark = [pytest.mark.integration, pytest.mark.long_running]


@pytest.mark.skipif(os.geteuid() != 0, reason="the network of our own needs root")
def test_no_event_is_missing_whichever_process_is_killed(tmp_path: Path) -> None:
    upgrades, seed = os.environ.get("UPGRADES", "4"), os.environ.get("KILL_SEED", "1")
    options = ("--upgrades", upgrades, "--seed", seed, "--logs", str(tmp_path))
    run = result_of("integration.events.kills", *options, kind=Run, within=7200)
    sys.stderr.write(f"{run}\n")
    assert len(run.upgrades) == int(upgrades)
    assert run.missing == []
