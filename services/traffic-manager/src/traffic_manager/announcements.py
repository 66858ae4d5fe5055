"""The Events of this service, in KubeRay's words where it has some (spec rayservice §13.4)."""

from common.api.event import normal, warning
from traffic_manager.actions import Told
from traffic_manager.reasons import EventReason


def gateway_created(where: str) -> Told:
    """Tell of a new Gateway; `where` is `<namespace>/<name>`."""
    return Told(
        done=normal(EventReason.CREATED_GATEWAY, "Create", f"Created Gateway for RayService {where}"),
        failed=warning(
            EventReason.FAILED_TO_CREATE_GATEWAY, "Create", f"Failed to create Gateway for RayService {where}: "
        ),
    )


def gateway_updated(where: str) -> Told:
    """Tell of a changed Gateway."""
    return Told(
        done=normal(EventReason.UPDATED_GATEWAY, "Update", f"Updated the Gateway {where}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_GATEWAY, "Update", f"Failed to update the Gateway {where}: "),
    )


def gateway_deleted(where: str) -> Told:
    """Tell of a Gateway that goes with a suspend."""
    text = f"the Gateway {where} during suspend"
    return Told(
        done=normal(EventReason.DELETED_GATEWAY, "Delete", f"Deleted {text}"),
        failed=warning(EventReason.FAILED_TO_DELETE_GATEWAY, "Delete", f"Failed to delete {text}: "),
    )


def route_created(where: str) -> Told:
    """Tell of a new route."""
    return Told(
        done=normal(EventReason.CREATED_ROUTE, "Create", f"Created HTTPRoute for RayService {where}"),
        failed=warning(
            EventReason.FAILED_TO_CREATE_ROUTE, "Create", f"Failed to create the HTTPRoute for RayService {where}: "
        ),
    )


def route_updated(where: str) -> Told:
    """Tell of a changed route."""
    return Told(
        done=normal(EventReason.UPDATED_ROUTE, "Update", f"Updated the HTTPRoute {where}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_ROUTE, "Update", f"Failed to update the HTTPRoute {where}: "),
    )


def route_deleted(where: str) -> Told:
    """Tell of a route that goes with a suspend."""
    text = f"the HTTPRoute {where} during suspend"
    return Told(
        done=normal(EventReason.DELETED_ROUTE, "Delete", f"Deleted {text}"),
        failed=warning(EventReason.FAILED_TO_DELETE_ROUTE, "Delete", f"Failed to delete {text}: "),
    )


def config_sent(where: str) -> Told:
    """Tell of a Serve config that was sent."""
    text = f"serve applications to the RayCluster {where}"
    return Told(
        done=normal(EventReason.UPDATED_APPLICATIONS, "Update", f"Updated {text}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_APPLICATIONS, "Update", f"Failed to update {text}: "),
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
