"""The end of a cluster whose GCS keeps its state in Redis: pods first, then a Job empties Redis, then the cluster goes.

A finalizer holds the cluster back until then, for 300 s at most, or as the annotation says. The head goes before the Job
comes, so that nothing writes any more (spec raycluster §7; acceptance cases 29-38).
"""

from datetime import datetime, timedelta
from typing import Final

from cluster_reconciler import announcements
from cluster_reconciler.actions import SILENT, Action, CreateChild, DeletePods, Plan, SetFinalizers, Step, Told
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Observed, is_terminating
from cluster_reconciler.resources import redis_cleanup_job
from common import labels
from common import ray_cluster_traits as traits
from common.api.core import Job, Pod
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB

DEFAULT_TIMEOUT: Final = timedelta(seconds=300)
_DIGITS: Final = 18
"""Of a number that Go reads."""
_LONGEST: Final = 10**9
"""Seconds that a clock can count on from now; more is for ever."""
_FINISHED: Final = frozenset({"Complete", "Failed", "FailureTarget"})


def plan(observed: Observed, config: Config, *, now: datetime) -> Plan | None:
    """Return what the finalizer asks for; None when it asks for nothing and the cluster may be looked after."""
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


def _hold(cluster: RayCluster, now: datetime) -> Plan:
    """Put the finalizer on before anything else exists, and look again at once."""
    action = SetFinalizers(finalizers=(*cluster.metadata.finalizers, labels.GCS_FT_FINALIZER))
    return _only(action, "the finalizer comes first", look_again_at=now)


def _clean_up(observed: Observed, config: Config, deleted_at: datetime, now: datetime) -> Plan:
    cluster = observed.cluster
    ends_at = deleted_at + timeout(cluster)
    removals = (*_remove(cluster, labels.HEAD, observed.heads), *_remove(cluster, labels.WORKER, observed.workers))
    if observed.heads:
        steps = tuple(Step(actions=(action,)) for action in removals)
        return Plan(steps=steps, writes_status=False, look_again_at=ends_at, notes=("waiting for the head to go",))
    if now >= ends_at:
        return _release(cluster, "cleaning took too long", told=announcements.force_deleted(cluster, now - deleted_at))
    if observed.cleanup_jobs:
        if _has_finished(observed.cleanup_jobs[0]):
            return _release(cluster, "the cleanup Job has finished")
        return Plan(writes_status=False, look_again_at=ends_at, notes=("waiting for the cleanup Job",))
    told = announcements.created_cleanup_job(cluster, redis_cleanup_job.name(cluster))
    create = CreateChild(resource=JOB, body=redis_cleanup_job.build(cluster, config), told=told, may_exist=False)
    steps = tuple(Step(actions=(action,)) for action in (*removals, create))
    return Plan(steps=steps, writes_status=False, look_again_at=ends_at, notes=("the head is gone: cleaning Redis",))


def _remove(cluster: RayCluster, node_type: str, pods: tuple[Pod, ...]) -> tuple[DeletePods, ...]:
    if all(is_terminating(pod) for pod in pods):
        return ()
    selector = {labels.CLUSTER: cluster.metadata.name, labels.NODE_TYPE: node_type}
    return (DeletePods(selector=selector, told=SILENT),)


def _release(cluster: RayCluster, note: str, *, told: Told = SILENT) -> Plan:
    """Let the cluster go."""
    if labels.GCS_FT_FINALIZER not in cluster.metadata.finalizers:
        return Plan(writes_status=False, looks_again=False, notes=(note,))
    left = tuple(each for each in cluster.metadata.finalizers if each != labels.GCS_FT_FINALIZER)
    return _only(SetFinalizers(finalizers=left, told=told), note, look_again_at=None)


def _only(action: Action, note: str, *, look_again_at: datetime | None) -> Plan:
    return Plan(
        steps=(Step(actions=(action,)),),
        writes_status=False,
        looks_again=False,
        look_again_at=look_again_at,
        notes=(note,),
    )


def _has_finished(job: Job) -> bool:
    return any(each.type in _FINISHED and each.status == "True" for each in job.status.conditions)
