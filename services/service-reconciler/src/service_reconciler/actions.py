"""What a plan may ask for. `apply.py` carries these out, in order, and is the only module that writes."""

from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayServiceStatus
from common.kube.actions import SILENT, Change, Create, Delete, Tell, Told, Write
from common.ray.revision import Given
from common.upgrade_events import Event
from service_reconciler.resources.goal_revision import Spec

__all__ = [
    "SILENT",
    "Action",
    "Annotate",
    "Change",
    "Create",
    "Delete",
    "Publish",
    "Remember",
    "SetFinalizers",
    "Submit",
    "Tell",
    "Told",
    "WriteStatus",
]


class WriteStatus(Write, frozen=True, kw_only=True):
    """Replace the RayService's status; refused when the RayService changed since it was observed."""

    status: RayServiceStatus

    def __str__(self) -> str:
        active, pending = self.status.active_service_status, self.status.pending_service_status
        return f"write status: active {active.ray_cluster_name or '-'}, pending {pending.ray_cluster_name or '-'}"


class SetFinalizers(Write, frozen=True, kw_only=True):
    """Replace the RayService's finalizers, and nothing else of it but what is given here."""

    finalizers: tuple[str, ...]
    cluster_config: Json | None = None
    """A `rayClusterConfig` that means the same as the present one."""

    def __str__(self) -> str:
        return f"set finalizers: {', '.join(self.finalizers) or '-'}"


class Annotate(Write, frozen=True, kw_only=True):
    """Set an annotation of the RayService, and nothing else of it."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"annotate with {self.name}"


class Submit(Write, frozen=True, kw_only=True):
    """Send a Serve config to a cluster, recorded before and after; a failure is the user's to correct."""

    cluster: RayCluster
    given: Given
    after: int = 0
    """The number of the cluster's newest record when this was decided."""

    @property
    def is_optional(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"send the Serve config to {self.cluster.metadata.name}"


class Remember(Write, frozen=True, kw_only=True):
    """Record what the RayService asks for, and what serves until then; one that is refused holds nothing up."""

    before: Spec | None
    kept: int
    """How many records of earlier specs may stay."""

    def __str__(self) -> str:
        return "record the spec"


class Publish(Write, frozen=True, kw_only=True):
    """Tell outsiders of a step of an upgrade, once in the life of a process; what follows makes it past."""

    event: Event

    def __str__(self) -> str:
        return f"publish {self.event}"


Action = WriteStatus | SetFinalizers | Annotate | Create | Change | Delete | Submit | Remember | Publish | Tell
