"""Predicts what job-reconciler would do with a RayJob or RayCronJob of KubeRay."""

from collections.abc import Iterator
from typing import Final

from common import labels
from common.api import ray_cron_job, ray_job
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import DeploymentState, RayJob
from common.feature_gates import FeatureGate
from common.validation import ray_job as job_rules
from job_reconciler.cron import validation as cron_rules
from job_reconciler.cron.validation import InvalidCronJob
from job_reconciler.settings import Config
from raybus_cli.migrating import findings
from raybus_cli.migrating.findings import MigrationFinding, Subject
from raybus_cli.reading.job_snapshot import FINISHED

_OTHERS: Final = "belongs to neither operator: spec.managedBy names another one"
_CORRECT: Final = "correct the spec before KubeRay stops"


def judge_job(job: RayJob, config: Config) -> Subject:
    """Return what would change on a RayJob if raybus replaced KubeRay's operator."""
    meta = job.metadata
    return findings.build_subject(ray_job.KIND, meta.namespace, meta.name, _judge_job(job, config))


def judge_cron_job(cron_job: RayCronJob, config: Config) -> Subject:
    """Return what would change on a RayCronJob if raybus replaced KubeRay's operator."""
    meta = cron_job.metadata
    all_findings = _judge_cron_job(cron_job, config)
    return findings.build_subject(ray_cron_job.KIND, meta.namespace, meta.name, all_findings)


def _judge_job(job: RayJob, config: Config) -> Iterator[MigrationFinding]:
    state = job.status.job_deployment_status
    if job.manager != labels.MANAGED_BY_US:
        yield findings.add_note(_OTHERS)
    elif state in FINISHED:
        yield findings.add_note(f"is over ({state}); raybus only cleans up after it")
    elif violation := job_rules.metadata(job.metadata) or job_rules.spec(job, config.gates):
        text = f"raybus does not accept it: {violation}"
        is_known = state == DeploymentState.VALIDATION_FAILED
        yield findings.add_note(text) if is_known else findings.report_change(text, _CORRECT)


def _judge_cron_job(cron_job: RayCronJob, config: Config) -> Iterator[MigrationFinding]:
    if cron_job.raw_spec.get("suspend") is True:
        yield findings.add_note("is suspended")
        return
    if FeatureGate.CRON_JOB not in config.gates:
        yield findings.report_change(
            "the gate RayCronJob is off in raybus, so no run would start",
            "set RAYBUS_FEATURE_GATES=RayCronJob=true on job-reconciler",
        )
    try:
        cron_rules.parse(cron_job, config.local_zone, config.gates)
    except InvalidCronJob as error:
        yield findings.report_change(f"raybus does not accept it: {error}", _CORRECT)
