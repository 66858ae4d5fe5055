"""The end of a cluster with GCS state in Redis: pods first, then a Job empties Redis, then the cluster is deleted.

A finalizer holds the cluster until then, for 300 s or the time in the annotation at most. The head goes before the Job
comes, so that nothing writes any more (spec raycluster §7; acceptance cases 29-38).
"""

from datetime import datetime, timedelta
from typing import Final

from cluster_reconciler import events
from cluster_reconciler.actions import ClusterPlan, step
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.resources import redis_cleanup_job
from common import labels
from common.api.core import Job, Pod
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, POD
from common.ray import cluster_traits as traits
from common.runtime.actions import SILENT, Action, ActionEvents, Create, DeleteCollection, IfExists, SetFinalizers

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
_DIGITS: Final = 18
"""Of a number that Go reads."""
_LONGEST: Final = 10**9
"""Seconds that a clock can count on from now; more is for ever."""
_FINISHED: Final = frozenset({"Complete", "Failed", "FailureTarget"})


def plan(observed: Observed, config: Config, *, now: datetime) -> ClusterPlan | None:
    """Return what the finalizer requires; None when it requires nothing and the cluster may be reconciled."""
    cluster = observed.cluster
    is_held = labels.GCS_FT_FINALIZER in cluster.metadata.finalizers
    deleted_at = cluster.metadata.deletion_timestamp
    if deleted_at is not None and is_held and traits.has_embedded_storage(cluster):
        return _release(cluster, "the embedded store needs no cleaning")
    if not _is_active(cluster, config):
        return None
    if deleted_at is None:
        return None if is_held else _hold(cluster, now)
    return _clean_up(observed, config, deleted_at, now)


def timeout(cluster: RayCluster) -> timedelta:
    """Return how long the finalizer may hold the cluster back."""
    text = cluster.metadata.annotations.get(labels.GCS_FT_DELETION_TIMEOUT, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    seconds = int(text) if is_number else 0
    return timedelta(seconds=min(seconds, _LONGEST)) if seconds > 0 else DEFAULT_TIMEOUT


def _is_active(cluster: RayCluster, config: Config) -> bool:
    uses_redis = traits.is_fault_tolerant(cluster) and not traits.has_embedded_storage(cluster)
    return config.cleans_up_redis and uses_redis


def _hold(cluster: RayCluster, now: datetime) -> ClusterPlan:
    """Put the finalizer on before anything else exists, and reconcile again at once."""
    action = SetFinalizers(finalizers=(*cluster.metadata.finalizers, labels.GCS_FT_FINALIZER))
    return _only(action, "the finalizer comes first", requeue_at=now)


def _clean_up(observed: Observed, config: Config, deleted_at: datetime, now: datetime) -> ClusterPlan:
    cluster = observed.cluster
    ends_at = deleted_at + timeout(cluster)
    pods = ((labels.HEAD, observed.heads), (labels.WORKER, observed.workers))
    removals = tuple(each for kind, held in pods for action in _remove(cluster, kind, held) for each in step(action))
    if observed.heads:
        return ClusterPlan(actions=removals, writes_status=False, requeue_at=ends_at, note="waiting for the head to go")
    if now >= ends_at:
        return _release(cluster, "cleaning took too long", report=events.force_deleted(cluster, now - deleted_at))
    if observed.cleanup_jobs:
        if _has_finished(observed.cleanup_jobs[0]):
            return _release(cluster, "the cleanup Job has finished")
        note = "waiting for the cleanup Job"
        return ClusterPlan(actions=removals, writes_status=False, requeue_at=ends_at, note=note)
    report = events.created_cleanup_job(cluster, redis_cleanup_job.name(cluster))
    body = redis_cleanup_job.build(cluster, config)
    create = Create(resource=JOB, body=body, events=report, if_exists=IfExists.NEED_OWN)
    steps = (*removals, *step(create))
    return ClusterPlan(actions=steps, writes_status=False, requeue_at=ends_at, note="the head is gone: cleaning Redis")


def _remove(cluster: RayCluster, node_type: str, pods: tuple[Pod, ...]) -> tuple[DeleteCollection, ...]:
    if all(is_terminating(pod) for pod in pods):
        return ()
    selector = {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: node_type}
    return (DeleteCollection(resource=POD, selector=selector),)


def _release(cluster: RayCluster, note: str, *, report: ActionEvents = SILENT) -> ClusterPlan:
    """Let the cluster go."""
    if labels.GCS_FT_FINALIZER not in cluster.metadata.finalizers:
        return ClusterPlan(writes_status=False, is_periodic=False, note=note)
    left = tuple(each for each in cluster.metadata.finalizers if each != labels.GCS_FT_FINALIZER)
    return _only(SetFinalizers(finalizers=left, events=report), note, requeue_at=None)


def _only(action: Action, note: str, *, requeue_at: datetime | None) -> ClusterPlan:
    return ClusterPlan(
        actions=step(action),
        writes_status=False,
        is_periodic=False,
        requeue_at=requeue_at,
        note=note,
    )


def _has_finished(job: Job) -> bool:
    return any(each.type in _FINISHED and each.status == "True" for each in job.status.conditions)
