"""Commands of the README and the tutorial that need not be typed once more, each with the place that runs it in every run of the CI.

All others are typed, in order, by `tests/e2e/test_tutorial.py`.
"""

from typing import Final

from support.docs import commands
from support.docs.commands import Command
from support.manifests import ROOT

PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md")))
"""In the order in which a new user reads them: the names of the tutorial's parts begin with their numbers."""
PROVEN: Final = {
    "make setup": ".ci/run: make check",
    "make demo": "tests/e2e/test_upgrade.py: test_the_demo_upgrades_under_load_without_a_failed_request",
    "make test": ".ci/run: make test",
    "raybus cluster down": "tests/support/node.py: demo_cluster.remove_cluster(name)",
    "kubectl apply -k deploy/overlays/production": "tests/integration/deploy/test_install.py: production",
    "kubectl apply -f my-rayservice.yaml": "libs/cli/src/raybus_cli/demo/scenario.py: str(self._version(1))",
}
"""Command to file and what stands in it."""


def typed() -> list[Command]:
    """Return the commands that are to be typed."""
    return [each for page in PAGES for each in commands.of(page) if each.text not in PROVEN]
