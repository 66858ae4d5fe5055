"""What only this service's plans ask for; `execute.py` does it. All other actions are in `common.runtime.actions`.

Three chains do not depend on one another: routes with the Services that they send to, and capacities with their record; the Gateway;
Serve configs. So a Gateway that is refused keeps no cluster from its config, and a config that is refused moves no route.
"""

from typing import Final

from common.ray.submit import Submit
from common.runtime.actions import Action, Patch

GATEWAY: Final = "gateway"
CONFIGS: Final = "configs"
BACKENDS: Final = "backends"


class MoveCapacity(Action, frozen=True, kw_only=True):
    """Send clusters their capacities and, once all of them accepted, write the record."""

    submits: tuple[Submit, ...]
    record: Patch

    def __str__(self) -> str:
        sent = ", ".join(f"{each.cluster.metadata.name} {each.capacity}" for each in self.submits)
        return f"move capacity: {sent or 'only recorded'}"
