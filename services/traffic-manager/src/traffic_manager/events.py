"""The Kubernetes Events of traffic-manager, with KubeRay's reasons and texts where they exist.

Source: spec rayservice §13.4.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from common.api.gateway import HttpRoute, mirror_problem
from common.api.opaque import Json
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE
from common.runtime.actions import SILENT, ActionEvents, EventTemplate, KubeEvent, normal, warning
from common.upgrade import traffic_record, weighted_route
from traffic_manager.migration.progression import Judgement
from traffic_manager.migration.state import Split
from traffic_manager.observed import Observed
from traffic_manager.status import gates


class EventReason(StrEnum):
    """Event reasons that KubeRay does not have.

    `EventTemplate` makes the reasons that KubeRay has.
    """

    GATEWAY_API_MISSING = "GatewayAPIMissing"
    GRPC_ROUTE_UNSUPPORTED = "GRPCRouteUnsupported"
    ROUTE_OVERWRITTEN = "HTTPRouteOverwritten"
    TRAFFIC_SHIFTED = "TrafficShifted"
    GATE_PASSED = "GatePassed"
    GATE_FAILED = "GateFailed"
    MIRROR_UNSUPPORTED = "MirrorUnsupported"
    SERVICE_NOT_OWNED = "ServiceNotOwned"
    TRAFFIC_NOT_CARRIED = "TrafficNotCarried"
    UPGRADE_CANNOT_PROGRESS = "UpgradeCannotProgress"


CREATED: Final = {
    resource: EventTemplate(
        "Create",
        resource.kind,
        f"{resource.kind} for RayService {{}}",
        failed=f"Failed to create {article}{resource.kind} for RayService {{}}: ",
    )
    for resource, article in ((GATEWAY, ""), (HTTP_ROUTE, "the "), (GRPC_ROUTE, "the "))
}
"""Event templates for created objects, by resource.

KubeRay's failure text has an article before a route, and none before the Gateway.
"""
SIDE_ROUTE_CREATED: Final = EventTemplate("Create", HTTP_ROUTE.kind, f"the {HTTP_ROUTE.kind} {{}}")
UPDATED: Final = {
    resource: EventTemplate("Update", resource.kind, f"the {resource.kind} {{}}")
    for resource in CREATED
}
DELETED: Final = {
    resource: EventTemplate("Delete", resource.kind, f"the {resource.kind} {{}}")
    for resource in CREATED
}
SUSPENDED: Final = {
    resource: EventTemplate("Delete", resource.kind, f"the {resource.kind} {{}} during suspend")
    for resource in CREATED
}
CAPACITY_SENT: Final = EventTemplate(
    "Update",
    "ServeTargetCapacity",
    "target_capacity of serve applications to to the RayCluster {}",
    failed="Failed to update target_capacity of serve applications to the RayCluster {}: ",
    failed_kind="TargetCapacity",
)
"""Event template for target capacities that were sent. The doubled "to" is in KubeRay's text."""
GATEWAY_API_MISSING: Final = warning(
    EventReason.GATEWAY_API_MISSING,
    "Reconcile",
    "The Gateway API (gateway.networking.k8s.io/v1) is not installed, so traffic cannot move in "
    "steps: "
    "install its CRDs and a gateway controller, or choose upgradeStrategy.type NewCluster",
)
GRPC_ROUTE_MISSING: Final = warning(
    EventReason.GRPC_ROUTE_UNSUPPORTED,
    "Reconcile",
    "The API server knows no GRPCRoute (gateway.networking.k8s.io/v1), so gRPC calls are not "
    "routed; HTTP requests are: "
    "install its CRD to route them too",
)
OLD_HTTP_ROUTE: Final = (
    "the CRD of HTTPRoute is older than Gateway API v1.3 and would have all of them copied; "
    "install a newer one"
)
UPGRADE_CANNOT_PROGRESS: Final = warning(
    EventReason.UPGRADE_CANNOT_PROGRESS,
    "Upgrade",
    "The upgrade cannot progress: maxSurgePercent and stepSizePercent must both be greater than 0",
)


