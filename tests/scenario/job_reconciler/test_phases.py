"""A RayJob that is deleted or edited in any of its phases (spec rayjob §14, §21).

Whatever the edit is, no driver runs twice, no second cluster exists, and nothing is left after the
deletion.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.api.ray_job import DeploymentState
from common.kube.resources import JOB, RAY_CLUSTER, RAY_JOB
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_job import SUBMITTING_MODES, a_cluster_spec
from support.builders.ray_service import NAMESPACE

Reach = Callable[[Harness, Json], Awaitable[None]]
MAX_TEXT: Final = 1_000_000


async def initialize(harness: Harness, spec: Json) -> None:
    harness.fake_clusters.holds_pods = True
    harness.apply(**spec)
    await harness.until(lambda: bool(harness.clusters))


async def run(harness: Harness, spec: Json) -> None:
    harness.apply(**spec)
    await harness.until_running()


async def wait(harness: Harness, spec: Json) -> None:
    harness.apply(**_edited(spec, submissionMode="InteractiveMode", backoffLimit=0))
    await harness.until_state("Waiting")


async def retry(harness: Harness, spec: Json) -> None:
    await run(harness, spec)
    harness.hold_cluster()
    harness.end("FAILED")
    await harness.until_state("Retrying")


async def suspend(harness: Harness, spec: Json) -> None:
    await run(harness, spec)
    harness.hold_cluster()
    harness.apply(**_edited(spec, suspend=True))
    await harness.until_state("Suspending")


async def rest(harness: Harness, spec: Json) -> None:
    harness.apply(**_edited(spec, suspend=True))
    await harness.until_state("Suspended")


async def refuse(harness: Harness, spec: Json) -> None:
    await run(harness, spec)
    harness.apply(**_edited(spec, backoffLimit=-1))
    await harness.until_state("ValidationFailed")


async def complete(harness: Harness, spec: Json) -> None:
    await run(harness, spec)
    harness.end()
    await harness.until_state("Complete")


def _edited(spec: Json, **fields: Any) -> Json:
    return {**spec, **fields}


def _release(harness: Harness) -> None:
    """Allow all deletions."""
    for cluster in harness.kube.all(RAY_CLUSTER):
        meta = cluster["metadata"]
        if "deletionTimestamp" in meta:
            harness.kube.finish_deletion(RAY_CLUSTER, NAMESPACE, meta["name"])
        elif "finalizers" in meta:
            kept = {field: value for field, value in meta.items() if field != "finalizers"}
            harness.kube.put(RAY_CLUSTER, {**cluster, "metadata": kept})


PHASES: Final[tuple[Reach, ...]] = (
    initialize,
    run,
    wait,
    retry,
    suspend,
    rest,
    refuse,
    complete,
)
SPEC: Final[Json] = {
    "backoffLimit": 1,
    "shutdownAfterJobFinishes": True,
    "ttlSecondsAfterFinished": 600,
}
EDITS: Final[dict[str, Json]] = {
    **{f"to {mode}": {"submissionMode": mode} for mode in (*SUBMITTING_MODES, "InteractiveMode")},
    "to an existing cluster": {
        "rayClusterSpec": None,
        "clusterSelector": {labels.CLUSTER: "none"},
        "backoffLimit": 0,
    },
    "suspended": {"suspend": True},
    "without retries": {"backoffLimit": 0},
    "another ID": {"jobId": "another"},
    "another entrypoint": {"entrypoint": "x" * MAX_TEXT},
    "a mode without an end": {"submissionMode": "x" * MAX_TEXT},
    "a hostile environment": {"runtimeEnvYAML": "{a: " * (MAX_TEXT // 4)},
    "another head": {"rayClusterSpec": a_cluster_spec(rayVersion="2.9.0")},
    "a short deadline": {"activeDeadlineSeconds": 1, "preRunningDeadlineSeconds": 1},
    "nothing at all": {"rayClusterSpec": None, "entrypoint": None},
}


async def _delete(harness: Harness) -> None:
    """Delete the RayJob, and check that none of its objects stays."""
    await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
    await harness.run(3)
    _release(harness)
    await harness.run(5)
    assert not harness.kube.all(RAY_JOB)
    assert not harness.kube.all(RAY_CLUSTER)
    assert not harness.kube.all(JOB)
    assert not harness.failed
    twice = {job: count for job, count in Counter(harness.starts).items() if count > 1}
    assert not twice


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
@pytest.mark.parametrize("reach", PHASES)
async def test_a_job_can_be_deleted_in_any_phase(reach: Reach, mode: str) -> None:
    harness = Harness()
    await reach(harness, {**SPEC, "submissionMode": mode})
    await _delete(harness)


@pytest.mark.parametrize("mode", SUBMITTING_MODES)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("reach", PHASES)
async def test_a_job_can_be_edited_in_any_phase(reach: Reach, edit: str, mode: str) -> None:
    harness = Harness()
    clusters = list[int]()

    def count(_kind: str, _body: Body, _is_gone: bool) -> None:
        clusters.append(len(harness.clusters))

    harness.kube.on_change.append(count)
    spec = _edited(SPEC, submissionMode=mode)
    await reach(harness, spec)
    harness.apply(**_edited(spec, **EDITS[edit]))
    await harness.run(5)
    _release(harness)
    harness.fake_clusters.holds_pods = False
    await harness.run(5)
    harness.apply(**spec)
    await harness.run(10)
    assert max(clusters) == 1
    assert len(harness.status.get("message", "")) < 10_000
    await _delete(harness)


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00"],
)
@pytest.mark.parametrize("state", [state.value for state in DeploymentState])
async def test_a_status_may_have_any_time(state: str, moment: str) -> None:
    harness = Harness()
    longest = 2**31 - 1
    spec: Json = {
        **SPEC,
        "activeDeadlineSeconds": longest,
        "preRunningDeadlineSeconds": longest,
        "ttlSecondsAfterFinished": longest,
    }
    await run(harness, spec)
    times = dict.fromkeys(("startTime", "endTime", "jobStatusCheckFailureStartTime"), moment)
    of_ray = {"startTime": moment, "endTime": moment}
    forged = {**harness.status, **times, "rayJobInfo": of_ray, "jobDeploymentStatus": state}
    harness.kube.set_status(RAY_JOB, NAMESPACE, NAME, forged)
    await harness.run(5)
    await _delete(harness)
