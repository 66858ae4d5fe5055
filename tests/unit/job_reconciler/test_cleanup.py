"""What is deleted after the end of a RayJob, and when (spec rayjob §13)."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from common.api.opaque import Json
from common.api.ray_job import RayJob
from common.feature_gates import BETA, FeatureGate
from job_reconciler import cleanup
from job_reconciler.cleanup import Cleanup, ClusterFacts
from support.builders.ray_job import a_ray_job

END = datetime(2026, 8, 19, 9, 30, tzinfo=UTC)
THERE = ClusterFacts()
GONE = ClusterFacts(exists=False)
REDUCED = ClusterFacts(are_workers_suspended=True)
SELECTOR = {"ray.io/cluster": "shared"}


def _at(seconds: float) -> datetime:
    return END + timedelta(seconds=seconds)


def _ended(state: str = "Complete", job_state: str = "SUCCEEDED", **spec: Any) -> RayJob:
    status = {"jobDeploymentStatus": state, "jobStatus": job_state, "endTime": END.isoformat()}
    return a_ray_job(status=status, **spec)


def _rule(policy: str, ttl: int, **condition: str) -> Json:
    named = condition or {"jobStatus": "SUCCEEDED"}
    return {"policy": policy, "condition": {"ttlSeconds": ttl, **named}}


def _rules(*rules: Json) -> Json:
    return {"deletionRules": list(rules)}


def _legacy(success: str, failure: str) -> Json:
    return {"onSuccess": {"policy": success}, "onFailure": {"policy": failure}}


def _decide(job: RayJob, seconds: float, cluster: ClusterFacts = THERE) -> Cleanup:
    return cleanup.decide(job, cluster, BETA, _at(seconds))


STAGES = _rules(_rule("DeleteWorkers", 15), _rule("DeleteCluster", 35), _rule("DeleteSelf", 55))


def test_without_an_order_to_delete_everything_stays() -> None:
    assert _decide(_ended(), 3600) == Cleanup()


@pytest.mark.acceptance("rayjob", 107)
def test_a_shutdown_waits_for_its_delay() -> None:
    job = _ended("Failed", "FAILED", shutdownAfterJobFinishes=True, ttlSecondsAfterFinished=600)
    assert _decide(job, 599) == Cleanup(requeue_at=_at(602))
    assert _decide(job, 602) == Cleanup(policy="DeleteCluster")
    assert _decide(job, 602, GONE) == Cleanup()


@pytest.mark.parametrize(("state", "job_state"), [("Failed", ""), ("Complete", "STOPPED")])
def test_a_shutdown_counts_for_every_end(state: str, job_state: str) -> None:
    job = _ended(state, job_state, shutdownAfterJobFinishes=True)
    assert _decide(job, 0) == Cleanup(policy="DeleteCluster")


def test_a_setting_deletes_the_job_itself() -> None:
    job = _ended(shutdownAfterJobFinishes=True)
    decision = cleanup.decide(job, GONE, BETA, END, deletes_job_itself=True)
    assert decision.policy == "DeleteSelf"
    assert cleanup.decide(_ended(), GONE, BETA, END, deletes_job_itself=True) == Cleanup()


@pytest.mark.acceptance("rayjob", 111)
def test_rules_follow_each_other() -> None:
    job = _ended(deletionStrategy=STAGES)
    assert _decide(job, 14) == Cleanup(requeue_at=_at(17))
    assert _decide(job, 15) == Cleanup(policy="DeleteWorkers", requeue_at=_at(37))
    assert _decide(job, 20, REDUCED) == Cleanup(requeue_at=_at(37))
    assert _decide(job, 36, REDUCED) == Cleanup(policy="DeleteCluster", requeue_at=_at(57))
    assert _decide(job, 40, GONE) == Cleanup(requeue_at=_at(57))
    assert _decide(job, 57, GONE) == Cleanup(policy="DeleteSelf")


@pytest.mark.acceptance("rayjob", 112)
def test_of_overdue_rules_the_most_destructive_is_done() -> None:
    assert _decide(_ended(deletionStrategy=STAGES), 3600) == Cleanup(policy="DeleteSelf")


def test_a_rule_on_the_deployment_status_is_for_failures() -> None:
    strategy = _rules(_rule("DeleteCluster", 10, jobDeploymentStatus="Failed"))
    job = _ended("Failed", "RUNNING", deletionStrategy=strategy)
    assert _decide(job, 10) == Cleanup(policy="DeleteCluster")
    assert _decide(_ended(deletionStrategy=strategy), 10).policy is None


def test_delete_none_deletes_nothing_and_is_no_problem() -> None:
    job = _ended(deletionStrategy=_rules(_rule("DeleteNone", 5)))
    assert _decide(job, 0) == Cleanup()
    assert _decide(job, 10) == Cleanup()


def test_a_strategy_without_a_rule_for_the_end_is_reported() -> None:
    strategy = _rules(_rule("DeleteCluster", 0), _rule("DeleteCluster", 0, jobStatus="FAILED"))
    decision = _decide(_ended("Complete", "STOPPED", deletionStrategy=strategy), 60)
    assert decision.policy is None
    assert decision.requeue_at is None
    assert decision.problem == (
        "spec.deletionStrategy has no policy for a job that ended with jobStatus STOPPED and "
        "jobDeploymentStatus Complete, so nothing is deleted"
    )


@pytest.mark.acceptance("rayjob", 114)
@pytest.mark.parametrize(("state", "job_state"), [("Complete", "SUCCEEDED"), ("Failed", "FAILED")])
def test_the_older_policies_wait_for_the_delay_of_the_job(state: str, job_state: str) -> None:
    job = _ended(
        state,
        job_state,
        deletionStrategy=_legacy("DeleteCluster", "DeleteCluster"),
        shutdownAfterJobFinishes=True,
        ttlSecondsAfterFinished=10,
    )
    assert _decide(job, 9) == Cleanup(requeue_at=_at(12))
    assert _decide(job, 12) == Cleanup(policy="DeleteCluster")


def test_each_older_policy_is_for_its_end() -> None:
    strategy = _legacy("DeleteWorkers", "DeleteSelf")
    assert _decide(_ended(deletionStrategy=strategy), 0).policy == "DeleteWorkers"
    unreported = _ended("Failed", "RUNNING", deletionStrategy=strategy)
    assert _decide(unreported, 0).policy == "DeleteSelf"
    stopped = _decide(_ended("Complete", "STOPPED", deletionStrategy=strategy), 0)
    assert stopped.policy is None
    assert stopped.problem


@pytest.mark.acceptance("rayjob", 116)
@pytest.mark.parametrize("cluster", [REDUCED, GONE])
def test_an_older_policy_is_not_repeated(cluster: ClusterFacts) -> None:
    job = _ended(deletionStrategy=_legacy("DeleteWorkers", "DeleteWorkers"))
    assert _decide(job, 0) == Cleanup(policy="DeleteWorkers")
    assert _decide(job, 0, cluster) == Cleanup()


@pytest.mark.acceptance("rayjob", 38)
def test_a_selected_cluster_stays_and_its_job_can_go() -> None:
    shutdown = _ended(clusterSelector=SELECTOR, shutdownAfterJobFinishes=True)
    assert _decide(shutdown, 60) == Cleanup()
    rule = _rules(_rule("DeleteSelf", 5))
    job = _ended(clusterSelector=SELECTOR, deletionStrategy=rule)
    assert _decide(job, 0) == Cleanup(requeue_at=_at(7))
    assert _decide(job, 5) == Cleanup(policy="DeleteSelf")


def test_without_the_gate_a_strategy_does_not_count() -> None:
    job = _ended(deletionStrategy=STAGES)
    assert cleanup.decide(job, THERE, BETA - {FeatureGate.DELETION_POLICY}, _at(3600)) == Cleanup()


def test_a_job_without_an_end_is_left_alone() -> None:
    job = a_ray_job(status={"jobDeploymentStatus": "Complete"}, shutdownAfterJobFinishes=True)
    assert _decide(job, 3600) == Cleanup()
