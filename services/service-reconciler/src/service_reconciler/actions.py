"""Actions that only the plans of this service contain; `execute.py` executes them.

All other actions are in `common.runtime.actions`.
"""

from collections.abc import Mapping

from common.api.meta import Condition, ObjectMeta
from common.api.ray_service import RayServiceStatus
from common.kube.resources import Resource
from common.ray.goal_revision import HashedGoal
from common.runtime.actions import Action, ActionEvents, Patch, UpdateStatus


class UpdateServiceStatus(UpdateStatus, frozen=True, kw_only=True):
    """Replace the status of the RayService."""

    status: RayServiceStatus

    def __str__(self) -> str:
        active, pending = self.status.active_service_status, self.status.pending_service_status
        return (
            f"write status: active {active.ray_cluster_name or '-'}, pending "
            f"{pending.ray_cluster_name or '-'}"
        )


class RecordRevision(Action, frozen=True, kw_only=True):
    """Record the spec of the RayService, and the spec that serves until the upgrade is complete.

    If the API server refuses the records, the plan continues without them.
    """

    before: HashedGoal | None
    kept: int
    """Number of older records to keep; the rest are deleted."""

    def __str__(self) -> str:
        return "record the spec"


class ReportPolicy(Action, frozen=True, kw_only=True):
    """Write the conditions of the UpgradePolicy that an upgrade is about to follow.

    If the API server refuses the write, the plan continues without it.
    """

    name: str
    resource_version: str
    conditions: list[Condition]

    def __str__(self) -> str:
        return f"write status of UpgradePolicy {self.name}"


def change_metadata(
    resource: Resource, meta: ObjectMeta, report: ActionEvents, **parts: Mapping[str, str | None]
) -> Patch:
    """Return the action that changes the `labels` or `annotations` of an object.

    None as a value removes the label or annotation. If the write fails, the other actions of the
    plan continue.
    """
    patch = {"metadata": {"resourceVersion": meta.resource_version, **parts}}
    return Patch(resource=resource, name=meta.name, patch=patch, events=report, is_side=True)
