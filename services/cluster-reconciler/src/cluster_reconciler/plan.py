"""The plan of one reconcile of a RayCluster: a pure function of the observed state.

`PHASES` lists the decisions in their order (spec raycluster §6, §9.1). Each phase adds steps to the
plan or ends the plan. A failed step ends the execution unless it is a side step, so no pod is
created without its Service. Pods are created and deleted in batches of `BATCH_SIZE` per plan, so
that a large cluster delays only itself. The table of all limits is in docs/reference/limits.md.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from cluster_reconciler import batch, children, events, pki, redis_cleanup, refusals
from cluster_reconciler.actions import EMPTY_PLAN, ClusterPlan, Continue, CreateWorker, make_step
from cluster_reconciler.observed import Observed, describe_pod, find_irrecoverable_reason
from cluster_reconciler.pods import all_pods, workers
from cluster_reconciler.reasons import ConditionType, Failure, ReplicaFailure
from cluster_reconciler.resources import graceful_drain, head_pod, worker_pod
from cluster_reconciler.resources.node import Namer, ReplicaIndex
from cluster_reconciler.resources.worker_pod import WorkerPods
from common import labels, pod_json
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
    earliest,
)
from common.validation import ray_cluster as cluster_rules

BATCH_SIZE: Final = 200
"""Maximum worker pods that one plan creates and deletes; a multi-host replica is never split."""
MAX_SHOWN: Final = 5
"""Maximum pods that an Event names; a lost node may have hundreds."""


Phase = Callable[[Observed], Continue | ClusterPlan]
"""One decision in `PHASES`. If it returns a `ClusterPlan`, the later phases do not run.

The complete plan begins with the actions of the earlier phases.
"""


def make_plan(observed: Observed, now: datetime) -> ClusterPlan:
    """Return the plan for one observed state of a cluster."""
    actions, notes, combined = list[Parallel](), list[str](), ClusterPlan()
    for phase in PHASES:
        result = phase(observed)
        actions += result.actions
        notes.append(result.note)
        if isinstance(result, ClusterPlan):
            combined = result
            break
    due = (combined.requeue_at, pki.get_requeue_time(observed), observed.overdue_at)
    requeue_at = now if combined.is_partial else earliest(*due)
    note, is_submitted = (
        "; ".join(filter(None, notes)),
        len(notes) > PHASES.index(_submit_to_batch_scheduler),
    )
    return msgspec.structs.replace(
        combined,
        actions=tuple(actions),
        requeue_at=requeue_at,
        note=note,
        is_submitted=is_submitted,
    )


def _leave_to_its_manager(observed: Observed) -> Continue | ClusterPlan:
    return EMPTY_PLAN if refusals.get_foreign_manager(observed.cluster) else Continue()


def _report_overdue(observed: Observed) -> Continue:
    if not observed.overdue:
        return Continue()
    names = [
        f"{pod.metadata.name} (node {pod.spec.node_name or 'unknown'})"
        for pod in observed.overdue[:MAX_SHOWN]
    ]
    hidden_count = len(observed.overdue) - len(names)
    pods = ", ".join(names) + (f" and {hidden_count} more" if hidden_count else "")
    event = events.NOT_ENDING.about(observed.cluster, pods=pods)
    return Continue(actions=make_step(EmitEvent(event=event), is_side=True))


def _validate(observed: Observed) -> Continue | ClusterPlan:
    """Refuse an invalid spec; a suspension continues, since it needs nothing from the spec."""
    if observed.is_valid:
        return Continue()
    violation_plan = refusals.find_violation_plan(observed.cluster, observed.config)
    if violation_plan is None or not observed.is_to_be_suspended:
        return violation_plan or Continue()
    actions = (*violation_plan.actions, *_stay_suspended(observed).actions)
    return msgspec.structs.replace(violation_plan, actions=actions, writes_status=True)


def _warn(observed: Observed) -> Continue:
    """Report settings that are valid but probably unwanted."""
    cluster, config = observed.cluster, observed.config
    actions: list[Action] = [
        EmitEvent(event=events.SPEC_WARNING.about(cluster, problem=warning))
        for warning in cluster_rules.warnings(cluster)
    ]
    if graceful_drain.is_asked_for(cluster, config) and (
        problem := graceful_drain.find_obstacle(cluster)
    ):
        actions.append(EmitEvent(event=events.NO_DRAIN.about(cluster, problem=problem)))
    return Continue(actions=make_step(*actions, is_side=True))


def _stay_suspended(observed: Observed) -> Continue | ClusterPlan:
    """Create no pods for a suspended cluster; once it has none, delete the scheduler's objects."""
    if not observed.is_to_be_suspended:
        return Continue()
    withdrawn = None if observed.pods else batch.withdraw(observed)
    return withdrawn or ClusterPlan(note="suspended: pods are left alone")


def _hold_back(observed: Observed) -> Continue | ClusterPlan:
    """Refuse to create pods for a cluster that exceeds the operator's limits."""
    cluster, problem = (
        observed.cluster,
        refusals.find_exceeded_limit(observed.cluster, observed.config),
    )
    if not problem:
        return Continue()
    warned = EmitEvent(event=events.LIMIT_EXCEEDED.about(cluster, problem=problem))
    refusal, note = (
        Failure(ReplicaFailure.LIMIT_EXCEEDED, problem),
        f"pods are left alone: {problem}",
    )
    return ClusterPlan(
        actions=make_step(warned, is_side=True), refusal=refusal, is_periodic=False, note=note
    )


