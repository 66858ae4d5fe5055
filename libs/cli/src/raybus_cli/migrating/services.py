"""Predicts what service-reconciler and traffic-manager would do with a RayService of KubeRay.

The services' own observers, planners and status functions make the prediction.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from common import labels
from common.api import ray_service
from common.api.ray_service import RayService, RayServiceStatus
from common.clock import Clock
from common.kube.client import Kube
from common.ray.dashboard import Dashboard
from common.ray.serve_status import ServeDetails
from common.runtime.background import Background
from common.runtime.cache import Cache
from common.runtime.key import Key
from common.upgrade.outbound import NoOutbound
from common.upgrade.sources import Sources
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import ActionContext, MigrationFinding, Subject
from service_reconciler import plan as service_plan
from service_reconciler.actions import UpdateServiceStatus
from service_reconciler.observe import Observer as ServiceObserver
from service_reconciler.observed import ClusterView, Observed
from service_reconciler.resources import ray_cluster
from service_reconciler.settings import Config
from service_reconciler.status import compute
from traffic_manager import plan as traffic_plan
from traffic_manager.observe import Observer as TrafficObserver

RECONCILED: Final = "see 'raybus explain'; if the settings are the same, send a 'raybus bundle'"
UNRECONCILED: Final = (
    "KubeRay has not reconciled its spec yet: wait until status.observedGeneration is that of "
    "the spec, and check again"
)


class Observers(msgspec.Struct, frozen=True):
    """The observers of service-reconciler and traffic-manager."""

    service: ServiceObserver
    traffic: TrafficObserver


def build_observers(
    kube: Kube, dashboard: Dashboard, cache: Cache, config: Config, clock: Clock
) -> Observers:
    """Build the observers of both services; they read the objects in `cache`."""
    silent, unasked = (
        Background(idle=True),
        NoOutbound(permits=True),
    )  # no warm-up requests, and no metrics
    sources = Sources(kube, dashboard, cache, clock, background=silent, outbound=unasked)
    return Observers(service=ServiceObserver(sources, config), traffic=TrafficObserver(sources))


async def judge(service: RayService, observers: Observers, *, now: datetime) -> Subject:
    """Return what would change on a RayService if raybus replaced KubeRay's operator."""
    meta = service.metadata
    if service.manager != labels.MANAGED_BY_US:
        notes = [findings.add_note("belongs to neither operator: spec.managedBy names another one")]
        return findings.build_subject(ray_service.KIND, meta.namespace, meta.name, notes)
    key = Key(meta.namespace, meta.name)
    seen = await observers.service.observe(key, now=now)
    traffic = await observers.traffic.observe(key, now=now)
    if seen is None or traffic is None:
        return findings.build_subject(ray_service.KIND, meta.namespace, meta.name, [])
    planned = service_plan.make_plan(seen, now=now)
    actions = [*planned.actions, *traffic_plan.make_plan(traffic, now=now).actions]
    moves = bool(seen.names.pending)
    is_reconciled = service.status.observed_generation == meta.generation
    context = ActionContext(
        moves=moves,
        remedy=RECONCILED if is_reconciled else UNRECONCILED,
        is_held=lambda action: findings.serves(
            _get_details(seen, action.cluster.metadata.name), action
        ),
    )
    notes = [
        *_note_upgrade(seen),
        *_report_silence(seen.active, seen.pending),
        *_check_spec_hash(seen),
        *findings.judge_service_actions(actions, context),
        *_compare_status(
            seen, (action.status for action in actions if isinstance(action, UpdateServiceStatus))
        ),
    ]
    return findings.build_subject(ray_service.KIND, meta.namespace, meta.name, notes)


def _get_details(seen: Observed, cluster: str) -> ServeDetails | None:
    """Return a cluster's Serve state in the observation `seen`; None if it was not reported."""
    views = (
        view for view in (seen.active, seen.pending) if view is not None and view.name == cluster
    )
    return next((view.serve.details for view in views), None)


def _note_upgrade(seen: Observed) -> list[MigrationFinding]:
    """Return a note about an upgrade in progress, with present capacities and traffic shares."""
    active, pending = seen.names.active, seen.names.pending
    if not active or not pending:
        return []
    shares = seen.record.clusters
    parts = [
        f"{name} capacity {shares[name].capacity} %, traffic {shares[name].weight} %"
        for name in (active, pending)
        if name in shares
    ]
    return [
        findings.add_note(
            f"an upgrade is in progress from {active} to "
            f"{pending}{': ' if parts else ''}{'; '.join(parts)}"
        )
    ]


def _report_silence(*views: ClusterView | None) -> list[MigrationFinding]:
    remedy = (
        "you need 'get' on services/proxy, and the API server must reach the head; without an "
        "answer the config is unknown"
    )
    return [
        findings.report_unread(
            f"Serve of RayCluster {view.name} does not report its state: {view.serve.problem}",
            remedy,
        )
        for view in views
        if view is not None and view.serve.problem
    ]


def _check_spec_hash(seen: Observed) -> list[MigrationFinding]:
    """Return a note if the recorded spec hash of a cluster comes from a different algorithm.

    raybus then compares the cluster's spec instead of the hash.
    """
    view = seen.pending or seen.active
    if view is None or not seen.names.active:
        return []
    recorded, goal = (
        view.cluster.metadata.annotations.get(labels.SPEC_HASH, ""),
        ray_cluster.goal_hash(seen.service),
    )
    if recorded == goal:
        return []
    same = seen.match(view)
    return [
        findings.add_note(
            f"the spec hash of RayCluster {view.name} is not that of the spec; by its content it "
            f"is {same}"
        )
    ]


def _compare_status(seen: Observed, written: Iterable[RayServiceStatus]) -> list[MigrationFinding]:
    old = seen.service.status
    collected: list[MigrationFinding] = []
    for new in written:
        fields = findings.list_differing(compute.essence(old), compute.essence(new))
        names = [
            (
                status.active_service_status.ray_cluster_name,
                status.pending_service_status.ray_cluster_name,
            )
            for status in (old, new)
        ]
        text = f"the status is updated: {', '.join(fields)}"
        if names[0] == names[1]:
            collected.append(findings.add_note(text))
        elif names[0][1] and names[1] == (names[0][1], ""):
            collected.append(findings.add_note(f"the upgrade continues: {names[0][1]} is promoted"))
        else:
            collected.append(
                findings.report_change(
                    f"the status would name other clusters: {names[0]} becomes {names[1]}",
                    RECONCILED,
                )
            )
    return collected
