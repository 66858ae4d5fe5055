"""The end of a cluster with GCS state in Redis: pods first, then a Job empties Redis, then the cluster is deleted.

A finalizer holds the cluster until then, for 300 s or the time in the annotation at most. The head goes before the Job
comes, so that nothing writes any more (spec raycluster §7; acceptance cases 29-38).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.resources import redis_cleanup_job
from common import durations, labels
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, POD
from common.ray import cluster_traits as traits
from common.runtime.actions import SILENT, ActionEvents, Create, DeleteCollection, IfExists, Parallel, SetFinalizers

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
_DIGITS: Final = 18
"""Of a number that Go reads."""
_LONGEST: Final = 10**9
"""Seconds that a clock can count on from now; more is for ever."""
_FINISHED: Final = frozenset({"Complete", "Failed", "FailureTarget"})


def plan(observed: Observed, config: Config, *, now: datetime) -> ClusterPlan | None:
    """Return what the finalizer requires; None when it requires nothing and the cluster may be reconciled."""
    cluster, meta = observed.cluster, observed.cluster.metadata
    is_held, is_embedded = labels.GCS_FT_FINALIZER in meta.finalizers, traits.has_embedded_storage(cluster)
    if meta.deletion_timestamp is not None and is_held and is_embedded:
        return _release(cluster, "the embedded store needs no cleaning")
    if is_embedded or not traits.is_fault_tolerant(cluster) or not config.cleans_up_redis:
        return None
    if meta.deletion_timestamp is not None:
        return _clean_up(observed, config, meta.deletion_timestamp, now)
    if is_held:
        return None
    action = SetFinalizers(finalizers=(*meta.finalizers, labels.GCS_FT_FINALIZER))
    note = "the finalizer comes first"
    return ClusterPlan(actions=step(action), writes_status=False, is_periodic=False, requeue_at=now, note=note)


def timeout(cluster: RayCluster) -> timedelta:
    """Return how long the finalizer may hold the cluster back."""
    text = cluster.metadata.annotations.get(labels.GCS_FT_DELETION_TIMEOUT, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    seconds = int(text) if is_number else 0
    return timedelta(seconds=min(seconds, _LONGEST)) if seconds > 0 else DEFAULT_TIMEOUT


def _clean_up(observed: Observed, config: Config, deleted_at: datetime, now: datetime) -> ClusterPlan:
    cluster, removals = observed.cluster, list[Parallel]()
    ends_at = deleted_at + timeout(cluster)
    for node_type, pods in ((labels.HEAD, observed.heads), (labels.WORKER, observed.workers)):
        if not all(map(is_terminating, pods)):
            selector = {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: node_type}
            removals += step(DeleteCollection(resource=POD, selector=selector))
    waiting = ClusterPlan(actions=tuple(removals), writes_status=False, requeue_at=ends_at)
    if observed.heads:
        return msgspec.structs.replace(waiting, note="waiting for the head to go")
    if now >= ends_at:
        storage = cluster.metadata.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE, "")
        event = events.FORCE_DELETED.about(cluster, waited=durations.text(now - deleted_at), storage=storage)
        return _release(cluster, "cleaning took too long", ActionEvents(success=event))
    if observed.cleanup_jobs:
        reached = observed.cleanup_jobs[0].status.conditions
        if any(each.type in _FINISHED and each.status == "True" for each in reached):
            return _release(cluster, "the cleanup Job has finished")
        return msgspec.structs.replace(waiting, note="waiting for the cleanup Job")
    body = redis_cleanup_job.build(cluster, config)
    report = events.CREATED_CLEANUP_JOB.about(cluster, redis_cleanup_job.name(cluster))
    removals += step(Create(resource=JOB, body=body, events=report, if_exists=IfExists.NEED_OWN))
    return msgspec.structs.replace(waiting, actions=tuple(removals), note="the head is gone: cleaning Redis")


def _release(cluster: RayCluster, note: str, report: ActionEvents = SILENT) -> ClusterPlan:
    """Let the cluster go."""
    held = cluster.metadata.finalizers
    left = tuple(each for each in held if each != labels.GCS_FT_FINALIZER)
    actions = step(SetFinalizers(finalizers=left, events=report)) if labels.GCS_FT_FINALIZER in held else ()
    return ClusterPlan(actions=actions, writes_status=False, is_periodic=False, note=note)
