"""What a plan may ask for; `apply.py` carries it out, in order.

Three chains do not depend on one another: routes with the Services that they send to, and capacities with their record; the Gateway;
Serve configs. So a Gateway that is refused keeps no cluster from its config, and a config that is refused moves no route.
"""

from typing import Final

from common.api.ray_cluster import RayCluster
from common.kube.actions import MAIN, SILENT, Change, Create, Delete, Tell, Told, Write
from common.ray.revision import Given

__all__ = [
    "BACKENDS",
    "CONFIGS",
    "GATEWAY",
    "MAIN",
    "SILENT",
    "Action",
    "Change",
    "Create",
    "Delete",
    "MoveCapacity",
    "Submit",
    "Tell",
    "Told",
]


GATEWAY: Final = "gateway"
CONFIGS: Final = "configs"
BACKENDS: Final = "backends"


class Submit(Write, frozen=True, kw_only=True):
    """Send a Serve config with a capacity to a cluster; what is given is recorded before it, the outcome after it."""

    cluster: RayCluster
    given: Given
    after: int = 0
    """The number of the cluster's newest record when this was decided."""
    capacity: int

    @property
    def is_optional(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"send the Serve config to {self.cluster.metadata.name} with capacity {self.capacity}"


class MoveCapacity(Write, frozen=True, kw_only=True):
    """Tell clusters their capacities and, once all of them accepted, write the record."""

    submits: tuple[Submit, ...]
    record: Change

    def __str__(self) -> str:
        sent = ", ".join(f"{each.cluster.metadata.name} {each.capacity}" for each in self.submits)
        return f"move capacity: {sent or 'only recorded'}"


Action = Create | Change | Delete | Submit | MoveCapacity | Tell
