"""What is deleted after the end of a RayJob (spec rayjob §13)."""

from collections.abc import Callable

import pytest

from common.api.opaque import Json
from common.kube.resources import POD, RAY_CLUSTER, RAY_JOB
from job_reconciler.settings import Config
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_job import SUBMITTING_MODES
from support.builders.ray_service import NAMESPACE

Left = Callable[[Harness], bool]


def a_rule(policy: str, seconds: int, **condition: str) -> Json:
    """Return a deletion rule, by default for a success."""
    when = condition or {"jobStatus": "SUCCEEDED"}
    return {"policy": policy, "condition": {**when, "ttlSeconds": seconds}}


def are_workers_suspended(harness: Harness) -> bool:
    """Return whether the cluster has only its head left, and is ready."""
    (cluster,) = harness.kube.all(RAY_CLUSTER)
    head = (POD.kind, NAMESPACE, f"{cluster['metadata']['name']}-head")
    suspended = [group.get("suspend") for group in cluster["spec"]["workerGroupSpecs"]]
    is_ready = cluster["status"]["state"] == "ready"
    return suspended == [True] and is_ready and head in harness.kube.objects


def is_cluster_gone(harness: Harness) -> bool:
    """Return whether only the cluster was deleted."""
    return not harness.clusters and bool(harness.kube.all(RAY_JOB))


def is_all_gone(harness: Harness) -> bool:
    """Return whether every object of the job was deleted."""
    return not harness.clusters and not harness.kube.all(RAY_JOB) and harness.submitter is None


def is_untouched(harness: Harness) -> bool:
    """Return whether nothing was deleted or suspended."""
    (cluster,) = harness.kube.all(RAY_CLUSTER)
    suspended = [group.get("suspend", False) for group in cluster["spec"]["workerGroupSpecs"]]
    return suspended == [False] and bool(harness.kube.all(RAY_JOB))


POLICIES: list[tuple[str, Left]] = [
    ("DeleteWorkers", are_workers_suspended),
    ("DeleteCluster", is_cluster_gone),
    ("DeleteSelf", is_all_gone),
    ("DeleteNone", is_untouched),
]


@pytest.mark.acceptance("rayjob", 106)
@pytest.mark.parametrize("mode", SUBMITTING_MODES)
async def test_a_shutdown_follows_the_end_at_once(mode: str) -> None:
    harness = Harness()
    harness.apply(submissionMode=mode, shutdownAfterJobFinishes=True)
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    await harness.run(1)
    assert is_cluster_gone(harness)


@pytest.mark.acceptance("rayjob", 108)
async def test_a_shutdown_may_delete_the_job_itself() -> None:
    harness = Harness(config=Config(deletes_job_itself=True))
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    harness.end()
    await harness.until(lambda: not harness.kube.all(RAY_JOB), seconds=10)
    assert harness.states[-1] == "Complete"
    assert is_all_gone(harness)


@pytest.mark.acceptance("rayjob", 109, 110)
@pytest.mark.parametrize(("policy", "is_done"), POLICIES)
async def test_a_rule_is_carried_out_after_its_time(policy: str, is_done: Left) -> None:
    harness = Harness()
    harness.apply(deletionStrategy={"deletionRules": [a_rule(policy, 10)]})
    await harness.until_running()
    harness.end()
    await harness.until_state("Complete")
    await harness.run(8)
    assert is_untouched(harness)
    await harness.run(8)
    assert is_done(harness)


@pytest.mark.acceptance("rayjob", 113)
@pytest.mark.parametrize(("policy", "is_done"), POLICIES)
async def test_a_rule_is_carried_out_after_a_deadline(policy: str, is_done: Left) -> None:
    harness = Harness()
    rule = a_rule(policy, 10, jobDeploymentStatus="Failed")
    harness.apply(activeDeadlineSeconds=20, deletionStrategy={"deletionRules": [rule]})
    await harness.until_running()
    await harness.until_state("Failed")
    assert (harness.status["reason"], harness.status["jobStatus"]) == (
        "DeadlineExceeded",
        "RUNNING",
    )
    await harness.run(8)
    assert is_untouched(harness)
    await harness.run(8)
    assert is_done(harness)


@pytest.mark.acceptance("rayjob", 115)
async def test_a_strategy_without_a_rule_for_the_end_is_told() -> None:
    harness = Harness()
    rules = [a_rule("DeleteCluster", 0), a_rule("DeleteCluster", 0, jobStatus="FAILED")]
    harness.apply(deletionStrategy={"deletionRules": rules})
    await harness.until_running()
    harness.end("STOPPED", "stopped by hand")
    await harness.until_state("Complete")
    await harness.run(60)
    assert is_untouched(harness)
    ((level, note),) = [
        (level, note)
        for level, reason, note in harness.kube.events()
        if reason == "NoDeletionRuleMatched"
    ]
    assert level == "Warning"
    assert "ended with jobStatus STOPPED" in note
    assert harness.status["message"] == f"stopped by hand {note}"
    before = len(harness.kube.writes())
    await harness.run(60)
    assert harness.kube.writes()[before:] == []
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.run(3)
    assert is_cluster_gone(harness)
    assert harness.status["message"] == "stopped by hand"


@pytest.mark.acceptance("rayjob", 115)
async def test_a_shutdown_counts_for_a_job_that_was_stopped() -> None:
    harness = Harness()
    harness.apply(shutdownAfterJobFinishes=True)
    await harness.until_running()
    harness.end("STOPPED")
    await harness.until_state("Complete")
    await harness.run(3)
    assert is_cluster_gone(harness)
    assert harness.kube.objects[RAY_JOB.kind, NAMESPACE, NAME]
    assert not harness.notes("NoDeletionRuleMatched")
