"""The end of a cluster with GCS state in Redis: pods first, then a Job empties Redis, then the cluster is deleted.

A finalizer holds the cluster until then, for 300 s or the time in the annotation at most. The head goes before the Job
comes, so that nothing writes any more (spec raycluster §7; acceptance cases 29-38).
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
import re2

from cluster_reconciler import events
from cluster_reconciler.actions import NOTHING, ClusterPlan, Continue, step
from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.resources import head_pod
from common import durations, labels
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, POD
from common.ray import cluster_traits as traits
from common.runtime.actions import (
    SILENT,
    ActionEvents,
    Create,
    DeleteCollection,
    IfExists,
    Parallel,
    SetFinalizers,
)

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
_NUMBER: Final = re2.compile(r"[0-9]{1,18}")
"""As Go reads it."""
_LONGEST: Final = 10**9
"""Seconds that a clock can count on from now; more is for ever."""
_FINISHED: Final = frozenset({"Complete", "Failed", "FailureTarget"})


def finalize(observed: Observed) -> Continue | ClusterPlan:
    """Do what the finalizer asks for, and leave a deleted cluster to the garbage collector."""
    cluster, meta = observed.cluster, observed.cluster.metadata
    is_held, is_embedded = (
        labels.GCS_FT_FINALIZER in meta.finalizers,
        traits.has_embedded_storage(cluster),
    )
    cleans_up = (
        traits.is_fault_tolerant(cluster) and not is_embedded and observed.config.cleans_up_redis
    )
    if meta.deletion_timestamp is not None:
        if is_held and is_embedded:
            return _release(cluster, "the embedded store needs no cleaning")
        return _clean_up(observed, meta.deletion_timestamp) if cleans_up else NOTHING
    if is_held or not cleans_up:
        return Continue()
    action = SetFinalizers(finalizers=(*meta.finalizers, labels.GCS_FT_FINALIZER))
    note = "the finalizer comes first"
    return msgspec.structs.replace(
        NOTHING, actions=step(action), requeue_at=observed.now, note=note
    )


def timeout(cluster: RayCluster) -> timedelta:
    """Return how long the finalizer may hold the cluster back."""
    text = cluster.metadata.annotations.get(labels.GCS_FT_DELETION_TIMEOUT, "")
    seconds = int(text) if _NUMBER.fullmatch(text) else 0
    return timedelta(seconds=min(seconds, _LONGEST)) if seconds > 0 else DEFAULT_TIMEOUT


def _clean_up(observed: Observed, deleted_at: datetime) -> ClusterPlan:
    cluster, now, removals = observed.cluster, observed.now, list[Parallel]()
    ends_at = deleted_at + timeout(cluster)
    for node_type, pods in ((labels.HEAD, observed.heads), (labels.WORKER, observed.workers)):
        if not all(map(is_terminating, pods)):
            selector = {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: node_type}
            removals += step(DeleteCollection(resource=POD, selector=selector))
    waiting = ClusterPlan(actions=tuple(removals), writes_status=False, requeue_at=ends_at)
    if observed.heads:  # its end is an event, and no time limit changes anything before
        return msgspec.structs.replace(waiting, requeue_at=None, note="waiting for the head to go")
    if now >= ends_at:
        storage = cluster.metadata.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE, "")
        event = events.FORCE_DELETED.about(
            cluster, waited=durations.text(now - deleted_at), storage=storage
        )
        return _release(cluster, "cleaning took too long", ActionEvents(success=event))
    if observed.cleanup_jobs:
        reached = observed.cleanup_jobs[0].status.conditions
        if any(each.type in _FINISHED and each.status == "True" for each in reached):
            return _release(cluster, "the cleanup Job has finished")
        return msgspec.structs.replace(waiting, note="waiting for the cleanup Job")
    body = head_pod.build_cleanup_job(cluster, observed.config)
    report = events.CREATED_CLEANUP_JOB.about(cluster, body["metadata"]["name"])
    removals += step(Create(resource=JOB, body=body, events=report, if_exists=IfExists.NEED_OWN))
    return msgspec.structs.replace(
        waiting, actions=tuple(removals), note="the head is gone: cleaning Redis"
    )


def _release(cluster: RayCluster, note: str, report: ActionEvents = SILENT) -> ClusterPlan:
    """Let the cluster go."""
    held = cluster.metadata.finalizers
    left = tuple(each for each in held if each != labels.GCS_FT_FINALIZER)
    actions = (
        step(SetFinalizers(finalizers=left, events=report))
        if labels.GCS_FT_FINALIZER in held
        else ()
    )
    return msgspec.structs.replace(NOTHING, actions=actions, note=note)
