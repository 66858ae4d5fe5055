"""What to do now for one RayCluster: a pure function of what was observed.

`PHASES` is the order (spec raycluster §6, §9.1). Each phase adds steps to the plan, or stops: then those after it do nothing now. A
step that fails ends the plan, unless it is a side step; so no pod is made without its Service.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec

from cluster_reconciler import batch, children, events, limits, redis_cleanup, refusals
from cluster_reconciler.actions import ClusterPlan, CreateWorker, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import deletion, groups, head, multi_host, suspend, upgrade, workers
from cluster_reconciler.pods.groups import GroupDecision, Place
from cluster_reconciler.pods.head import HeadMove
from cluster_reconciler.pods.naming import Namer
from cluster_reconciler.pods.suspend import SuspendMove
from cluster_reconciler.pods.upgrade import UpgradeMove
from cluster_reconciler.reasons import ReplicaFailure
from cluster_reconciler.refusals import Refusal
from cluster_reconciler.resources import graceful_drain, head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.status.conditions import Failure, is_reported_unsupported
from common import labels
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import Gate
from common.kube.resources import POD
from common.ray import cluster_traits as traits
from common.runtime.actions import (
    Action,
    ActionEvents,
    Create,
    Delete,
    DeleteCollection,
    EmitEvent,
    IfExists,
    Parallel,
    Patch,
    Refuse,
)
from common.validation import autoscaling
from common.validation import ray_cluster as cluster_rules


class Situation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What phases decide from."""

    observed: Observed
    config: Config
    now: datetime
    token: str
    """The secret of a new auth Secret, drawn by the caller."""

    @property
    def cluster(self) -> RayCluster:
        """Return the RayCluster."""
        return self.observed.cluster

    @cached_property
    def namer(self) -> Namer:
        """Return what draws the names of new pods; it reads the spec, so only once that is known to be valid."""
        return Namer(self.observed, now=self.now)


