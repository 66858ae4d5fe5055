"""All five services are replaced by another build and back, in any order, while RayServices are
upgraded.

Without `RAYBUS_EARLIER_CHECKOUT`, a folder with an older commit, the other build is this one: then
it is a rolling restart.
"""

import os
import sys
from pathlib import Path

import pytest

from integration.builds.rolled import ENVIRONMENTS, Found
from integration.isolated import result_of

pytestmark = [pytest.mark.integration, pytest.mark.long_running]


@pytest.mark.skipif(os.geteuid() != 0, reason="the network of our own needs root")
def test_every_upgrade_ends_and_no_cluster_is_made_twice_whichever_builds_meet(
    tmp_path: Path,
) -> None:
    upgrades, seed = os.environ.get("UPGRADES", "2"), os.environ.get("ROLL_SEED", "1")
    options = ("--upgrades", upgrades, "--seed", seed, "--logs", str(tmp_path))
    found = result_of("integration.builds.rolled", *options, kind=Found, within=3600)
    sys.stderr.write(f"{found}\n")
    assert found.upgrades == ENVIRONMENTS * int(upgrades)
    assert found.clusters == ENVIRONMENTS + found.upgrades
    assert found.rolls > 0
    assert "Traceback" not in "".join(log.read_text() for log in tmp_path.glob("*.log"))
