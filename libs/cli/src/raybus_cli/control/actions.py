"""The annotations by which `pause`, `promote` and similar commands act (docs/upgrade-controls.md).

A command is refused in a state in which it has no effect. Abort and promote name the present
generation, so that they do not affect a later change of the spec.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from common import conditions, errors, labels
from common.api.ray_service import RayService
from common.upgrade import controls as upgrade_controls
from common.upgrade.traffic_record import WHOLE

DEADLINE: Final = "ProgressDeadlineExceeded"
GATE: Final = "GateFailed"
BY_POLICY: Final = "PausedByPolicy"
REQUESTED: Final = "PauseRequested"
PAUSED: Final = "UpgradePaused"


class ControlAction(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations that a command writes, and how its effect is recognised."""

    annotations: dict[str, str | None]
    """Annotations to set; None removes an annotation."""
    effect: str
    """Word for the result in the output, in the style of kubectl: `paused`."""
    note: str = ""
    is_dry_run: bool = False
    is_done: Callable[[RayService], bool]
    """Function that returns whether the annotations have taken effect on a RayService read later.
    """


def check_is_managed(service: RayService) -> None:
    """Raise `Rejected` if another controller manages the RayService.

    Such a controller ignores raybus's annotations.
    """
    owner = service.manager
    if owner != labels.MANAGED_BY_US:
        raise errors.Rejected(
            f"spec.managedBy of RayService {service.metadata.name} is {owner}, so raybus does "
            "not manage it; use that controller, or see "
            f"'raybus explain {service.metadata.name}'"
        )


def pause(service: RayService) -> ControlAction:
    """Return the action that pauses the upgrade in progress, or else the next one."""
    return ControlAction(
        annotations={labels.PAUSE: "true"},
        effect="paused",
        note="" if _is_upgrading(service) else "no upgrade is in progress; the next one waits",
        is_done=lambda later: (
            conditions.is_true(later.status.conditions, PAUSED) or not _is_upgrading(later)
        ),
    )


def resume(service: RayService) -> ControlAction:
    """Return the action that resumes the upgrade.

    Raises `Rejected` if the upgrade is not paused, or if a deadline or a failed gate paused it.
    """
    name, paused = service.metadata.name, conditions.find(service.status.conditions, PAUSED)
    is_asked = labels.PAUSE in service.metadata.annotations
    if (
        not is_asked
        and paused is not None
        and paused.status == "True"
        and paused.reason == DEADLINE
    ):
        raise errors.Rejected(
            f"the upgrade is paused by its deadline ({labels.ON_DEADLINE}: Pause): correct the "
            f"cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}', or set {labels.ON_DEADLINE} to Wait"
        )
    if not is_asked and paused is not None and paused.status == "True" and paused.reason == GATE:
        raise errors.Rejected(
            f"the upgrade is paused by a gate that failed ('raybus explain {name}'): 'raybus "
            f"abort {name}' rolls it back, "
            f"'raybus promote {name}' continues without gates"
        )
    if (
        not is_asked
        and paused is not None
        and paused.status == "True"
        and paused.reason == BY_POLICY
    ):
        return _approve_pause(service)
    if not is_asked:
        raise errors.Rejected(
            f"RayService {name} is not paused; see 'raybus get rayservice {name}'"
        )
    return ControlAction(
        annotations={labels.PAUSE: None},
        effect="resumed",
        note=""
        if _is_upgrading(service)
        else "no upgrade is in progress; the next one does not wait",
        is_done=lambda later: not _is_paused_on_request(later),
    )


def _is_paused_on_request(service: RayService) -> bool:
    """Return whether the upgrade is paused by the annotation, not by a policy, deadline or gate."""
    paused = conditions.find(service.status.conditions, PAUSED)
    return paused is not None and (paused.status, paused.reason) == ("True", REQUESTED)


def _approve_pause(service: RayService) -> ControlAction:
    """Return the action that ends a pause which an UpgradePolicy requires.

    Later pauses of the same upgrade remain.
    """
    pending = service.status.pending_service_status
    weight = WHOLE if pending.traffic_routed_percent is None else pending.traffic_routed_percent
    return ControlAction(
        annotations={
            labels.APPROVED_STEP: (
                f"{pending.ray_cluster_name}/{weight}@{service.metadata.generation}"
            )
        },
        effect="resumed",
        note=f"the pause at {weight} percent of the traffic ends",
        is_done=lambda later: not conditions.is_true(later.status.conditions, PAUSED),
    )