class Continue(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a phase, after which the next phase decides."""

    actions: tuple[Parallel, ...] = ()
    note: str = ""


class Stop(msgspec.Struct, frozen=True):
    """The end of a plan; its actions follow those of the phases before."""

    plan: ClusterPlan


Phase = Callable[[Situation], Continue | Stop]
NOTHING: Final = Stop(ClusterPlan(writes_status=False, is_periodic=False))


def make(observed: Observed, config: Config, *, now: datetime, token: str = "") -> ClusterPlan:
    """Return what to do now; `token` is the secret of a new auth Secret, drawn by the caller."""
    situation = Situation(observed=observed, config=config, now=now, token=token)
    actions: list[Parallel] = []
    notes: list[str] = []
    for phase in PHASES:
        match phase(situation):
            case Stop(plan):
                note = "; ".join(filter(None, (*notes, plan.note)))
                return msgspec.structs.replace(plan, actions=(*actions, *plan.actions), note=note)
            case Continue(actions=more, note=note):
                actions += more
                notes += [note] if note else []
    return ClusterPlan(actions=tuple(actions), note="; ".join(notes))


def _validate(situation: Situation) -> Continue | Stop:
    """Refuse what is not ours or not valid."""
    cluster = situation.cluster
    refusal = refusals.find(cluster, situation.config)
    if refusal is None:
        return Continue()
    if refusal.event is None or (refusal.unsupported and cluster.metadata.deletion_timestamp is not None):
        return NOTHING
    event = Refuse(event=refusal.event) if refusal.is_retried else EmitEvent(event=refusal.event)
    failure = _failure(refusal)
    return Stop(
        ClusterPlan(
            actions=step(event, *_unsupported(cluster, refusal.unsupported)),
            refusal=failure,
            writes_status=failure is not None,
            is_periodic=False,
        )
    )


def _failure(refusal: Refusal) -> Failure | None:
    """Return what the condition ReplicaFailure reports of a refusal."""
    if refusal.invalid_name:
        return Failure(ReplicaFailure.INVALID_METADATA, refusal.invalid_name)
    return Failure(ReplicaFailure.UNSUPPORTED, refusal.unsupported) if refusal.unsupported else None


def _unsupported(cluster: RayCluster, problem: str) -> tuple[EmitEvent, ...]:
    """Report what is not supported, once: until the condition reports the same."""
    if not problem or is_reported_unsupported(cluster.status, problem):
        return ()
    return (EmitEvent(event=events.unsupported(cluster, problem)),)


def _redis_cleanup(situation: Situation) -> Continue | Stop:
    """Do what the finalizer asks for."""
    cleanup = redis_cleanup.plan(situation.observed, situation.config, now=situation.now)
    return Continue() if cleanup is None else Stop(cleanup)


def _leave_deleted(situation: Situation) -> Continue | Stop:
    """Leave a deleted cluster to the garbage collector."""
    return Continue() if situation.cluster.metadata.deletion_timestamp is None else NOTHING


def _warn(situation: Situation) -> Continue:
    """Report what is allowed and unwise, or not supported."""
    cluster, config = situation.cluster, situation.config
    found: list[Action] = []
    if problem := autoscaling.v1_with_restarting_workers(cluster):
        found.append(EmitEvent(event=events.spec_warning(cluster, problem)))
    found += _unsupported(cluster, cluster_rules.unsupported(cluster, config.gates))
    if graceful_drain.is_asked_for(cluster, config) and (problem := graceful_drain.obstacle(cluster)):
        found.append(EmitEvent(event=events.graceful_drain_unavailable(cluster, problem)))
    return Continue(actions=step(*found, is_side=True))


def _children(situation: Situation) -> Continue | Stop:
    """Create what pods need."""
    actions = children.steps(situation.observed, situation.config, token=situation.token)
    if problem := children.left_behind(situation.observed):
        return Stop(ClusterPlan(actions=actions, fault=problem, note=problem))
    return Continue(actions=actions)


def _suspend(situation: Situation) -> Continue | Stop:
    """Delete all pods of a cluster that is to be suspended; do nothing for a suspended one."""
    has_conditions = situation.config.has(Gate.STATUS_CONDITIONS)
    match suspend.decide(situation.observed, has_conditions=has_conditions):
        case SuspendMove.WAIT:
            return Stop(ClusterPlan(note="suspended: pods are left alone"))
        case SuspendMove.DELETE_ALL:
            action = _delete_all(situation.cluster, events.suspended(situation.cluster))
            return Stop(ClusterPlan(actions=step(action), note="suspending: all pods go"))
        case SuspendMove.GO_ON:
            return Continue()


def _protect(situation: Situation) -> Continue | Stop:
    """Make no pod without the protection that the spec asks for."""
    problem = cluster_rules.missing_protection(situation.cluster, situation.config.gates)
    return _left_alone(ReplicaFailure.UNSUPPORTED, problem) if problem else Continue()


def _limit(situation: Situation) -> Continue | Stop:
    """Make no pod of a cluster that is larger than the operator's limits."""
    problem = limits.exceeded(situation.cluster, situation.config)
    if not problem:
        return Continue()
    event = EmitEvent(event=events.limit_exceeded(situation.cluster, problem))
    return _left_alone(ReplicaFailure.LIMIT_EXCEEDED, problem, event)


def _left_alone(reason: ReplicaFailure, problem: str, *warnings: EmitEvent) -> Stop:
    note = f"pods are left alone: {problem}"
    actions = step(*warnings, is_side=True)
    return Stop(ClusterPlan(actions=actions, refusal=Failure(reason, problem), is_periodic=False, note=note))


def _recreate(situation: Situation) -> Continue | Stop:
    """Delete all pods when the spec changed and `upgradeStrategy` is Recreate."""
    match upgrade.decide(situation.observed, situation.config.version):
        case UpgradeMove.RECREATE:
            action = _delete_all(situation.cluster, events.recreated(situation.cluster))
            return Stop(ClusterPlan(actions=step(action), note="the spec changed: all pods go"))
        case UpgradeMove.WAIT:
            return Stop(ClusterPlan(note="the spec changed: waiting for the old pods to go"))
        case UpgradeMove.REFRESH:
            return Continue(actions=step(_refresh(situation), is_side=True))
        case UpgradeMove.GO_ON:
            return Continue()


def _submit_to_batch_scheduler(situation: Situation) -> Continue | Stop:
    """Announce the cluster to the batch scheduler before any pod is made."""
    submission = batch.scheduler(situation.config).submit(situation.observed)
    actions, problem = step(*submission.actions), submission.waits_for
    return Stop(ClusterPlan(actions=actions, fault=problem, note=problem)) if problem else Continue(actions=actions)


def _head(situation: Situation) -> Continue | Stop:
    """Create, delete or keep the head."""
    decision = head.decide(situation.observed)
    note = f"head: {decision.note}"
    match decision.move:
        case HeadMove.FAIL:
            return Stop(ClusterPlan(fault=decision.note, note=note))
        case HeadMove.STOP:
            return Stop(ClusterPlan(note=note))
        case HeadMove.DELETE if decision.pod is not None:
            report = events.deleted_head(decision.pod, deletion.state(decision.pod))
            meta = decision.pod.metadata
            actions = step(Delete(resource=POD, name=meta.name, uid=meta.uid, events=report))
            return Stop(ClusterPlan(actions=actions, unfinished=decision.note, note=note))
        case HeadMove.CREATE:
            return Continue(actions=(Parallel(actions=(_create_head(situation),), starts_slowly=True),), note=note)
        case _:
            return Continue(note=note)


def _workers(situation: Situation) -> Stop:
    """Create and delete workers, one batch at most."""
    steps, notes, unfinished = list[Parallel](), list[str](), ""
    room, is_partial = limits.BATCH, False
    for group in traits.worker_groups(situation.cluster):
        decision = _decide_group(situation, group, room=room)
        notes.append(f"group {group.group_name}: {decision.note}")
        unfinished = unfinished or decision.unfinished
        room -= decision.size
        steps += step(*_deletions(situation.cluster, group, decision), is_side=True)
        created = tuple(_create_worker(situation, group, place) for place in decision.creations)
        if created:
            steps.append(Parallel(actions=created, is_side=True, starts_slowly=True))
        is_partial = decision.is_partial or room <= 0
        if is_partial:
            notes.append("the rest follows in the next batch")
            break
    plan = ClusterPlan(actions=tuple(steps), note="; ".join(notes), unfinished=unfinished, is_partial=is_partial)
    return Stop(msgspec.structs.replace(plan, requeue_at=situation.now if is_partial else None))


PHASES: Final[tuple[Phase, ...]] = (
    _validate,
    _redis_cleanup,
    _leave_deleted,
    _warn,
    _children,
    _suspend,
    _protect,
    _limit,
    _recreate,
    _submit_to_batch_scheduler,
    _head,
    _workers,
)


def _decide_group(situation: Situation, group: WorkerGroupSpec, *, room: int) -> GroupDecision:
    observed, config = situation.observed, situation.config
    has_indexes = config.has(Gate.MULTI_HOST_INDEXING)
    may_shrink = groups.may_shrink(observed, deletes_random_pods=config.deletes_random_pods)
    if group.num_of_hosts > 1 and has_indexes:
        return multi_host.decide(observed, group, may_shrink=may_shrink, room=room)
    return workers.decide(observed, group, may_shrink=may_shrink, has_indexes=has_indexes, room=room)


def _deletions(cluster: RayCluster, group: WorkerGroupSpec, decision: GroupDecision) -> tuple[Action, ...]:
    if decision.deletes_all:
        selector = {labels.CLUSTER: cluster.metadata.name, labels.GROUP: group.group_name}
        report = events.deleted_group(cluster, group.group_name)
        return (DeleteCollection(resource=POD, selector=selector, events=report),)
    return tuple(
        Delete(
            resource=POD,
            name=gone.pod.metadata.name,
            uid=gone.pod.metadata.uid,
            events=events.deleted_worker(gone.pod, what=gone.what, more=gone.more, failed_more=gone.failed_more),
        )
        for gone in decision.deletions
    )


def _delete_all(cluster: RayCluster, report: ActionEvents) -> DeleteCollection:
    return DeleteCollection(resource=POD, selector={labels.CLUSTER: cluster.metadata.name}, events=report)


def _create_head(situation: Situation) -> Create:
    cluster, config = situation.cluster, situation.config
    name = situation.namer.pod(head_pod.name_prefix(cluster), labels.HEAD_GROUP)
    body = head_pod.build(cluster, config, name=name)
    body["metadata"]["annotations"] = {
        **body["metadata"].get("annotations", {}),
        **upgrade.marks(cluster, config.version),
    }
    batch.scheduler(config).mark(cluster, labels.HEAD_GROUP, body)
    report = events.created_head(cluster, body["metadata"]["name"])
    return Create(resource=POD, body=body, events=report, if_exists=IfExists.NEED_OWN)


def _create_worker(situation: Situation, group: WorkerGroupSpec, place: Place) -> CreateWorker:
    cluster, namer = situation.cluster, situation.namer
    prefix = worker_pod.name_prefix(cluster, group)
    replica_name: str | None = None
    index = place.index or 0
    if place.is_part:
        name, replica_name = namer.host(prefix, group.group_name, index, place.host, groups.hosts(group))
    else:
        name = namer.pod(prefix, group.group_name, str(index))
    replica = ReplicaIndex(index, place.host, replica_name)
    return CreateWorker(name=name, group=group, replica=replica, events=events.created_worker(cluster, name))


def _refresh(situation: Situation) -> Patch:
    meta = situation.observed.heads[0].metadata
    marks = upgrade.marks(situation.cluster, situation.config.version)
    changed = {"resourceVersion": meta.resource_version, "annotations": marks}
    return Patch(resource=POD, name=meta.name, patch={"metadata": changed})
