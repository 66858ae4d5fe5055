"""What to do now for one RayCluster: a pure function of what was observed.

`PHASES` is the order (spec raycluster §6, §9.1). Each phase adds steps to the plan, or ends it: then those after it do nothing now. A
step that fails ends the plan, unless it is a side step; so no pod is made without its Service. A cluster within its limits is still
planned in batches of `BATCH` pods, so that its size delays only itself; the table of all limits is in docs/reference/limits.md.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Final

import msgspec

from cluster_reconciler import batch, children, events, redis_cleanup, refusals
from cluster_reconciler.actions import ClusterPlan, CreateWorker, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed
from cluster_reconciler.pods import all_pods, deletion, head, multi_host, workers
from cluster_reconciler.pods.all_pods import AllPods
from cluster_reconciler.pods.head import HeadMove
from cluster_reconciler.pods.naming import Namer
from cluster_reconciler.reasons import ConditionType, ReplicaFailure
from cluster_reconciler.resources import graceful_drain, head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.status.conditions import Failure
from common import conditions, labels
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gate
from common.kube.resources import POD
from common.ray import cluster_traits as traits
from common.runtime.actions import (
    Action,
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

BATCH: Final = 200
"""Worker pods that one plan creates and deletes; a replica of several hosts is never split."""


class Situation(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What phases decide from."""

    observed: Observed
    config: Config
    now: datetime

    @property
    def cluster(self) -> RayCluster:
        return self.observed.cluster

    @cached_property
    def namer(self) -> Namer:
        """Return what draws the names of new pods; it reads the spec, so only once that is known to be valid."""
        return Namer(self.observed, now=self.now)


