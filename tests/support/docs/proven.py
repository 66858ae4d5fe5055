"""Commands of the README and the tutorial that other tests run, each with its test.

`tests/e2e/test_tutorial.py` runs all other commands in order.
"""

from typing import Final

from support.docs import commands
from support.docs.commands import Command
from support.manifests import ROOT

PAGES: Final = (ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md")))
"""Pages in the order in which a new user reads them. Tutorial pages begin with a number."""
PROVEN: Final = {
    "make setup": ".ci/run: make setup",
    "make demo": (
        "tests/e2e/test_upgrade.py: test_the_demo_upgrades_under_load_without_a_failed_request"
    ),
    "make test": ".ci/run: make test",
    "raybus cluster down": "tests/support/node.py: demo_cluster.remove_cluster(name)",
    (
        "kubectl apply -k deploy/overlays/production"
    ): "tests/integration/deploy/test_install.py: production",
    (
        "kubectl apply -f my-rayservice.yaml"
    ): "tools/localcluster/src/localcluster/demo/scenario.py: str(self._find_manifest(1))",
}
"""By command: the file that runs the command, and a text in that file."""


def typed() -> list[Command]:
    """Return the commands that the test of the tutorial must run."""
    return [each for page in PAGES for each in commands.of(page) if each.text not in PROVEN]
