"""The annotations that each verb sets or removes (docs/upgrade-controls.md), and the states without anything to act on.

Abort and promote name the present generation, so that they do not affect the next change of the spec.
"""

from typing import Final

import msgspec

from common import conditions, errors, labels
from common.api.ray_service import RayService
from common.upgrade import controls as upgrade_controls

DEADLINE: Final = "ProgressDeadlineExceeded"


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, and the message to the user."""

    annotations: dict[str, str | None]
    """None removes one."""
    message: str


def expect_ours(service: RayService) -> None:
    """Raise `Rejected` for a RayService of another controller: nothing reads what is written there."""
    owner = service.manager
    if owner != labels.MANAGED_BY_US:
        raise errors.Rejected(
            f"spec.managedBy of RayService {service.metadata.name} is {owner}, so raybus does not manage it; use that controller, or see "
            f"'raybus explain {service.metadata.name}'"
        )


def pause(service: RayService) -> Action:
    """Pause the upgrade; without an upgrade this holds for the next one."""
    message = (
        "the upgrade is paused" if _is_upgrading(service) else "no upgrade is in progress; the next upgrade will wait"
    )
    return Action(
        annotations={labels.PAUSE: "true"}, message=f"{message}; 'raybus resume {service.metadata.name}' resumes it"
    )


def resume(service: RayService) -> Action:
    """Resume the upgrade."""
    name, held = service.metadata.name, conditions.find(service.status.conditions, "UpgradePaused")
    is_asked = labels.PAUSE in service.metadata.annotations
    if not is_asked and held is not None and held.status == "True" and held.reason == DEADLINE:
        raise errors.Rejected(
            f"the upgrade is paused by its deadline ({labels.ON_DEADLINE}: Pause): correct the cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}', or set {labels.ON_DEADLINE} to Wait"
        )
    if not is_asked:
        raise errors.Rejected(f"RayService {name} is not paused; see 'raybus get rayservice {name}'")
    message = "the upgrade is resumed" if _is_upgrading(service) else "the next upgrade will not wait"
    return Action(annotations={labels.PAUSE: None}, message=message)


def promote(service: RayService) -> Action:
    """Skip the remaining steps of this generation, and end a pause, which would hold for the next upgrade."""
    name = service.metadata.name
    aborted = _aborted(service)
    if aborted is not None and aborted != DEADLINE:
        raise errors.Rejected(
            f"the upgrade is aborted, which takes precedence; 'raybus retry {name}' withdraws the abort"
        )
    if aborted is None and not _is_upgrading(service):
        raise errors.Rejected(f"RayService {name} has no upgrade to promote; see 'raybus get rayservice {name}'")
    ended = "the pause ends, and " if upgrade_controls.of(service).pauses else ""
    message = f"{ended}the remaining steps are skipped; traffic moves as the ready capacity of the new cluster allows"
    annotations = {labels.PROMOTE: str(service.metadata.generation), labels.PAUSE: None}
    return Action(annotations=_without_absent(service, annotations), message=message)


def abort(service: RayService) -> Action:
    """Abort this generation; the service rolls back to its active cluster."""
    name = service.metadata.name
    if not _is_upgrading(service):
        raise errors.Rejected(
            f"RayService {name} has no upgrade to abort; 'raybus undo {name}' restores the spec before this one"
        )
    active = service.status.active_service_status.ray_cluster_name
    message = f"generation {service.metadata.generation} is aborted; the service rolls back to RayCluster {active}"
    annotations = {labels.ABORT: str(service.metadata.generation), labels.PROMOTE: None}
    return Action(annotations=_without_absent(service, annotations), message=message)


def retry(service: RayService) -> Action:
    """Withdraw an abort and retry the same spec."""
    name = service.metadata.name
    if labels.ABORT in service.metadata.annotations:
        return Action(annotations={labels.ABORT: None}, message=f"generation {service.metadata.generation} is retried")
    if _aborted(service) == DEADLINE:
        raise errors.Rejected(
            f"generation {service.metadata.generation} was aborted at its deadline: correct the cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}' retries it without steps, and any edit of the spec with steps"
        )
    raise errors.Rejected(f"no upgrade of RayService {name} is aborted; see 'raybus get rayservice {name}'")


def _is_upgrading(service: RayService) -> bool:
    status = service.status
    return bool(status.active_service_status.ray_cluster_name and status.pending_service_status.ray_cluster_name)


def _aborted(service: RayService) -> str | None:
    """Return why an upgrade is aborted now."""
    found = conditions.find(service.status.conditions, "UpgradeAborted")
    return found.reason if found is not None and found.status == "True" else None


def _without_absent(service: RayService, wanted: dict[str, str | None]) -> dict[str, str | None]:
    held = service.metadata.annotations
    return {name: value for name, value in wanted.items() if value is not None or name in held}
