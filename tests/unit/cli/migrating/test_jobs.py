"""What a take-over changes on RayJobs and RayCronJobs: nothing, unless raybus accepts less."""

from typing import Any

from common.api import ray_cron_job
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.feature_gates import BETA, FeatureGate
from job_reconciler.settings import Config
from raybus_cli.migrating import jobs
from support.builders.ray_job import a_ray_job
from support.tables import cases

ON = Config(gates=BETA | {FeatureGate.CRON_JOB})


def a_job(state: str, **spec: Any) -> RayJob:
    return a_ray_job(status={"jobDeploymentStatus": state}, **spec)


def a_cron_job(schedule: str = "30 2 * * *", **spec: Any) -> RayCronJob:
    template = a_ray_job().raw_spec
    return ray_cron_job.decode(
        {
            "metadata": {"name": "nightly", "namespace": "shop"},
            "spec": {"schedule": schedule, "jobTemplate": template, **spec},
        }
    )


@cases(
    ("job", "verdict", "text"),
    {
        "not begun": (a_job(""), "nothing", ""),
        "it runs": (a_job("Running"), "nothing", ""),
        "it is over": (a_job("Complete"), "nothing", "is over (Complete)"),
        "Kueue's": (
            a_job("Running", managedBy="kueue.x-k8s.io/multikueue", backoffLimit=-1),
            "nothing",
            "belongs to neither operator",
        ),
        "it breaks a rule": (
            a_job("Running", backoffLimit=-1),
            "change",
            "backoffLimit must be a positive integer",
        ),
        "KubeRay does not accept it either": (
            a_job("ValidationFailed", backoffLimit=-1),
            "nothing",
            "backoffLimit must be a positive integer",
        ),
    },
)
def test_a_job_goes_on(job: RayJob, verdict: str, text: str) -> None:
    found = jobs.judge_job(job, ON)
    assert (found.kind, found.verdict) == ("RayJob", verdict)
    assert text in "".join(finding.text for finding in found.findings)
    assert bool(found.findings) is bool(text)


@cases(
    ("cron_job", "config", "texts"),
    {
        "it goes on": (a_cron_job(), ON, []),
        "suspended": (a_cron_job(suspend=True), Config(), ["is suspended"]),
        "no gate": (a_cron_job(), Config(), ["the gate RayCronJob is off"]),
        "an impossible date": (a_cron_job("0 0 30 2 *"), ON, ["raybus does not accept it"]),
    },
)
def test_a_schedule_goes_on_behind_its_gate(
    cron_job: RayCronJob, config: Config, texts: list[str]
) -> None:
    found = jobs.judge_cron_job(cron_job, config)
    assert found.kind == "RayCronJob"
    assert found.verdict == ("nothing" if texts in ([], ["is suspended"]) else "change")
    assert len(found.findings) == len(texts)
    assert all(
        finding.text.startswith(text) for finding, text in zip(found.findings, texts, strict=True)
    )
