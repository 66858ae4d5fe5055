"""Clean up Redis when a cluster that keeps its GCS state there is deleted.

The pods are deleted first, then a Job removes the cluster's keys from Redis, then the cluster is
deleted. A finalizer delays the deletion of the cluster until then, for at most 300 s or the time in
an annotation. The Job starts when the head is gone, so that nothing writes to Redis any more (spec
raycluster §7; acceptance cases 29-38).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from cluster_reconciler import events, refusals
from cluster_reconciler.actions import EMPTY_PLAN, ClusterPlan, Continue, make_step
from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.resources import gcs_fault_tolerance, head_pod
from common import durations, labels
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, POD
from common.ray import cluster_traits as traits
from common.runtime.actions import (
    SILENT,
    ActionEvents,
    Annotate,
    Create,
    DeleteCollection,
    EmitEvent,
    Finalizer,
    IfExists,
    KubeEvent,
    Parallel,
    SetFinalizers,
    warning,
)

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
_NUMBER: Final = re2.compile(r"[0-9]{1,18}")
"""A number of seconds: at most 18 digits, so that it fits Go's `int`."""
_MAX_TIMEOUT: Final = 10**9
"""Maximum timeout in seconds (31 years). Longer ones are cut, so that dates cannot overflow."""
_FAILED: Final = frozenset({"Failed", "FailureTarget"})
OFF: Final = "ENABLE_GCS_FT_REDIS_CLEANUP is false"


def protect(observed: Observed) -> Continue | ClusterPlan:
    """Add the clean-up finalizer to a cluster that uses Redis, before its first pod is created."""
    meta = observed.cluster.metadata
    if labels.GCS_FT_FINALIZER in meta.finalizers or _find_obstacle(observed):
        return Continue()
    action = SetFinalizers(finalizers=(*meta.finalizers, labels.GCS_FT_FINALIZER))
    note = "the finalizer comes first"
    return msgspec.structs.replace(
        EMPTY_PLAN, actions=make_step(action), requeue_at=observed.now, note=note
    )


def finish(observed: Observed) -> Continue | ClusterPlan:
    """Clean up Redis for a deleted cluster, then remove the finalizer, even if the clean-up failed.

    The pods are deleted first. Redis is cleaned if the spec permits it. If the time limit has
    passed or the clean-up Job has failed, an Event names the keys that remain in Redis.
    """
    cluster, deleted_at = observed.cluster, observed.cluster.metadata.deletion_timestamp
    if deleted_at is None:
        return Continue()
    obstacle = _find_obstacle(observed)
    if labels.GCS_FT_FINALIZER not in cluster.metadata.finalizers and obstacle:
        return EMPTY_PLAN
    if observed.is_valid and traits.has_embedded_storage(cluster):
        return _release(cluster, "the embedded store needs no cleaning")
    ends_at = deleted_at + get_timeout(cluster.metadata)
    if observed.now >= ends_at:
        return _release_uncleaned(observed, obstacle, elapsed=observed.now - deleted_at)
    if refusals.get_foreign_manager(cluster):
        return msgspec.structs.replace(EMPTY_PLAN, requeue_at=ends_at, note=obstacle)
    return _clean_up(observed, obstacle, ends_at)


def _find_obstacle(observed: Observed) -> str:
    """Return the reason not to run the clean-up Job; empty if it can run."""
    cluster, config = observed.cluster, observed.config
    if manager := refusals.get_foreign_manager(cluster):
        return f"spec.managedBy names {manager}"
    if not config.cleans_up_redis:
        return OFF
    if not observed.is_valid:
        violation = refusals.find_violation(cluster, config)
        return f"the spec is invalid: {violation[1]}" if violation else "its name is invalid"
    if not traits.is_fault_tolerant(cluster) or traits.has_embedded_storage(cluster):
        return "the spec has no gcsFaultToleranceOptions for Redis"
    return ""


def get_timeout(meta: ObjectMeta) -> timedelta:
    """Return how long the finalizer may delay the deletion of a cluster with this metadata."""
    text = meta.annotations.get(labels.GCS_FT_DELETION_TIMEOUT, "")
    seconds = int(text) if _NUMBER.fullmatch(text) else 0
    return timedelta(seconds=min(seconds, _MAX_TIMEOUT)) if seconds > 0 else DEFAULT_TIMEOUT


def _report_release_in_quarantine(meta: ObjectMeta, limit: timedelta) -> KubeEvent:
    """Return the Event about a finalizer that raybus removes although Redis was not cleaned up.

    An object in quarantine (its state cannot be read) prevented the clean-up. As the spec cannot be
    read, the storage namespace comes from the metadata.
    """
    noted = (labels.REDIS_STORAGE_NAMESPACE, labels.EXTERNAL_STORAGE_NAMESPACE)
    storage = next(filter(None, map(meta.annotations.get, noted)), meta.uid)
    spec = events.FORCE_DELETED
    note = spec.note.format(
        waited=durations.text(limit),
        problem="an object in quarantine, and its pods end only now",
        left=f"{_format_keys(storage)}, or the externalStorageNamespace of its spec,",
    )
    return warning(spec.reason, spec.action, note)


