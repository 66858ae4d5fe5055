"""The Events of this service, with KubeRay's texts where it has them (spec rayservice §13.4)."""

from common.api.event import normal, warning
from common.kube.resources import GATEWAY
from common.runtime.actions import ActionEvents
from traffic_manager.reasons import EventReason


def created(kind: str, where: str) -> ActionEvents:
    """Return the events of a new Gateway or route; `where` is `<namespace>/<name>`."""
    which = kind if kind == GATEWAY.kind else f"the {kind}"
    return ActionEvents(
        success=normal(EventReason(f"Created{kind}"), "Create", f"Created {kind} for RayService {where}"),
        failure=warning(
            EventReason(f"FailedToCreate{kind}"), "Create", f"Failed to create {which} for RayService {where}: "
        ),
    )


def updated(kind: str, where: str) -> ActionEvents:
    """Return the events of a changed Gateway or route."""
    text = f"the {kind} {where}"
    return ActionEvents(
        success=normal(EventReason(f"Updated{kind}"), "Update", f"Updated {text}"),
        failure=warning(EventReason(f"FailedToUpdate{kind}"), "Update", f"Failed to update {text}: "),
    )


def deleted(kind: str, where: str, *, suspending: bool = True) -> ActionEvents:
    """Return the events of the deletion of a Gateway or route, with a suspend or by itself."""
    text = f"the {kind} {where}{' during suspend' if suspending else ''}"
    return ActionEvents(
        success=normal(EventReason(f"Deleted{kind}"), "Delete", f"Deleted {text}"),
        failure=warning(EventReason(f"FailedToDelete{kind}"), "Delete", f"Failed to delete {text}: "),
    )


def config_sent(where: str) -> ActionEvents:
    """Return the events of a Serve config that is sent."""
    text = f"serve applications to the RayCluster {where}"
    return ActionEvents(
        success=normal(EventReason.UPDATED_APPLICATIONS, "Update", f"Updated {text}"),
        failure=warning(EventReason.FAILED_TO_UPDATE_APPLICATIONS, "Update", f"Failed to update {text}: "),
    )


def config_restored(where: str, difference: str) -> ActionEvents:
    """Return the events of a Serve config that is sent again, because Serve ran another one than the cluster was given."""
    note = f"RayCluster {where} runs another Serve config than the recorded one ({difference}); it gets the recorded one again"
    return ActionEvents(
        success=warning(EventReason.SERVE_CONFIG_DRIFTED, "Update", note),
        failure=config_sent(where).failure,
    )


def capacity_sent(where: str) -> ActionEvents:
    """Return the events of a capacity that is sent; the doubled "to" is KubeRay's."""
    text = "target_capacity of serve applications to"
    return ActionEvents(
        success=normal(EventReason.UPDATED_CAPACITY, "Update", f"Updated {text} to the RayCluster {where}"),
        failure=warning(
            EventReason.FAILED_TO_UPDATE_CAPACITY, "Update", f"Failed to update {text} the RayCluster {where}: "
        ),
    )
