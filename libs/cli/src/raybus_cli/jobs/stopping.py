"""Decides how `raybus stop` stops a RayJob. Does no I/O."""

import msgspec

from common import errors, labels
from common.api.ray_job import RayJob
from common.feature_gates import BETA
from common.kube.client import PatchRequest
from common.validation import ray_job as rules
from raybus_cli.reading.job_snapshot import ENDED, QUEUE_NAME


def build_suspension(job: RayJob) -> PatchRequest:
    """Return the patch that suspends a RayJob.

    Raises `Rejected` for a RayJob that has ended, that is suspended already, or that cannot be
    suspended.
    """
    meta, state = job.metadata, job.status.job_deployment_status
    if state in ENDED:
        raise errors.Rejected(f"RayJob {meta.name} has ended already: {state}")
    if job.raw_spec.get("suspend") is True:
        raise errors.Rejected(f"RayJob {meta.name} is suspended already")
    if (why := _find_obstacle(job)) is not None:
        raise errors.Rejected(
            f"RayJob {meta.name} cannot be suspended: {why}; 'raybus stop {meta.name} --delete' "
            "stops it and deletes it"
        )
    return PatchRequest(body={"metadata": {"uid": meta.uid}, "spec": {"suspend": True}})


def _find_obstacle(job: RayJob) -> str | None:
    if job.manager != labels.MANAGED_BY_US:
        return f"spec.managedBy is {job.manager}, so raybus does not manage it"
    if QUEUE_NAME in job.metadata.labels:
        return "Kueue would resume it"
    spec_json = msgspec.json.encode({**job.raw_spec, "suspend": True})
    suspended = msgspec.structs.replace(job, spec_json=msgspec.Raw(spec_json))
    return rules.spec(suspended, BETA)
