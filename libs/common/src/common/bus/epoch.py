"""The installation that a marker of the state stream belongs to: pure.

An epoch is the watcher's installation and a random part: `<uid of the cluster>/<namespace>/<random>`. Two installations on
one stream would take each other's objects for their own, so the watcher of the second refuses to write, and readers refuse to
decide. An installation that could not be learnt is empty, and so is that of an older watcher: then nothing is refused.
"""

from typing import Final

FOREIGN: Final = "the state stream is that of another raybus"


def new(installation: str, random: str) -> str:
    """Return a new epoch."""
    return f"{installation}/{random}" if installation else random


def installation_of(epoch: str) -> str:
    """Return the installation of an epoch; empty when it is unknown."""
    return epoch.rpartition("/")[0]


def foreign(epoch: str, ours: str) -> str | None:
    """Return what is wrong with an epoch that is not of our installation, and the remedy; None when it is ours or unknown."""
    theirs = installation_of(epoch)
    if not theirs or not ours or theirs == ours:
        return None
    return (
        f"{FOREIGN} (cluster and namespace {theirs}, we are {ours}): give each its own NATS by RAYBUS_NATS_URL, or delete "
        "the stream RAY_STATE if the other one is gone"
    )
