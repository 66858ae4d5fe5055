"""What to do now for one RayCluster: a pure function of what was observed.

Order (spec raycluster §6, §9.1): refuse what is not ours or not valid; create the children that pods need; suspend;
make no pod without the protection that it should have; recreate; then head; then worker groups. A step that fails ends the plan, so that no pod is made without its Service.
"""

from datetime import datetime

from cluster_reconciler import announcements, batch, children, limits, redis_cleanup, refusals
from cluster_reconciler.actions import (
    Action,
    AnnotatePod,
    CreatePod,
    CreateWorker,
    DeletePod,
    DeletePods,
    Plan,
    Refuse,
    Step,
    Tell,
)
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
from cluster_reconciler.resources.replica import ReplicaIndex
from cluster_reconciler.status import unsupported
from cluster_reconciler.status.replica_failure import Failure
from common import labels
from common import ray_cluster_traits as traits
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.feature_gates import Gate
from common.validation import ray_cluster as cluster_rules

NOTHING = Plan(writes_status=False, looks_again=False)


def make(observed: Observed, config: Config, *, now: datetime, token: str = "") -> Plan:
    """Return what to do now; `token` is the secret of a new auth Secret, drawn by the caller."""
    cluster = observed.cluster
    refusal = refusals.find(cluster, config)
    if refusal is not None:
        return _refused(refusal, cluster)
    cleanup = redis_cleanup.plan(observed, config, now=now)
    if cleanup is not None:
        return cleanup
    if cluster.metadata.deletion_timestamp is not None:
        return NOTHING
    before = (*_warnings(cluster, config), *children.steps(observed, config, token=token))
    if problem := children.left_behind(observed):
        return Plan(steps=before, fault=problem, notes=(problem,))
    return _with_pods(before, observed, config, Namer(observed, now=now))


def _refused(refusal: Refusal, cluster: RayCluster) -> Plan:
    if refusal.event is None or (refusal.unsupported and cluster.metadata.deletion_timestamp is not None):
        return NOTHING
    action: Action = Refuse(event=refusal.event) if refusal.is_retried else Tell(event=refusal.event)
    told = (action, *_unsupported(cluster, refusal.unsupported))
    return Plan(
        steps=(Step(actions=told),),
        refusal=Failure(ReplicaFailure.UNSUPPORTED, refusal.unsupported) if refusal.unsupported else None,
        writes_status=bool(refusal.unsupported),
        looks_again=False,
    )


def _unsupported(cluster: RayCluster, problem: str) -> tuple[Tell, ...]:
    """Tell what is not supported, once: until the condition says the same."""
    if not problem or unsupported.is_told(cluster.status, problem):
        return ()
    return (Tell(event=announcements.unsupported(cluster, problem)),)


def _warnings(cluster: RayCluster, config: Config) -> tuple[Step, ...]:
    told: list[Action] = []
    if problem := cluster_rules.autoscaler_v1_warning(cluster):
        told.append(Tell(event=announcements.warning(cluster, problem)))
    told += _unsupported(cluster, cluster_rules.unsupported(cluster, config.gates))
    if graceful_drain.is_asked_for(cluster, config) and (problem := graceful_drain.obstacle(cluster)):
        told.append(Tell(event=announcements.graceful_drain_unavailable(cluster, problem)))
    return (Step(actions=tuple(told), is_needed=False),) if told else ()


def _with_pods(before: tuple[Step, ...], observed: Observed, config: Config, namer: Namer) -> Plan:
    cluster = observed.cluster
    match suspend.decide(observed, has_conditions=config.has(Gate.STATUS_CONDITIONS)):
        case SuspendMove.WAIT:
            return Plan(steps=before, notes=("suspended: pods are left alone",))
        case SuspendMove.DELETE_ALL:
            action = DeletePods(selector=_all_pods(cluster), told=announcements.suspended(cluster))
            return Plan(steps=(*before, Step(actions=(action,))), notes=("suspending: all pods go",))
        case SuspendMove.GO_ON:
            pass
    if problem := cluster_rules.missing_protection(cluster, config.gates):
        failure = Failure(ReplicaFailure.UNSUPPORTED, problem)
        return Plan(steps=before, refusal=failure, looks_again=False, notes=(f"pods are left alone: {problem}",))
    if problem := limits.exceeded(cluster, config):
        failure = Failure(ReplicaFailure.LIMIT_EXCEEDED, problem)
        step = Step(actions=(Tell(event=announcements.limit_exceeded(cluster, problem)),), is_needed=False)
        return Plan(
            steps=(*before, step), refusal=failure, looks_again=False, notes=(f"pods are left alone: {problem}",)
        )
    return _upgraded(before, observed, config, namer)


def _upgraded(before: tuple[Step, ...], observed: Observed, config: Config, namer: Namer) -> Plan:
    cluster = observed.cluster
    match upgrade.decide(observed, config.version):
        case UpgradeMove.RECREATE:
            action = DeletePods(selector=_all_pods(cluster), told=announcements.recreated(cluster))
            return Plan(steps=(*before, Step(actions=(action,))), notes=("the spec changed: all pods go",))
        case UpgradeMove.WAIT:
            return Plan(steps=before, notes=("the spec changed: waiting for the old pods to go",))
        case UpgradeMove.REFRESH:
            before = (*before, Step(actions=(_refresh(observed, config),), is_needed=False))
        case UpgradeMove.GO_ON:
            pass
    return _announced(before, observed, config, namer)