def mirror_unsupported(why: str) -> KubeEvent:
    """Return the warning that an upgrade continues without mirrored requests."""
    return warning(EventReason.MIRROR_UNSUPPORTED, "Upgrade", f"Requests are not mirrored: {why}")


def of_patch(have: HttpRoute, patch: Json) -> ActionEvents:
    """Return the Events for a patch of an HTTPRoute: none if the spec does not change."""
    return UPDATED[HTTP_ROUTE].format(have.metadata.namespaced_name) if "spec" in patch else SILENT


def of_route(observed: Observed, judged: Judgement | None) -> Iterator[KubeEvent]:
    """Yield the Events that accompany a write of the weighted route and its traffic record.

    The text of a warning stays the same from write to write, so that Kubernetes counts repeats.
    """
    service, route = observed.service, observed.route
    if weighted_route.is_users(service) and observed.grpc_port is not None:
        note = (
            f"gRPC calls are not routed: HTTPRoute {weighted_route.name_of(service)} is yours, "
            "and so is its Gateway, "
            "which raybus gives no listener. To have them routed, remove the annotation"
        )
        yield warning(EventReason.GRPC_ROUTE_UNSUPPORTED, "Reconcile", note)
    if observed.overwriter is not None and route is not None:
        note = (
            f"HTTPRoute {route.metadata.namespaced_name}: field manager {observed.overwriter} "
            "replaced spec.rules, and "
            "requests failed until raybus had written its backends again; let that tool leave "
            "spec.rules alone "
            "(docs/how-to/gateway.md, A route in Git)"
        )
        yield warning(EventReason.ROUTE_OVERWRITTEN, "Reconcile", note)
    yield from of_gates(observed, judged)
    yield from _list_mirror_events(observed, judged)


def _list_mirror_events(observed: Observed, judged: Judgement | None) -> Iterator[KubeEvent]:
    """Yield a warning if the upgrade continues without the mirroring that its policy asks for.

    The same plan records the end of the mirroring, so the warning is sent only once.
    """
    upgrade = observed.upgrade
    if judged is None or not judged.has_mirrored or (upgrade and upgrade.mirrored):
        return
    if (why := mirror_problem(observed.gateway_class, observed.route)) is not None:
        yield mirror_unsupported(why)


def of_gates(observed: Observed, judged: Judgement | None) -> Iterator[KubeEvent]:
    """Yield Events for gates that failed or passed since the last write of the traffic record."""
    if judged is None:
        return
    upgrade = observed.upgrade
    if judged.failed is not None and not (upgrade and upgrade.failed):
        yield warning(EventReason.GATE_FAILED, "Upgrade", f"The gate {judged.failed}")
    if passed := gates.list_newly_passed(traffic_record.gates_of(upgrade), judged.results):
        share = observed.record.clusters.get(observed.pending_name)
        note = (
            f"{'Gate' if len(passed) == 1 else 'Gates'} passed at "
            f"{0 if share is None else share.weight} percent: {'; '.join(passed)}"
        )
        yield normal(EventReason.GATE_PASSED, "Upgrade", note)


def traffic_shifted(observed: Observed, split: Split) -> KubeEvent:
    """Return the Event for a change of the traffic weights to those of `split`."""
    old, new = observed.active_name, observed.pending_name
    note = f"{old} gets {split.active} and {new} {split.pending} percent: {split.note}"
    return normal(EventReason.TRAFFIC_SHIFTED, "Upgrade", note)


def of_foreign_services(observed: Observed) -> Iterator[KubeEvent]:
    """Yield an Event for each cluster whose Serve Service belongs to another owner."""
    for view in observed.views:
        if view.serve_service is not None and view.has_foreign_service:
            text = (
                f"Service {view.serve_service.metadata.namespaced_name} exists and is not owned by "
                f"RayCluster {view.name}: delete it"
            )
            yield warning(EventReason.SERVICE_NOT_OWNED, "Reconcile", text)
