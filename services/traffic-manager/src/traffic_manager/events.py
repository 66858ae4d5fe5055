"""The reasons of the Events of this service, KubeRay's where it has them (spec rayservice §13.4)."""

from enum import StrEnum
from typing import Final

from common.api.gateway import HttpRoute
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE
from common.runtime.actions import SILENT, ActionEvents, Report


class EventReason(StrEnum):
    """Reasons of Events beside those of `common.runtime.actions.Report`; all are ours."""

    GATEWAY_API_MISSING = "GatewayAPIMissing"
    GRPC_ROUTE_UNSUPPORTED = "GRPCRouteUnsupported"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    TRAFFIC_SHIFTED = "TrafficShifted"
    GATE_PASSED = "GatePassed"
    GATE_FAILED = "GateFailed"
    MIRROR_UNSUPPORTED = "MirrorUnsupported"
    TRAFFIC_NOT_CARRIED = "TrafficNotCarried"
    UPGRADE_CANNOT_PROGRESS = "UpgradeCannotProgress"


CREATED: Final = {
    each: Report(
        "Create",
        each.kind,
        f"{each.kind} for RayService {{}}",
        failed=f"Failed to create {article}{each.kind} for RayService {{}}: ",
    )
    for each, article in ((GATEWAY, ""), (HTTP_ROUTE, "the "), (GRPC_ROUTE, "the "))
}
"""Of the Gateway and the weighted routes, by their names; KubeRay has the article in one of them."""
SIDE_ROUTE_CREATED: Final = Report("Create", HTTP_ROUTE.kind, f"the {HTTP_ROUTE.kind} {{}}")
UPDATED: Final = {each: Report("Update", each.kind, f"the {each.kind} {{}}") for each in CREATED}
DELETED: Final = {each: Report("Delete", each.kind, f"the {each.kind} {{}}") for each in CREATED}
SUSPENDED: Final = {each: Report("Delete", each.kind, f"the {each.kind} {{}} during suspend") for each in CREATED}
CAPACITY_SENT: Final = Report(
    "Update",
    "ServeTargetCapacity",
    "target_capacity of serve applications to to the RayCluster {}",
    failed="Failed to update target_capacity of serve applications to the RayCluster {}: ",
    failed_kind="TargetCapacity",
)
"""The doubled "to" is KubeRay's."""


def route_patched(have: HttpRoute, patch: Json) -> ActionEvents:
    """Return the Events of a patch of an HTTPRoute; one of the record alone has none."""
    return UPDATED[HTTP_ROUTE].of(have.metadata.namespaced_name) if "spec" in patch else SILENT