def _submit_to_batch_scheduler(observed: Observed) -> Continue | ClusterPlan:
    """Create the objects of the batch scheduler before any pod is created."""
    return batch.get_scheduler(observed.config).submit(observed)


def _plan_head(observed: Observed) -> Continue | ClusterPlan:
    """Create, replace or keep the head pod (spec raycluster §9.4; acceptance cases 43-50)."""
    cluster, config, heads = observed.cluster, observed.config, observed.heads
    if observed.is_waiting_for(heads):
        return Continue(note="head: the old head is still going")
    if len(heads) > 1:
        names = " ".join(pod.metadata.name for pod in heads)
        problem = f"{len(heads)} head pods found [{names}]. Please delete extra head pods"
        return ClusterPlan(problem=problem, note=f"head: {problem}")
    if heads and (reason := find_irrecoverable_reason(heads[0], cluster)):
        meta = heads[0].metadata
        report = events.DELETED_HEAD.about(
            cluster, meta.name, state=describe_pod(heads[0], cluster)
        )
        delete = Delete(resource=POD, name=meta.name, uid=meta.uid, events=report)
        return ClusterPlan(actions=make_step(delete), unfinished=reason, note=f"head: {reason}")
    if heads:
        return Continue(note="head: there is a head")
    if (held_back := _plan_without_head(observed)) is not None:
        return held_back
    (name,), _ = Namer(observed).draw(head_pod.format_name_prefix(cluster), labels.HEAD_GROUP)
    body = head_pod.build(cluster, config, name=name)
    pod_json.ensure_body(body["metadata"], "annotations").update(
        all_pods.build_marks(cluster, config.version)
    )
    batch.get_scheduler(config).mark(cluster, config, labels.HEAD_GROUP, body)
    report = events.CREATED_HEAD.about(cluster, body["metadata"]["name"])
    create = Create(resource=POD, body=body, events=report, if_exists=IfExists.NEED_OWN)
    return Continue(actions=make_step(create), note="head: there is no head")


def _plan_without_head(observed: Observed) -> ClusterPlan | None:
    """Return the plan of a cluster that must not get a head now; None if it may get one."""
    stays_dead = (
        observed.cluster.metadata.annotations.get(labels.DISABLE_PROVISIONED_HEAD_RESTART) == "true"
    )
    if stays_dead and observed.holds(ConditionType.PROVISIONED):
        return ClusterPlan(note="head: a head that is lost stays lost in this cluster")
    if problem := pki.explain_missing(observed):
        return ClusterPlan(unfinished=problem, note=f"head: {problem}")
    return None


def _plan_workers(observed: Observed) -> ClusterPlan:
    """Create and delete at most one batch of workers; in each group deletions come first."""
    cluster, steps, notes, unfinished = observed.cluster, list[Parallel](), list[str](), ""
    namer, remaining, is_partial, gone = Namer(observed), BATCH_SIZE, False, set[str]()
    uncertified = pki.explain_missing(observed)
    is_marked = all_pods.is_recreated(cluster)
    marks = all_pods.build_marks(cluster, observed.config.version) if is_marked else {}
    for group in traits.named_groups(cluster):
        decision = workers.decide(observed, group, max_changes=remaining, gone=gone)
        gone.update(deletion.name for deletion in decision.deletions)
        if decision.creations and uncertified:
            decision = msgspec.structs.replace(
                decision, note=uncertified, creations=(), unfinished=uncertified, is_partial=False
            )
        notes.append(f"group {group.group_name}: {decision.note}")
        unfinished = unfinished or decision.unfinished
        remaining -= len(decision.deletions) + len(decision.creations) * decision.hosts
        steps += make_step(*decision.deletions, is_side=True)
        if decision.deletes_all:
            selector = {labels.CLUSTER: cluster.metadata.name, labels.GROUP: group.group_name}
            report = events.DELETED_GROUP.about(cluster, group=group.group_name)
            steps += make_step(
                DeleteCollection(resource=POD, selector=selector, events=report), is_side=True
            )
        created, prefix = list[Action](), worker_pod.format_name_prefix(cluster, group)
        pods = WorkerPods(cluster=cluster, group=group, config=observed.config)
        for index in decision.creations:
            drawn, replica_name = namer.draw(
                prefix, group.group_name, str(index), hosts=decision.hosts
            )
            for host, name in enumerate(drawn):
                replica = ReplicaIndex(index, host, replica_name)
                report = events.CREATED_WORKER.about(cluster, name)
                created.append(
                    CreateWorker(
                        name=name, pods=pods, replica=replica, annotations=marks, events=report
                    )
                )
        if created:
            steps.append(Parallel(actions=tuple(created), is_side=True, starts_slowly=True))
        is_partial = decision.is_partial or remaining <= 0
        if is_partial:
            notes.append("the rest follows in the next batch")
            break
    note = "; ".join(notes)
    return ClusterPlan(
        actions=tuple(steps), note=note, unfinished=unfinished, is_partial=is_partial
    )


PHASES: Final[tuple[Phase, ...]] = (
    redis_cleanup.finish,
    _leave_to_its_manager,
    _report_overdue,
    all_pods.suspend,
    _validate,
    pki.require,
    redis_cleanup.protect,
    _warn,
    children.create,
    pki.maintain,
    _stay_suspended,
    _hold_back,
    all_pods.recreate,
    _submit_to_batch_scheduler,
    _plan_head,
    _plan_workers,
)
