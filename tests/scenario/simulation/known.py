"""What the services are known to break, with the fault that stands behind it; whoever mends one deletes its lines.

`make simulate` counts known laws apart and says which of them did not occur any more; any other broken law fails it. The cases of
`issue_f` that are open are expected to break their law; all others must hold.
"""

from typing import Final

KNOWN: Final[dict[str, str]] = {
    "alone": "F.12: a capacity below 100 stays after a change of strategy",
    "converge": "F.16: a refused receipt keeps the old cluster",
    "deleted": "F.7: who serves is dropped",
    "endless": "F.9, F.10: a sick or flapping cluster is not told",
    "foreign": "F.5: a backend of another RayService is replaced",
    "frozen": "F.2: the record is older than what Ray accepted",
    "growth": "F.4: a change of route begins with other weights",
    "hot": "F.1: PUTs without back-off while a record is refused",
    "overload": "F.8, F.9, F.10, F.19: health does not move traffic",
    "parity": "capacity parity of autoscaled applications",
    "starved": "F.3, F.4, F.11: capacity below the share",
    "unserved": "F.17: routing blocks the Serve config",
    "version": "F.15: Ray runs something else than is recorded",
}
OPEN: Final[frozenset[str]] = frozenset(
    {
        "F.1",
        "F.2",
        "F.3",
        "F.4",
        "F.5",
        "F.7",
        "F.8",
        "F.9",
        "F.10",
        "F.11",
        "F.12",
        "F.15, a tie of two writers",
        "F.15, carried out late",
        "F.16",
        "F.17",
        "F.19",
        "capacity parity",
    }
)
"""Cases of `issue_f` that are not mended yet."""
