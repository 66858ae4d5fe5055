"""RayJob and RayCronJob as the API has them (spec rayjob §2.2, §2.3, §20.1)."""

import msgspec
import pytest

from common.api import go_types, ray_cron_job, ray_job

META = {"name": "train", "namespace": "default"}


def test_a_first_status_has_the_two_empty_parts_and_no_empty_text() -> None:
    status = msgspec.to_builtins(ray_job.RayJobStatus(succeeded=0, failed=0))
    assert status == {
        "rayJobInfo": {},
        "rayClusterStatus": {
            "desiredCPU": "0",
            "desiredMemory": "0",
            "desiredGPU": "0",
            "desiredTPU": "0",
            "head": {},
        },
        "succeeded": 0,
        "failed": 0,
    }


def test_a_job_reads_every_field_by_its_name() -> None:
    spec = {
        "entrypoint": "python main.py",
        "runtimeEnvYAML": "pip: [torch]",
        "jobId": "train-1",
        "submissionMode": "HTTPMode",
        "entrypointNumCpus": 0.5,
        "entrypointNumGpus": 1,
        "ttlSecondsAfterFinished": 60,
        "preRunningDeadlineSeconds": 30,
        "metadata": {"team": "a"},
        "clusterSelector": {"ray.io/cluster": "shared"},
        "deletionStrategy": {
            "deletionRules": [
                {"policy": "DeleteWorkers", "condition": {"jobStatus": "FAILED", "ttlSeconds": 5}}
            ]
        },
    }
    job = ray_job.decode({"metadata": META, "spec": spec})
    assert msgspec.to_builtins(job.spec) == spec
    assert job.manager == "ray.io/kuberay-operator"


def test_an_absent_submission_mode_is_the_default_of_the_crd() -> None:
    (field,) = (
        field
        for field in go_types.known()[go_types.JOB_SPEC].fields
        if field.name == "submissionMode"
    )
    mode = ray_job.decode({"metadata": META}).spec.submission_mode
    assert field.default == f'"{mode}"' == '"K8sJobMode"'


def test_an_invalid_field_fails_where_the_spec_is_used() -> None:
    job = ray_job.decode({"metadata": META, "spec": {"backoffLimit": "many"}})
    with pytest.raises(msgspec.ValidationError, match="backoffLimit"):
        _ = job.spec


def test_a_cron_job_keeps_the_template_as_written() -> None:
    template = {"entrypoint": "echo", "unknownField": 1}
    spec = {"schedule": "@daily", "timeZone": "Asia/Taipei", "jobTemplate": template}
    cron = ray_cron_job.decode(
        {
            "metadata": META,
            "spec": spec,
            "status": {"lastScheduleTime": "2026-01-02T03:04:00Z"},
        }
    )
    assert cron.raw_job_template == template
    assert (cron.spec.schedule, cron.spec.time_zone) == ("@daily", "Asia/Taipei")
    assert cron.spec.job_template.entrypoint == "echo"
    assert cron.spec.suspend is None
    assert msgspec.to_builtins(cron.status) == {"lastScheduleTime": "2026-01-02T03:04:00Z"}
