"""Which annotations each verb sets or takes away (docs/upgrade-controls.md), and when there is nothing for it to act on.

Abort and promote are meant for the generation that is there, so that they do not bear on the next change of the spec.
"""

from typing import Final

import msgspec

from common import errors, labels
from common.api.ray_service import RayService
from raybus_cli.show import phase

DEADLINE: Final = "ProgressDeadlineExceeded"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, and what is said of it."""

    annotations: dict[str, str | None]
    """None takes one away."""
    told: str


def expect_ours(service: RayService) -> None:
    """Raise `Rejected` for a RayService that raybus leaves alone: nobody would heed what is written there."""
    owner = service.raw_spec.get("managedBy", labels.MANAGED_BY_US)
    if owner != labels.MANAGED_BY_US:
        raise errors.Rejected(
            f"spec.managedBy of RayService {service.metadata.name} is {owner}, so raybus leaves it alone; ask that one, or see "
            f"'raybus explain {service.metadata.name}'"
        )


def pause(service: RayService) -> Order:
    """Close the way forward; without an upgrade that holds for the next one."""
    told = "the upgrade is paused" if _is_upgrading(service) else "nothing is upgraded now; the next upgrade will wait"
    return Order(
        annotations={labels.PAUSE: "true"}, told=f"{told}; 'raybus resume {service.metadata.name}' lets it go on"
    )


def resume(service: RayService) -> Order:
    """Open the way forward again."""
    name, held = service.metadata.name, phase.find(service.status.conditions, "UpgradePaused")
    is_asked = labels.PAUSE in service.metadata.annotations
    if not is_asked and held is not None and held.status == "True" and held.reason == DEADLINE:
        raise errors.Rejected(
            f"the upgrade is paused by its deadline ({labels.ON_DEADLINE}: Pause): mend the cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}', or set {labels.ON_DEADLINE} to Wait"
        )
    if not is_asked:
        raise errors.Rejected(f"RayService {name} is not paused; see 'raybus get rayservice {name}'")
    told = "the upgrade goes on" if _is_upgrading(service) else "the next upgrade will not wait"
    return Order(annotations={labels.PAUSE: None}, told=told)


def promote(service: RayService) -> Order:
    """Skip the rest of the steps of this generation."""
    name = service.metadata.name
    aborted = _aborted(service)
    if aborted is not None and aborted != DEADLINE:
        raise errors.Rejected(f"the upgrade is aborted, and that goes first; 'raybus retry {name}' takes it back")
    if aborted is None and not _is_upgrading(service):
        raise errors.Rejected(f"RayService {name} has no upgrade to promote; see 'raybus get rayservice {name}'")
    told = "the rest of the steps is skipped; traffic moves as fast as the new cluster is seen to carry it"
    return Order(annotations={labels.PROMOTE: str(service.metadata.generation)}, told=told)


def abort(service: RayService) -> Order:
    """Give up this generation; the service goes back to its active cluster."""
    name = service.metadata.name
    if not _is_upgrading(service):
        raise errors.Rejected(
            f"RayService {name} has no upgrade to abort; 'raybus undo {name}' goes back to the spec before this one"
        )
    active = service.status.active_service_status.ray_cluster_name
    told = f"generation {service.metadata.generation} is aborted; the service goes back to RayCluster {active}"
    annotations = {labels.ABORT: str(service.metadata.generation), labels.PROMOTE: None}
    return Order(annotations=_without_absent(service, annotations), told=told)


def retry(service: RayService) -> Order:
    """Take an abort back, so that the same spec is tried again."""
    name = service.metadata.name
    if labels.ABORT in service.metadata.annotations:
        return Order(annotations={labels.ABORT: None}, told=f"generation {service.metadata.generation} is tried again")
    if _aborted(service) == DEADLINE:
        raise errors.Rejected(
            f"generation {service.metadata.generation} was given up at its deadline: mend the cause ('raybus explain {name}'), "
            f"then 'raybus promote {name}' tries it again without steps, and any edit of the spec with steps"
        )
    raise errors.Rejected(f"no upgrade of RayService {name} is aborted; see 'raybus get rayservice {name}'")


def _is_upgrading(service: RayService) -> bool:
    status = service.status
    return bool(status.active_service_status.ray_cluster_name and status.pending_service_status.ray_cluster_name)


def _aborted(service: RayService) -> str | None:
    """Return why an upgrade is aborted now."""
    found = phase.find(service.status.conditions, "UpgradeAborted")
    return found.reason if found is not None and found.status == "True" else None


def _without_absent(service: RayService, wanted: dict[str, str | None]) -> dict[str, str | None]:
    held = service.metadata.annotations
    return {name: value for name, value in wanted.items() if value is not None or name in held}
