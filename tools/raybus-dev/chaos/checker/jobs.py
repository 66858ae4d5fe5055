"""Collects the evidence of a run about RayJobs, and finds the laws (rules) that the run breaks."""

from collections.abc import Iterable, Iterator, Sequence

from chaos.checker.evidence import ObservedState, Violation, find_top_owner
from common import labels
from support.laws import Broken, find_broken
from support.laws.jobs import LAWS, Deletion, DriverRun, JobsEvidence, JobState


def judge(
    seen: Iterable[ObservedState], drivers: Sequence[DriverRun], *, end: float
) -> list[Violation]:
    """Return a violation for every law (rule) about RayJobs that the run breaks.

    A violation is reported for the top owner of the object that broke the law, at the time of the
    object's last recorded state. An object without a recorded state is reported itself, at `end`,
    the end of the run in seconds.
    """
    ordered = sorted(seen, key=lambda state: state.version)
    last_states = _find_last_states(ordered, drivers)
    return [
        _build_violation(broken, last_states.get(broken.subject), end=end)
        for broken in find_broken(LAWS, collect(ordered, drivers))
    ]


def _build_violation(broken: Broken, last_state: ObservedState | None, *, end: float) -> Violation:
    about, at = broken.subject, end
    if last_state is not None:
        at = last_state.at
        root = find_top_owner(last_state.kind, last_state.object.metadata, {})
        if root is not None:
            about = f"{root.namespace}/{root.name}"
    return Violation(rule=broken.law, about=about, text=broken.text, at=at)


def _find_last_states(
    ordered: Iterable[ObservedState], drivers: Iterable[DriverRun]
) -> dict[str, ObservedState]:
    """Return, for each subject of a law (rule), the last recorded state that shows it.

    Subjects are RayJobs, job IDs and scheduled runs. For a job ID that no RayJob has named, the
    state is the last one of the RayCluster on which the job's driver ran.
    """
    last_states: dict[str, ObservedState] = {}
    clusters: dict[str, ObservedState] = {}
    for seen in ordered:
        if seen.kind == "RayJob":
            state = _build_job_state(seen)
            last_states |= dict.fromkeys((state.job, state.job_id, state.run), seen)
        elif seen.kind == "RayCluster":
            clusters[seen.object.metadata.name] = seen
    for run in drivers:
        if run.job_id not in last_states and run.cluster in clusters:
            last_states[run.job_id] = clusters[run.cluster]
    return last_states


def collect(seen: Iterable[ObservedState], drivers: Sequence[DriverRun]) -> JobsEvidence:
    """Return the evidence for the laws (rules) about RayJobs, in the order of resource versions."""
    ordered = sorted(seen, key=lambda state: state.version)
    return JobsEvidence(
        states=[_build_job_state(state) for state in ordered if state.kind == "RayJob"],
        drivers=drivers,
        deletions=list(_list_deletions(ordered)),
    )


def _build_job_state(seen: ObservedState) -> JobState:
    meta, status = seen.object.metadata, seen.object.status
    cron_job = meta.labels.get(labels.CRON_JOB_NAME)
    run = f"{cron_job} of {meta.annotations.get(labels.CRON_JOB_TIMESTAMP, '')}" if cron_job else ""
    return JobState(
        job=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        version=seen.version,
        at=seen.at,
        job_id=status.job_id,
        cluster=status.ray_cluster_name,
        state=status.job_deployment_status,
        ray=status.job_status,
        reason=status.reason,
        succeeded=status.succeeded or 0,
        failed=status.failed or 0,
        retries=seen.object.spec.backoff_limit or 0,
        is_deleting=meta.deletion_timestamp is not None,
        is_gone=seen.is_gone,
        run=run,
    )


def _list_deletions(ordered: Iterable[ObservedState]) -> Iterator[Deletion]:
    deleted: set[str] = set()
    for seen in ordered:
        meta = seen.object.metadata
        is_its = seen.kind == "RayCluster" and meta.labels.get(labels.ORIGIN_KIND) == "RayJob"
        if is_its and not seen.is_alive and meta.uid not in deleted:
            deleted.add(meta.uid)
            job = f"{meta.namespace}/{meta.labels.get(labels.ORIGIN_NAME, '')}"
            yield Deletion(cluster=meta.name, job=job, version=seen.version)