def promote(service: RayService) -> ControlAction:
    """Return the action that skips the remaining steps of this generation.

    It also removes a pause by annotation, because the pause would otherwise apply to the next
    upgrade. Raises `Rejected` if there is no upgrade, or if a user aborted it.
    """
    name = service.metadata.name
    aborted = _find_abort_reason(service)
    if aborted not in {None, DEADLINE, GATE}:
        raise errors.Rejected(
            f"the upgrade is aborted, which takes precedence; 'raybus retry {name}' withdraws "
            "the abort"
        )
    if aborted is None and not _is_upgrading(service):
        raise errors.Rejected(
            f"RayService {name} has no upgrade to promote; see 'raybus get rayservice {name}'"
        )
    active = service.status.active_service_status.ray_cluster_name
    ended = "the pause ends; " if upgrade_controls.read_controls(service).pauses else ""
    annotations = {labels.PROMOTE: str(service.metadata.generation), labels.PAUSE: None}
    return ControlAction(
        annotations=_drop_absent(service, annotations),
        effect="promoted",
        note=f"{ended}traffic moves as the ready capacity of the new cluster allows",
        is_done=lambda later: (
            later.status.active_service_status.ray_cluster_name != active
            and not _is_upgrading(later)
        ),
    )


def abort(service: RayService) -> ControlAction:
    """Return the action that aborts the upgrade of this generation, so that it rolls back.

    Raise `Rejected` if there is no upgrade.
    """
    name = service.metadata.name
    if not _is_upgrading(service):
        raise errors.Rejected(
            f"RayService {name} has no upgrade to abort; 'raybus undo {name}' restores the spec "
            "before this one"
        )
    active = service.status.active_service_status.ray_cluster_name
    annotations = {labels.ABORT: str(service.metadata.generation), labels.PROMOTE: None}
    return ControlAction(
        annotations=_drop_absent(service, annotations),
        effect="aborted",
        note=f"generation {service.metadata.generation} rolls back to RayCluster {active}",
        is_done=lambda later: _find_abort_reason(later) is not None and not _is_upgrading(later),
    )


def retry(service: RayService) -> ControlAction:
    """Return the action that withdraws an abort, so that the same spec is tried again.

    Raise `Rejected` if no user has aborted the upgrade.
    """
    name = service.metadata.name
    if labels.ABORT in service.metadata.annotations:
        return ControlAction(
            annotations={labels.ABORT: None},
            effect="retried",
            note=f"generation {service.metadata.generation}",
            is_done=lambda later: _find_abort_reason(later) is None,
        )
    if _find_abort_reason(service) == DEADLINE:
        raise errors.Rejected(
            f"generation {service.metadata.generation} was aborted at its deadline: correct the "
            f"cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}' retries it without steps, and any edit of the spec "
            "with steps"
        )
    if _find_abort_reason(service) == GATE:
        raise errors.Rejected(
            f"generation {service.metadata.generation} was aborted by a gate of its "
            f"UpgradePolicy ('raybus explain {name}'): a corrected "
            f"spec starts a new upgrade, and 'raybus promote {name}' repeats this one without "
            "steps and gates"
        )
    raise errors.Rejected(
        f"no upgrade of RayService {name} is aborted; see 'raybus get rayservice {name}'"
    )


def _is_upgrading(service: RayService) -> bool:
    status = service.status
    return bool(
        status.active_service_status.ray_cluster_name
        and status.pending_service_status.ray_cluster_name
    )


def _find_abort_reason(service: RayService) -> str | None:
    """Return the reason why the upgrade is aborted; None if it is not."""
    aborted = conditions.find(service.status.conditions, "UpgradeAborted")
    return aborted.reason if aborted is not None and aborted.status == "True" else None


def _drop_absent(service: RayService, wanted: dict[str, str | None]) -> dict[str, str | None]:
    annotations = service.metadata.annotations
    return {
        name: value for name, value in wanted.items() if value is not None or name in annotations
    }
