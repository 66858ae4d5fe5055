"""Plans for a RayJob that has ended or is being deleted (spec rayjob §13, §14)."""

from datetime import timedelta
from typing import Any, Final, cast

from msgspec.structs import replace

from common import labels
from common.kube.resources import RAY_CLUSTER, RAY_JOB
from common.runtime.actions import (
    Action,
    Delete,
    EmitEvent,
    Finalizer,
    Patch,
    Plan,
    SetFinalizers,
    warning,
)
from job_reconciler import cleanup, events, published_events
from job_reconciler.cleanup import ClusterFacts
from job_reconciler.observed import Observed
from job_reconciler.phases import ending
from job_reconciler.reasons import EventReason
from job_reconciler.status.update import update

STOP_LIMIT: Final = timedelta(seconds=60)
"""Time for which a deleted RayJob on a selected cluster waits until Ray has stopped its job."""
RELEASE_LIMIT: Final = timedelta(minutes=10)
FINALIZER: Final = Finalizer(
    name=labels.RAYJOB_FINALIZER,
    limit=lambda _meta: RELEASE_LIMIT,
    event=events.finalizer_released,
)


def clean_up(observed: Observed) -> Plan[Action]:
    """Return the plan for a completed or failed RayJob: at most one deletion at a time."""
    job, cluster = observed.job, observed.cluster
    is_ours = cluster is not None and not observed.cluster_is_foreign
    facts = ClusterFacts(
        exists=is_ours and cluster is not None and cluster.metadata.deletion_timestamp is None,
        are_workers_suspended=cluster is not None
        and all(map(_is_suspended, _list_groups(observed))),
    )
    decision = cleanup.decide(
        job,
        facts,
        observed.config.gates,
        observed.now,
        deletes_job_itself=observed.config.deletes_job_itself,
    )
    message = cleanup.add_problem(job.status.message, decision.problem)
    actions = list[Action](update(observed, replace(job.status, message=message)))
    if decision.problem:
        note = EmitEvent(event=warning(EventReason.NOT_CLEANED_UP, "Cleanup", decision.problem))
        actions.append(note)
    if decision.policy is not None:
        actions += _plan_deletion(observed, decision.policy)
    return Plan(
        actions=(*actions, *ending.clean_up_scheduler(observed)),
        requeue_at=decision.requeue_at,
        note=f"has ended; {decision.policy or 'nothing'} is due",
    )


def delete(observed: Observed) -> Plan[Action]:
    """Return the plan for a deleted RayJob: stop its Ray job, then remove the finalizer.

    All other objects are deleted with the RayJob. If these include the job's cluster, one stop
    request is enough, even if it fails.
    """
    meta, status = observed.job.metadata, observed.job.status
    if labels.RAYJOB_FINALIZER not in meta.finalizers:
        return Plan(note="the RayJob is going")
    deleted_at = meta.deletion_timestamp or observed.now
    must_stop = observed.selects_cluster and observed.now < deleted_at + STOP_LIMIT
    kept = tuple(name for name in meta.finalizers if name != labels.RAYJOB_FINALIZER)
    return Plan(
        actions=(
            *ending.stop(observed, status, must_succeed=must_stop),
            *published_events.deleted(observed),
            SetFinalizers(finalizers=kept),
        ),
        note="the RayJob is deleted",
    )


def _plan_deletion(observed: Observed, policy: str) -> tuple[Action, ...]:
    job, cluster = observed.job.metadata, observed.cluster
    if policy == "DeleteSelf":
        return (Delete(resource=RAY_JOB, name=job.name, uid=job.uid),)
    if cluster is None:
        return ()
    meta, where = cluster.metadata, cluster.metadata.namespaced_name
    if policy == "DeleteCluster":
        report = events.CLUSTER_DELETED.format(where)
        return (Delete(resource=RAY_CLUSTER, name=meta.name, uid=meta.uid, events=report),)
    groups = [{**group, "suspend": True} for group in _list_groups(observed)]
    patch = {
        "metadata": {"resourceVersion": meta.resource_version},
        "spec": {"workerGroupSpecs": groups},
    }
    report = events.workers_suspended(where)
    return (Patch(resource=RAY_CLUSTER, name=meta.name, patch=patch, events=report),)


def _list_groups(observed: Observed) -> list[dict[str, Any]]:
    cluster = observed.cluster
    groups = None if cluster is None else cluster.raw_spec.get("workerGroupSpecs")
    return cast("list[dict[str, Any]]", groups or [])


def _is_suspended(group: dict[str, Any]) -> bool:
    return group.get("suspend") is True