class Continue(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a phase, after which the next phase decides."""

    actions: tuple[Parallel, ...] = ()
    note: str = ""


Phase = Callable[[Situation], Continue | ClusterPlan]
"""A plan is the end: its actions follow those of the phases before."""
NOTHING: Final = ClusterPlan(writes_status=False, is_periodic=False)


def make(observed: Observed, config: Config, *, now: datetime) -> ClusterPlan:
    """Return what to do now."""
    situation = Situation(observed=observed, config=config, now=now)
    actions, notes, found = list[Parallel](), list[str](), ClusterPlan()
    for phase in PHASES:
        result = phase(situation)
        actions += result.actions
        notes.append(result.note)
        if isinstance(result, ClusterPlan):
            found = result
            break
    return msgspec.structs.replace(found, actions=tuple(actions), note="; ".join(filter(None, notes)))


def _validate(situation: Situation) -> Continue | ClusterPlan:
    """Refuse what is not ours or not valid."""
    cluster, refusal = situation.cluster, refusals.find(situation.cluster, situation.config)
    if refusal is None:
        return Continue()
    failure = refusal.failure
    unsupported = "" if failure is None or failure.is_of_name else failure.problem
    if refusal.event is None or (unsupported and cluster.metadata.deletion_timestamp is not None):
        return NOTHING
    event = Refuse(event=refusal.event) if refusal.is_retried else EmitEvent(event=refusal.event)
    actions = step(event, *_unsupported(cluster, unsupported))
    return ClusterPlan(actions=actions, refusal=failure, writes_status=failure is not None, is_periodic=False)


def _unsupported(cluster: RayCluster, problem: str) -> tuple[EmitEvent, ...]:
    """Report what is not supported, once: until the condition reports the same."""
    known = conditions.find(cluster.status.conditions, ConditionType.UNSUPPORTED) if problem else None
    is_due = problem and (known is None or known.message != problem)
    return (EmitEvent(event=events.UNSUPPORTED.about(cluster, problem=problem)),) if is_due else ()


def _finalize(situation: Situation) -> Continue | ClusterPlan:
    """Do what the finalizer asks for, and leave a deleted cluster to the garbage collector."""
    go_on = Continue() if situation.cluster.metadata.deletion_timestamp is None else NOTHING
    return redis_cleanup.plan(situation.observed, situation.config, now=situation.now) or go_on


def _warn(situation: Situation) -> Continue:
    """Report what is allowed and unwise, or not supported."""
    cluster, config = situation.cluster, situation.config
    found: list[Action] = []
    if problem := autoscaling.v1_with_restarting_workers(cluster):
        found.append(EmitEvent(event=events.UNWISE_SPEC.about(cluster, problem=problem)))
    found += _unsupported(cluster, cluster_rules.unsupported(cluster))
    if graceful_drain.is_asked_for(cluster, config) and (problem := graceful_drain.obstacle(cluster)):
        found.append(EmitEvent(event=events.NO_DRAIN.about(cluster, problem=problem)))
    return Continue(actions=step(*found, is_side=True))


def _children(situation: Situation) -> Continue | ClusterPlan:
    """Create what pods need."""
    actions = children.steps(situation.observed, situation.config)
    if problem := children.left_behind(situation.observed):
        return ClusterPlan(actions=actions, fault=problem, note=problem)
    return Continue(actions=actions)


def _suspend(situation: Situation) -> Continue | ClusterPlan:
    """Delete all pods of a cluster that is to be suspended; do nothing for a suspended one."""
    match all_pods.suspension(situation.observed, has_conditions=situation.config.has(Gate.STATUS_CONDITIONS)):
        case AllPods.WAIT:
            return ClusterPlan(note="suspended: pods are left alone")
        case AllPods.DELETE:
            actions = _delete_all(situation.cluster, "Pods", "suspension")
            return ClusterPlan(actions=actions, note="suspending: all pods go")
        case _:
            return Continue()


def _hold_back(situation: Situation) -> Continue | ClusterPlan:
    """Make no pod without the protection that the spec asks for, nor of a cluster that is larger than the operator's limits."""
    cluster, reason, warnings = situation.cluster, ReplicaFailure.UNSUPPORTED, list[Action]()
    problem = cluster_rules.missing_protection(cluster)
    if not problem:
        problem, reason = refusals.exceeded_limit(cluster, situation.config), ReplicaFailure.LIMIT_EXCEEDED
        if not problem:
            return Continue()
        warnings.append(EmitEvent(event=events.LIMIT_EXCEEDED.about(cluster, problem=problem)))
    actions, note = step(*warnings, is_side=True), f"pods are left alone: {problem}"
    return ClusterPlan(actions=actions, refusal=Failure(reason, problem), is_periodic=False, note=note)


def _recreate(situation: Situation) -> Continue | ClusterPlan:
    """Delete all pods when the spec changed and `upgradeStrategy` is Recreate."""
    observed, version = situation.observed, situation.config.version
    match all_pods.recreation(observed, version):
        case AllPods.DELETE:
            actions = _delete_all(situation.cluster, "all Pods", "spec change with Recreate upgradeStrategy")
            return ClusterPlan(actions=actions, note="the spec changed: all pods go")
        case AllPods.WAIT:
            return ClusterPlan(note="the spec changed: waiting for the old pods to go")
        case AllPods.REFRESH:
            meta, marks = observed.heads[0].metadata, all_pods.marks(situation.cluster, version)
            changed = {"resourceVersion": meta.resource_version, "annotations": marks}
            refresh = Patch(resource=POD, name=meta.name, patch={"metadata": changed})
            return Continue(actions=step(refresh, is_side=True))
        case AllPods.GO_ON:
            return Continue()


def _delete_all(cluster: RayCluster, what: str, why: str) -> tuple[Parallel, ...]:
    report, selector = events.DELETED_ALL.about(cluster, what=what, why=why), {labels.CLUSTER: cluster.metadata.name}
    return step(DeleteCollection(resource=POD, selector=selector, events=report))


def _submit_to_batch_scheduler(situation: Situation) -> Continue | ClusterPlan:
    """Announce the cluster to the batch scheduler before any pod is made."""
    submission = batch.scheduler(situation.config).submit(situation.observed)
    actions, problem = step(*submission.actions), submission.waits_for
    return ClusterPlan(actions=actions, fault=problem, note=problem) if problem else Continue(actions=actions)


def _head(situation: Situation) -> Continue | ClusterPlan:
    """Create, delete or keep the head."""
    cluster, config, decision = situation.cluster, situation.config, head.decide(situation.observed)
    note = f"head: {decision.note}"
    match decision.move:
        case HeadMove.FAIL:
            return ClusterPlan(fault=decision.note, note=note)
        case HeadMove.STOP:
            return ClusterPlan(note=note)
        case HeadMove.DELETE if decision.pod is not None:
            meta = decision.pod.metadata
            report = events.DELETED_HEAD.about(cluster, meta.name, state=deletion.state(decision.pod))
            actions = step(Delete(resource=POD, name=meta.name, uid=meta.uid, events=report))
            return ClusterPlan(actions=actions, unfinished=decision.note, note=note)
        case HeadMove.CREATE:
            body = head_pod.build(
                cluster, config, name=situation.namer.pod(head_pod.name_prefix(cluster), labels.HEAD_GROUP)
            )
            known, marks = body["metadata"].get("annotations", {}), all_pods.marks(cluster, config.version)
            body["metadata"]["annotations"] = {**known, **marks}
            batch.scheduler(config).mark(cluster, labels.HEAD_GROUP, body)
            report = events.CREATED_HEAD.about(cluster, body["metadata"]["name"])
            create = Create(resource=POD, body=body, events=report, if_exists=IfExists.NEED_OWN)
            return Continue(actions=(Parallel(actions=(create,), starts_slowly=True),), note=note)
        case _:
            return Continue(note=note)


def _workers(situation: Situation) -> ClusterPlan:
    """Create and delete workers, one batch at most: of each group the deletions, then the creations."""
    cluster, observed, config = situation.cluster, situation.observed, situation.config
    has_indexes = config.has(Gate.MULTI_HOST_INDEXING)
    may_shrink = config.deletes_random_pods or not observed.is_autoscaling  # the autoscaler names the pods that go
    steps, notes, unfinished = list[Parallel](), list[str](), ""
    room, is_partial = BATCH, False
    for group in traits.worker_groups(cluster):
        if group.num_of_hosts > 1 and has_indexes:
            decision = multi_host.decide(observed, group, may_shrink=may_shrink, room=room)
        else:
            decision = workers.decide(observed, group, may_shrink=may_shrink, has_indexes=has_indexes, room=room)
        notes.append(f"group {group.group_name}: {decision.note}")
        unfinished = unfinished or decision.unfinished
        room -= len(decision.deletions) + len(decision.creations)
        steps += step(*decision.deletions, is_side=True)
        if decision.deletes_all:
            selector = {labels.CLUSTER: cluster.metadata.name, labels.GROUP: group.group_name}
            report = events.DELETED_GROUP.about(cluster, group=group.group_name)
            steps += step(DeleteCollection(resource=POD, selector=selector, events=report), is_side=True)
        created, prefix = list[Action](), worker_pod.name_prefix(cluster, group)
        for place in decision.creations:
            index, replica_name = place.index or 0, None
            if place.is_part:
                hosts = workers.hosts(group)
                name, replica_name = situation.namer.host(prefix, group.group_name, index, place.host, hosts)
            else:
                name = situation.namer.pod(prefix, group.group_name, str(index))
            replica, report = ReplicaIndex(index, place.host, replica_name), events.CREATED_WORKER.about(cluster, name)
            created.append(CreateWorker(name=name, group=group, replica=replica, events=report))
        if created:
            steps.append(Parallel(actions=tuple(created), is_side=True, starts_slowly=True))
        is_partial = decision.is_partial or room <= 0
        if is_partial:
            notes.append("the rest follows in the next batch")
            break
    requeue_at, note = situation.now if is_partial else None, "; ".join(notes)
    return ClusterPlan(
        actions=tuple(steps), requeue_at=requeue_at, note=note, unfinished=unfinished, is_partial=is_partial
    )


PHASES: Final[tuple[Phase, ...]] = (
    _validate,
    _finalize,
    _warn,
    _children,
    _suspend,
    _hold_back,
    _recreate,
    _submit_to_batch_scheduler,
    _head,
    _workers,
)
