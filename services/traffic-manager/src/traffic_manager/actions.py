"""The action that only this service has, and the chains of its plans; all other actions are in `common.runtime.actions`.

Chains of a plan do not depend on one another: routes with the Services that they send to, and capacities with their record (`MAIN`, and
`BACKENDS` while there are two clusters); the Gateway; Serve configs (`common.ray.submit`); the routes beside the weighted one. So a Gateway
that is refused keeps no cluster from its config, and a config that is refused moves no route.
"""

from typing import Final

from common.ray.submit import Submit
from common.runtime.actions import Action, Patch

GATEWAY: Final = "gateway"
BACKENDS: Final = "backends"
SIDE_ROUTES: Final = "side routes"


class MoveCapacity(Action, frozen=True, kw_only=True):
    """Send clusters their capacities and, once all of them accepted, write the record."""

    submits: tuple[Submit, ...]
    record: Patch

    def __str__(self) -> str:
        sent = ", ".join(f"{each.cluster.metadata.name} {each.capacity}" for each in self.submits)
        return f"move capacity: {sent or 'only recorded'}"
