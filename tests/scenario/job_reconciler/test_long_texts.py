"""Texts of up to 1 MB in the fields of RayJobs and RayCronJobs.

KubeRay's CRDs, which may stay installed, limit no text, and etcd accepts objects of 1.5 MB.
"""

import time
from typing import Any, Final

import pytest

from common import labels
from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import RAY_JOB
from job_reconciler.settings import Config
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_job import a_cluster_spec
from support.builders.ray_service import NAMESPACE

SIZE: Final = 1_000_000
MAX_SECONDS: Final = 3.0
"""Seconds of processor time for all reconciles of a few seconds. A healthy job takes 0.1 s."""
MAX_STATUS: Final = 20_000
TEXTS: Final = {
    "letters": "x" * SIZE,
    "lines": "a\n" * (SIZE // 3),
    "shell": "$(" * (SIZE // 2),
    "mappings": "{a: " * (SIZE // 4),
    "anchors": "&a [*a," * (SIZE // 8),
    "brackets": "[" * SIZE,
    "zeros": "\x00" * (SIZE // 6),
}


def fields_with(text: str) -> dict[str, Json]:
    """Return a spec for each field that may have a text."""
    return {
        "entrypoint": {"entrypoint": text},
        "runtime environment": {"runtimeEnvYAML": text},
        "value of the environment": {"runtimeEnvYAML": f"a: {text}"},
        "metadata": {"metadata": {"a": text}},
        "key of the metadata": {"metadata": {text: "a"}},
        "resources": {"entrypointResources": text},
        "ID": {"jobId": text},
        "mode": {"submissionMode": text},
        "selector": {"clusterSelector": {labels.CLUSTER: text}},
        "version": {
            "metadata": {"a": "b"},
            "rayClusterSpec": a_cluster_spec(rayVersion=text),
        },
        "upgrade": {"rayClusterSpec": a_cluster_spec(upgradeStrategy={"type": text})},
    }


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
@pytest.mark.parametrize("field", fields_with(""))
@pytest.mark.parametrize("text", TEXTS)
async def test_a_long_text_is_used_or_refused_and_costs_little(
    text: str, field: str, mode: str
) -> None:
    harness = Harness()
    spec: dict[str, Any] = {"submissionMode": mode, **fields_with(TEXTS[text])[field]}
    began = time.process_time()
    harness.apply(**spec)
    await harness.run(5)
    assert harness.state in {"Running", "ValidationFailed", "Failed", "Initializing"}
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(2)
    assert time.process_time() - began < MAX_SECONDS
    assert not harness.kube.all(RAY_JOB)


@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
async def test_a_long_illegal_value_is_shortened_in_the_status(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode)
    await harness.until_running()
    harness.apply(submissionMode="x" * SIZE)
    await harness.until_state("ValidationFailed", seconds=2)
    assert "spec.submissionMode is 'xxx" in harness.status["message"]
    assert len(str(harness.status)) < MAX_STATUS
    assert not harness.failed


@pytest.mark.parametrize(
    "schedule",
    [
        f"{'1,' * (SIZE // 2)}1 * * * *",
        f"{'0-59,' * (SIZE // 5)}1 * * * *",
        "*/1 " * (SIZE // 4),
        f"@every {'1h' * (SIZE // 2)}",
        f"{'9' * SIZE} * * * *",
    ],
    ids=["list", "ranges", "fields", "duration", "number"],
)
async def test_a_long_schedule_costs_little(schedule: str) -> None:
    harness = Harness(config=Config(gates=BETA | {FeatureGate.CRON_JOB}))
    began = time.process_time()
    harness.apply_cron_job(schedule=schedule)
    await harness.run(70)
    assert time.process_time() - began < MAX_SECONDS
    assert not harness.kube.all(RAY_JOB)
    assert set(harness.reasons()) == {"InvalidRayCronJobSpec"}
