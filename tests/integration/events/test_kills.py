"""No event of an upgrade is missing, whichever process is killed, for an outsider who reads it all when it is over.

Few upgrades by default; `UPGRADES=50 KILL_SEED=1 pytest tests/integration/events` runs more. Each run prints its figures.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from integration.events.told import Run

pytestmark = [pytest.mark.integration, pytest.mark.long]

TESTS = Path(__file__).parents[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="the network of our own needs root")
def test_no_event_is_missing_whoever_is_killed(tmp_path: Path) -> None:
    upgrades, seed = os.environ.get("UPGRADES", "4"), os.environ.get("KILL_SEED", "1")
    options = ["--upgrades", upgrades, "--seed", seed, "--logs", str(tmp_path)]
    command = [sys.executable, "-m", "integration.events.kills", *options]
    done = subprocess.run(command, cwd=TESTS, stdout=subprocess.PIPE, text=True, check=False, timeout=7200)
    assert done.returncode == 0, f"the run failed; logs: {tmp_path}"
    run = msgspec.json.decode(done.stdout.splitlines()[-1], type=Run)
    sys.stderr.write(f"{run}\n")
    assert len(run.upgrades) == int(upgrades)
    assert run.missing == []
