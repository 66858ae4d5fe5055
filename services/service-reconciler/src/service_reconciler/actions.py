"""What only this service's plans ask for; `execute.py` does it. All other actions are in `common.runtime.actions`."""

from collections.abc import Mapping
from datetime import datetime

from common.api.meta import Condition, ObjectMeta
from common.api.ray_service import RayServiceStatus
from common.kube.resources import Resource
from common.ray.goal_revision import Spec
from common.runtime.actions import Action, ActionEvents, Patch, UpdateStatus
from common.upgrade import events
from common.upgrade.events import Data


class UpdateServiceStatus(UpdateStatus, frozen=True, kw_only=True):
    """Replace the RayService's status."""

    status: RayServiceStatus

    def __str__(self) -> str:
        active, pending = self.status.active_service_status, self.status.pending_service_status
        return f"write status: active {active.ray_cluster_name or '-'}, pending {pending.ray_cluster_name or '-'}"


class RecordRevision(Action, frozen=True, kw_only=True):
    """Record what the RayService asks for, and what serves until then; one that is refused holds nothing up."""

    before: Spec | None
    kept: int
    """How many records of earlier specs may stay."""

    def __str__(self) -> str:
        return "record the spec"


class ReportPolicy(Action, frozen=True, kw_only=True):
    """Write the conditions of the UpgradePolicy that an upgrade is to follow; one that is refused holds nothing up."""

    name: str
    resource_version: str
    conditions: list[Condition]

    def __str__(self) -> str:
        return f"write status of UpgradePolicy {self.name}"


class Publish(Action, frozen=True, kw_only=True):
    """Publish a step of an upgrade, once in the life of a process; what follows makes it past."""

    data: Data
    facts: tuple[object, ...] = ()
    """What is durable and distinguishes the event from others of its kind in the same upgrade."""
    at: datetime

    @property
    def id(self) -> str:
        """Return the event's id, which is the same when it is repeated."""
        return events.identity(self.data, *self.facts)

    def __str__(self) -> str:
        return f"publish {self.data.kind} {self.data.upgrade.old or '-'} -> {self.data.upgrade.new}"


def change_metadata(
    resource: Resource, meta: ObjectMeta, report: ActionEvents, **parts: Mapping[str, str | None]
) -> Patch:
    """Return a change of an object's `labels` or `annotations`; nothing else in the plan depends on it."""
    patch = {"metadata": {"resourceVersion": meta.resource_version, **parts}}
    return Patch(resource=resource, name=meta.name, patch=patch, events=report, is_side=True)
