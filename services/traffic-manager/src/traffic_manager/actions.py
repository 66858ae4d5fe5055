"""The action type that only traffic-manager has, and the names of the action chains in its plans.

Actions of different chains do not depend on one another:

- `MAIN`: routes with their backend Services, and capacities with the traffic record
- `BACKENDS`: backend Services while there are two clusters
- `GATEWAY`: the Gateway
- `SIDE_ROUTES`: the routes for previews and mirrored requests that an UpgradePolicy asks for
- a chain of `common.ray.submit`: Serve configs

A rejected Gateway therefore does not delay a Serve config, and a rejected Serve config does not
stop a route.
"""

from typing import Final

from common.ray.submit import Submit
from common.runtime.actions import Action, Patch

GATEWAY: Final = "gateway"
BACKENDS: Final = "backends"
SIDE_ROUTES: Final = "side routes"


class MoveCapacity(Action, frozen=True, kw_only=True):
    """Sends clusters their target capacities. Records them once all clusters have accepted."""

    submits: tuple[Submit, ...]
    record: Patch

    def __str__(self) -> str:
        sent = ", ".join(
            f"{submit.cluster.metadata.name} {submit.capacity}" for submit in self.submits
        )
        return f"move capacity: {sent or 'only recorded'}"
