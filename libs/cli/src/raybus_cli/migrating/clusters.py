"""Predicts what cluster-reconciler would do with a RayCluster that KubeRay created.

The service's own observer, planner and status functions make the prediction.
"""

from datetime import datetime
from typing import Final

from cluster_reconciler import execute
from cluster_reconciler import plan as planning
from cluster_reconciler.actions import ClusterPlan
from cluster_reconciler.observe import Observer
from cluster_reconciler.observed import Observed
from cluster_reconciler.refusals import find_violation_plan as refusal_of
from cluster_reconciler.status import compute
from common.api import ray_cluster
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.runtime.actions import EmitEvent
from common.runtime.executor import Executed
from common.runtime.key import Key
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import MigrationFinding, Subject

RECONCILED: Final = (
    "see the cause with 'kubectl describe'; if the settings are the same, send a 'raybus bundle'"
)
UNRECONCILED: Final = "KubeRay has not finished with it: wait until it is ready, and check again"


async def judge(cluster: RayCluster, reads: Observer, *, now: datetime) -> Subject:
    """Return what would change on a RayCluster; `reads` observes it as cluster-reconciler would."""
    meta = cluster.metadata
    return findings.build_subject(
        ray_cluster.KIND, meta.namespace, meta.name, await _judge(cluster, reads, now=now)
    )


async def _judge(cluster: RayCluster, reads: Observer, *, now: datetime) -> list[MigrationFinding]:
    meta = cluster.metadata
    refusal = refusal_of(cluster, reads.config)
    if refusal is not None and not refusal.actions:
        return [findings.add_note("belongs to neither operator: spec.managedBy names another one")]
    if refusal is not None:
        reported = (
            action.event.note
            for step in refusal.actions
            for action in step.actions
            if isinstance(action, EmitEvent)
        )
        return _report_refusal(next(reported))
    observed = await reads.observe(Key(meta.namespace, meta.name), now=now)
    if observed is None:
        return []
    plan = planning.make_plan(observed, now=observed.now)
    remedy = RECONCILED if _is_reconciled(observed) else UNRECONCILED
    return [*findings.judge_cluster_plan(plan, remedy), *_compare_status(observed, plan)]


def _report_refusal(note: str) -> list[MigrationFinding]:
    return [
        findings.add_note(
            f"is rejected, as by KubeRay: {note}", "its pods are not changed until it is corrected"
        )
    ]


def _compare_status(observed: Observed, plan: ClusterPlan) -> list[MigrationFinding]:
    """Return the findings about the status fields that the plan would change."""
    outcome = execute.make_outcome(plan, Executed())
    if not plan.writes_status or compute.find_head_violation(observed, outcome) is not None:
        return []
    old = observed.cluster.status
    new = compute.compute(observed, outcome)
    if not compute.has_changed(old, new):
        return []
    fields = ", ".join(_list_changed_fields(old, new))
    if old.state != new.state:
        return [
            findings.report_change(
                f"the status would change: {fields}; state {old.state or 'none'} becomes "
                f"{new.state}",
                UNRECONCILED,
            )
        ]
    return [findings.add_note(f"the status is brought up to date: {fields}")]


def _list_changed_fields(old: RayClusterStatus, new: RayClusterStatus) -> list[str]:
    ignored = {"lastUpdateTime", "observedGeneration", "stateTransitionTimes"}
    return [field for field in findings.list_differing(old, new) if field not in ignored]


def _is_reconciled(observed: Observed) -> bool:
    """Return whether KubeRay has reconciled the present spec and all workers are available."""
    status, meta = observed.cluster.status, observed.cluster.metadata
    is_whole = status.available_worker_replicas == status.desired_worker_replicas
    return status.observed_generation == meta.generation and is_whole