FINALIZER: Final = Finalizer(
    name=labels.GCS_FT_FINALIZER, limit=get_timeout, event=_report_release_in_quarantine
)
"""The finalizer of raybus on a RayCluster.

Its limit and Event apply if an object in quarantine (its state cannot be read) blocks the deletion.
"""


def _clean_up(observed: Observed, obstacle: str, ends_at: datetime) -> ClusterPlan:
    cluster, actions = observed.cluster, [*_record_storage(observed)]
    for node_type, pods in ((labels.HEAD, observed.heads), (labels.WORKER, observed.workers)):
        if not all(map(is_terminating, pods)):
            selector = {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: node_type}
            actions += make_step(DeleteCollection(resource=POD, selector=selector))
    if obstacle and obstacle != OFF:
        blocked = events.CLEANUP_BLOCKED.about(
            cluster,
            problem=obstacle,
            left=_describe_leftovers(observed),
            limit=durations.text(get_timeout(cluster.metadata)),
        )
        actions += make_step(EmitEvent(event=blocked), is_side=True)
    waiting = ClusterPlan(actions=tuple(actions), writes_status=False, requeue_at=ends_at)
    if observed.heads:
        return msgspec.structs.replace(waiting, note="waiting for the head to go")
    if obstacle == OFF:
        return _release_uncleaned(observed, obstacle, elapsed=timedelta())
    if obstacle:
        return msgspec.structs.replace(waiting, note=obstacle)
    return _run_job(observed, waiting)


def _run_job(observed: Observed, waiting: ClusterPlan) -> ClusterPlan:
    cluster = observed.cluster
    if observed.cleanup_jobs:
        ended = {
            condition.type
            for condition in observed.cleanup_jobs[0].status.conditions
            if condition.status == "True"
        }
        if ended & _FAILED:
            name = observed.cleanup_jobs[0].metadata.name
            event = events.CLEANUP_FAILED.about(cluster, name, left=_describe_leftovers(observed))
            return _release(cluster, "the cleanup Job has failed", ActionEvents(success=event))
        if "Complete" in ended:
            return _release(cluster, "the cleanup Job has finished")
        return msgspec.structs.replace(waiting, note="waiting for the cleanup Job")
    body = head_pod.build_cleanup_job(cluster, observed.config)
    report = events.CREATED_CLEANUP_JOB.about(cluster, body["metadata"]["name"])
    create = Create(resource=JOB, body=body, events=report, if_exists=IfExists.NEED_OWN)
    return msgspec.structs.replace(
        waiting,
        actions=(*waiting.actions, *make_step(create)),
        note="the head is gone: cleaning Redis",
    )


def _record_storage(observed: Observed) -> tuple[Parallel, ...]:
    """Return the step that records the storage namespace in use before the head is deleted.

    Only the head pod shows which namespace is in use, because the spec may have changed since. No
    step is returned if the spec has the same namespace.
    """
    if _get_storage(observed) == gcs_fault_tolerance.get_storage_namespace(observed.cluster):
        return ()
    return make_step(Annotate(name=labels.REDIS_STORAGE_NAMESPACE, value=_get_storage(observed)))


def _get_storage(observed: Observed) -> str:
    """Return the storage namespace in Redis: the head's if a head exists, else the spec's."""
    annotations = (head.metadata.annotations for head in observed.heads)
    of_heads = (
        head_annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE, "")
        for head_annotations in annotations
    )
    return next(filter(None, of_heads), "") or gcs_fault_tolerance.get_storage_namespace(
        observed.cluster
    )


def _describe_leftovers(observed: Observed) -> str:
    return _format_keys(_get_storage(observed))


def _format_keys(storage: str) -> str:
    return f'Redis storage namespace "{storage}" (keys that begin with "RAY{storage}@")'


def _release_uncleaned(observed: Observed, obstacle: str, *, elapsed: timedelta) -> ClusterPlan:
    """Return the plan that removes the finalizer, and reports that Redis was not cleaned up."""
    problem = obstacle or "Redis cleanup timeout"
    if observed.heads:
        head = observed.heads[0].metadata.name
        problem += f", and head Pod {head} is still there: end it before you clean up"
    event = events.FORCE_DELETED.about(
        observed.cluster,
        waited=durations.text(elapsed),
        problem=problem,
        left=_describe_leftovers(observed),
    )
    return _release(observed.cluster, problem, ActionEvents(success=event))


def _release(cluster: RayCluster, note: str, report: ActionEvents = SILENT) -> ClusterPlan:
    finalizers = cluster.metadata.finalizers
    remaining = tuple(finalizer for finalizer in finalizers if finalizer != labels.GCS_FT_FINALIZER)
    actions = (
        make_step(SetFinalizers(finalizers=remaining, events=report))
        if labels.GCS_FT_FINALIZER in finalizers
        else ()
    )
    return msgspec.structs.replace(EMPTY_PLAN, actions=actions, note=note)