def _announced(before: tuple[Step, ...], observed: Observed, config: Config, namer: Namer) -> Plan:
    """Tell the batch scheduler of the cluster before any pod is made."""
    submission = batch.scheduler(config).submit(observed)
    if submission.actions:
        before = (*before, Step(actions=submission.actions))
    if submission.waits_for:
        return Plan(steps=before, fault=submission.waits_for, notes=(submission.waits_for,))
    return _with_head(before, observed, config, namer)


def _with_head(before: tuple[Step, ...], observed: Observed, config: Config, namer: Namer) -> Plan:
    decision = head.decide(observed)
    notes = (f"head: {decision.note}",)
    match decision.move:
        case HeadMove.FAIL:
            return Plan(steps=before, fault=decision.note, notes=notes)
        case HeadMove.STOP:
            return Plan(steps=before, notes=notes)
        case HeadMove.DELETE if decision.pod is not None:
            told = announcements.deleted_head(decision.pod, deletion.state(decision.pod))
            action = DeletePod(name=decision.pod.metadata.name, uid=decision.pod.metadata.uid, told=told)
            return Plan(steps=(*before, Step(actions=(action,))), unfinished=decision.note, notes=notes)
        case HeadMove.CREATE:
            before = (*before, Step(actions=(_create_head(observed, config, namer),)))
        case _:
            pass
    return _with_workers(Plan(steps=before, notes=notes), observed, config, namer)


def _with_workers(plan: Plan, observed: Observed, config: Config, namer: Namer) -> Plan:
    steps, notes, unfinished = list(plan.steps), list(plan.notes), plan.unfinished
    room = limits.BATCH
    for group in traits.worker_groups(observed.cluster):
        decision = _decide_group(observed, group, config, room=room)
        notes.append(f"group {group.group_name}: {decision.note}")
        unfinished = unfinished or decision.unfinished
        room -= decision.size
        actions = _group_actions(observed, group, decision)
        if actions:
            steps.append(Step(actions=actions, is_needed=False))
        created = tuple(_create_worker(observed, group, place, namer) for place in decision.creations)
        if created:
            steps.append(Step(actions=created, is_needed=False))
        if decision.is_partial or room <= 0:
            notes.append("the rest follows in the next batch")
            return Plan(steps=tuple(steps), notes=tuple(notes), unfinished=unfinished, is_partial=True)
    return Plan(steps=tuple(steps), notes=tuple(notes), unfinished=unfinished)


def _decide_group(observed: Observed, group: WorkerGroupSpec, config: Config, *, room: int) -> GroupDecision:
    has_indexes = config.has(Gate.MULTI_HOST_INDEXING)
    may_shrink = groups.may_shrink(observed, deletes_random_pods=config.deletes_random_pods)
    if group.num_of_hosts > 1 and has_indexes:
        return multi_host.decide(observed, group, may_shrink=may_shrink, room=room)
    return workers.decide(observed, group, may_shrink=may_shrink, has_indexes=has_indexes, room=room)


def _group_actions(observed: Observed, group: WorkerGroupSpec, decision: GroupDecision) -> tuple[Action, ...]:
    if decision.deletes_all:
        selector = {labels.CLUSTER: observed.cluster.metadata.name, labels.GROUP: group.group_name}
        return (DeletePods(selector=selector, told=announcements.deleted_group(observed.cluster, group.group_name)),)
    return tuple(
        DeletePod(
            name=gone.pod.metadata.name,
            uid=gone.pod.metadata.uid,
            told=announcements.deleted_worker(gone.pod, what=gone.what, more=gone.more, failed_more=gone.failed_more),
        )
        for gone in decision.deletions
    )


def _create_head(observed: Observed, config: Config, namer: Namer) -> CreatePod:
    cluster = observed.cluster
    name = namer.pod(head_pod.name_prefix(cluster), labels.HEAD_GROUP)
    body = head_pod.build(cluster, config, name=name)
    body["metadata"]["annotations"] = {
        **body["metadata"].get("annotations", {}),
        **upgrade.marks(cluster, config.version),
    }
    batch.scheduler(config).mark(cluster, labels.HEAD_GROUP, body)
    return CreatePod(body=body, told=announcements.created_head(cluster, body["metadata"]["name"]))


def _create_worker(observed: Observed, group: WorkerGroupSpec, place: Place, namer: Namer) -> CreateWorker:
    cluster = observed.cluster
    prefix = worker_pod.name_prefix(cluster, group)
    replica_name: str | None = None
    index = place.index or 0
    if place.is_part:
        name, replica_name = namer.host(prefix, group.group_name, index, place.host, groups.hosts(group))
    else:
        name = namer.pod(prefix, group.group_name, str(index))
    replica = ReplicaIndex(index, place.host, replica_name)
    return CreateWorker(name=name, group=group, replica=replica, told=announcements.created_worker(cluster, name))


def _refresh(observed: Observed, config: Config) -> AnnotatePod:
    meta = observed.heads[0].metadata
    marks = upgrade.marks(observed.cluster, config.version)
    return AnnotatePod(name=meta.name, resource_version=meta.resource_version, annotations=marks)


def _all_pods(cluster: RayCluster) -> dict[str, str]:
    return {labels.CLUSTER: cluster.metadata.name}
