"""The release 0.1.0, from which tests upgrade raybus.

It has no tag, so its commit stands for it.
"""

import subprocess
from pathlib import Path
from typing import Final

from support.manifests import ROOT

COMMIT: Final = "410554e5"
"""The commit that cut 0.1.0 in the changelog."""
VERSION: Final = "0.1.0"
SERVICES: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager")
"""The services of 0.1.0, which had no job-reconciler."""
MISSING: Final = f"the clone is shallow and lacks commit {COMMIT}: run `git fetch --unshallow`"
"""Why the release cannot be unpacked."""


def is_known() -> bool:
    """Return whether the clone has the commit; a shallow clone lacks it."""
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return found.returncode == 0


def unpack(folder: Path, *paths: str) -> None:
    """Unpack files and folders of the release into a folder, as `git archive` gives them.

    Without `paths`, unpack all of them. Raises `AssertionError` if the clone lacks the commit.
    """
    assert is_known(), MISSING
    archive = folder / "release.tar"
    command = ["git", "archive", f"--output={archive}", COMMIT, *paths]
    subprocess.run(command, cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", archive], cwd=folder, check=True)
    archive.unlink()
