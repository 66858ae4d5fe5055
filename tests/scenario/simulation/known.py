"""What the services are known to break, with the reason; whoever fixes one deletes its lines.

`make simulate` counts known laws apart and says which of them did not occur any more; any other broken law fails it. The cases of
`issue_f` that are open are expected to break their law; all others must hold.
"""

from typing import Final

KNOWN: Final[dict[str, str]] = {
    "deleted": "a cluster is deleted with requests in flight in the case F.16, not looked into yet",
    "frozen": "a Serve config that is reverted together with the cluster spec is sent before the status shows the end of the upgrade",
    "parity": "the simulated head reports no autoscaling config, so parity does not know that it is autoscaled",
    "surge": "the active cluster flaps: it is well again when the pending one grows in its place",
}
OPEN: Final[frozenset[str]] = frozenset({"capacity parity"})
"""Cases of `issue_f` that are not fixed yet."""
