"""The Events of this service, in KubeRay's words where it has some (spec rayservice §13.4)."""

from common.api.event import normal, warning
from common.kube.resources import GATEWAY
from traffic_manager.actions import Told
from traffic_manager.reasons import EventReason


def created(kind: str, where: str) -> Told:
    """Tell of a new Gateway or route; `where` is `<namespace>/<name>`."""
    which = kind if kind == GATEWAY.kind else f"the {kind}"
    return Told(
        done=normal(EventReason(f"Created{kind}"), "Create", f"Created {kind} for RayService {where}"),
        failed=warning(
            EventReason(f"FailedToCreate{kind}"), "Create", f"Failed to create {which} for RayService {where}: "
        ),
    )


def updated(kind: str, where: str) -> Told:
    """Tell of a changed Gateway or route."""
    text = f"the {kind} {where}"
    return Told(
        done=normal(EventReason(f"Updated{kind}"), "Update", f"Updated {text}"),
        failed=warning(EventReason(f"FailedToUpdate{kind}"), "Update", f"Failed to update {text}: "),
    )


def deleted(kind: str, where: str, *, suspending: bool = True) -> Told:
    """Tell of a Gateway or route that goes, with a suspend or by itself."""
    text = f"the {kind} {where}{' during suspend' if suspending else ''}"
    return Told(
        done=normal(EventReason(f"Deleted{kind}"), "Delete", f"Deleted {text}"),
        failed=warning(EventReason(f"FailedToDelete{kind}"), "Delete", f"Failed to delete {text}: "),
    )


def config_sent(where: str) -> Told:
    """Tell of a Serve config that was sent."""
    text = f"serve applications to the RayCluster {where}"
    return Told(
        done=normal(EventReason.UPDATED_APPLICATIONS, "Update", f"Updated {text}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_APPLICATIONS, "Update", f"Failed to update {text}: "),
    )


def config_restored(where: str, difference: str) -> Told:
    """Tell of a Serve config that was sent again, because Serve ran another one than the cluster was given."""
    note = f"RayCluster {where} runs another Serve config than the recorded one ({difference}); it gets the recorded one again"
    return Told(
        done=warning(EventReason.SERVE_CONFIG_DRIFTED, "Update", note),
        failed=config_sent(where).failed,
    )


def capacity_sent(where: str) -> Told:
    """Tell of a capacity that was sent; the doubled "to" is KubeRay's."""
    text = "target_capacity of serve applications to"
    return Told(
        done=normal(EventReason.UPDATED_CAPACITY, "Update", f"Updated {text} to the RayCluster {where}"),
        failed=warning(
            EventReason.FAILED_TO_UPDATE_CAPACITY, "Update", f"Failed to update {text} the RayCluster {where}: "
        ),
    )
