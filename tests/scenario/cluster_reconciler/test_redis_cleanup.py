"""The end of a cluster with the state of its GCS in Redis (spec raycluster §25, cases 29-38)."""

from typing import Any, Final

import msgspec
import pytest

from cluster_reconciler.config import Config
from common import labels
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, POD, RAY_CLUSTER
from scenario.cluster_reconciler.harness import Harness, a_running_harness
from support.builders.ray_cluster import a_group, a_ray_cluster

REDIS: dict[str, Any] = {"redisAddress": "redis:6379"}


def a_tolerant_cluster(**fields: Any) -> RayCluster:
    return a_ray_cluster(gcs_fault_tolerance_options=REDIS, **fields)


async def a_dying_harness(**fields: Any) -> Harness:
    """Return a harness with a deleted cluster and its pods Terminating."""
    harness = await a_running_harness(a_tolerant_cluster(**fields))
    harness.kube.graceful_pods = True
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    return harness


def is_there(harness: Harness) -> bool:
    return ("RayCluster", "ns", "c") in harness.kube.objects


@pytest.mark.acceptance("raycluster", 29)
async def test_the_finalizer_comes_before_anything_else() -> None:
    harness = Harness()
    harness.apply(a_tolerant_cluster())
    await harness.reconcile()
    assert harness.kube.writes() == ["patch RayCluster c"]
    assert harness.cluster().metadata.finalizers == [labels.GCS_FT_FINALIZER]
    await harness.settle()
    assert len(harness.names()) == 4


@pytest.mark.acceptance("raycluster", 34)
async def test_without_cleanup_there_is_no_finalizer() -> None:
    harness = Harness(Config(cleans_up_redis=False))
    harness.apply(a_tolerant_cluster())
    await harness.settle()
    assert harness.cluster().metadata.finalizers == []


@pytest.mark.acceptance("raycluster", 30)
async def test_pods_go_first_and_no_job_comes_while_the_head_is_there() -> None:
    harness = await a_dying_harness()
    assert [text for text in harness.kube.writes() if text.startswith("deletecollection")] == [
        f"deletecollection Pod {labels.CLUSTER}=c,{labels.NODE_TYPE}=head",
        f"deletecollection Pod {labels.CLUSTER}=c,{labels.NODE_TYPE}=worker",
    ]
    assert harness.kube.all(JOB, "ns") == []
    assert is_there(harness)


@pytest.mark.parametrize("condition", ["Complete", "Failed", "FailureTarget"])
@pytest.mark.acceptance("raycluster", 31, 32)
async def test_the_cluster_goes_when_the_job_has_ended_in_any_way(condition: str) -> None:
    harness = await a_dying_harness()
    harness.finish_deletions()
    await harness.settle()
    assert "CreatedRedisCleanupJob" in harness.reasons()
    assert is_there(harness)
    harness.kube.set_status(
        JOB, "ns", "c-redis-cleanup", {"conditions": [{"type": condition, "status": "True"}]}
    )
    await harness.settle()
    assert not is_there(harness)


@pytest.mark.parametrize(("annotation", "seconds"), [("5", 5), ("0", 300), ("x", 300), (None, 300)])
@pytest.mark.acceptance("raycluster", 33)
async def test_a_job_that_never_ends_does_not_hold_the_cluster_for_ever(
    annotation: str | None, seconds: int
) -> None:
    annotations = {labels.GCS_FT_DELETION_TIMEOUT: annotation} if annotation else {}
    harness = await a_dying_harness(annotations=annotations)
    harness.finish_deletions()
    await harness.settle()
    await harness.pass_time(seconds - 1)
    assert is_there(harness)
    await harness.pass_time(1)
    assert not is_there(harness)
    assert "ForceDeletedStuckCluster" in harness.reasons()


Change = dict[str, Any]
STORAGE: Final = {**REDIS, "externalStorageNamespace": "mine"}


class Deleted(msgspec.Struct, frozen=True):
    """A state in which a fault-tolerant cluster is deleted."""

    change: Change = {}
    """Fields of the spec that change before."""
    config: Config = Config()
    job: str = ""
    """The condition that its clean-up Job reaches; without one the head never ends."""
    reason: str = "ForceDeletedStuckCluster"
    problem: str = "head Pod"
    keeps_pods: bool = False


DELETED: Final = {
    "the node of the head is lost": Deleted(),
    "the Job never ends": Deleted(job="Suspended", problem="timeout"),
    "the Job has failed": Deleted(job="Failed", reason="RedisCleanupFailed", problem="failed"),
    "the options are removed": Deleted(
        {"gcsFaultToleranceOptions": None}, problem="the spec has no gcsFaultToleranceOptions"
    ),
    "the options have another namespace": Deleted({"gcsFaultToleranceOptions": REDIS}),
    "the spec breaks a rule": Deleted(
        {"workerGroupSpecs": [a_group(min_replicas=5, max_replicas=1)]},
        problem="minReplicas 5 greater than maxReplicas 1",
    ),
    "the spec cannot be read": Deleted({"workerGroupSpecs": 7}, problem="workerGroupSpecs"),
    "the upgrade strategy is invalid": Deleted(
        {"upgradeStrategy": {"type": "Sideways"}}, problem="Sideways"
    ),
    "clean-up is switched off": Deleted(
        config=Config(cleans_up_redis=False), problem="ENABLE_GCS_FT_REDIS_CLEANUP is false"
    ),
    "another controller manages it": Deleted(
        {"managedBy": "kueue.x-k8s.io/multikueue"},
        problem="kueue.x-k8s.io/multikueue",
        keeps_pods=True,
    ),
    "it is suspended": Deleted({"suspend": True}),
}


@pytest.mark.parametrize("state", DELETED.values(), ids=DELETED.keys())
async def test_the_finalizer_goes_in_every_state_and_an_event_names_what_is_left(
    state: Deleted,
) -> None:
    harness = await a_running_harness(a_ray_cluster(gcs_fault_tolerance_options=STORAGE))
    harness.config = state.config
    harness.start()
    harness.kube.graceful_pods = True
    body = harness.kube.objects["RayCluster", "ns", "c"]
    harness.kube.put(RAY_CLUSTER, body | {"spec": body["spec"] | state.change})
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    if not state.keeps_pods:
        assert all("deletionTimestamp" in each["metadata"] for each in harness.pods())
    if state.job:
        harness.finish_deletions()
        await harness.settle()
        ended = {"conditions": [{"type": state.job, "status": "True"}]}
        harness.kube.set_status(JOB, "ns", "c-redis-cleanup", ended)
        await harness.settle()
    await harness.pass_time(300)
    assert not is_there(harness)
    (note,) = (note for _, reason, note in harness.kube.events() if reason == state.reason)
    assert '"mine"' in note
    assert '"RAYmine@"' in note
    assert state.problem in note


async def test_the_storage_namespace_is_known_after_the_head_has_gone() -> None:
    harness = await a_running_harness(a_ray_cluster(gcs_fault_tolerance_options=STORAGE))
    harness.kube.graceful_pods = True
    body = harness.kube.objects["RayCluster", "ns", "c"]
    changed = {field: value for field, value in body["spec"].items() if "gcs" not in field}
    harness.kube.put(RAY_CLUSTER, body | {"spec": changed})
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    harness.finish_deletions()
    harness.start()
    await harness.settle()
    await harness.pass_time(300)
    (note,) = (
        note for _, reason, note in harness.kube.events() if reason == "ForceDeletedStuckCluster"
    )
    assert '"mine"' in note


async def test_a_job_cleans_what_the_head_wrote_to_although_the_options_changed_since() -> None:
    harness = await a_running_harness(a_ray_cluster(gcs_fault_tolerance_options=STORAGE))
    body = harness.kube.objects["RayCluster", "ns", "c"]
    changed = body["spec"] | {"gcsFaultToleranceOptions": REDIS}
    harness.kube.put(RAY_CLUSTER, body | {"spec": changed})
    await harness.settle()
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    (job,) = harness.kube.all(JOB, "ns")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["RAY_external_storage_namespace"] == "mine"


async def test_why_redis_cannot_be_cleaned_is_reported_while_it_can_be_corrected() -> None:
    harness = await a_running_harness(a_ray_cluster(gcs_fault_tolerance_options=STORAGE))
    body = harness.kube.objects["RayCluster", "ns", "c"]
    broken = body["spec"] | {"workerGroupSpecs": [a_group(min_replicas=5, max_replicas=1)]}
    harness.kube.put(RAY_CLUSTER, body | {"spec": broken})
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    assert "RedisCleanupBlocked" in harness.reasons()
    assert harness.kube.all(JOB, "ns") == []
    deleted = harness.kube.objects["RayCluster", "ns", "c"]
    harness.kube.put(RAY_CLUSTER, deleted | {"spec": body["spec"]})
    await harness.settle()
    assert len(harness.kube.all(JOB, "ns")) == 1


@pytest.mark.parametrize(("annotation", "is_kept"), [("9" * 15, True), ("9" * 5000, False)])
async def test_a_timeout_beyond_all_clocks_breaks_nothing(annotation: str, is_kept: bool) -> None:
    """As in KubeRay what is no number of 64 bits counts as absent."""
    harness = await a_dying_harness(annotations={labels.GCS_FT_DELETION_TIMEOUT: annotation})
    harness.finish_deletions()
    await harness.settle()
    await harness.pass_time(300)
    assert is_there(harness) is is_kept


async def test_a_worker_that_comes_late_is_deleted_while_the_job_runs() -> None:
    harness = await a_dying_harness()
    worker = next(
        each
        for each in harness.kube.all(POD, "ns")
        if each["metadata"]["labels"][labels.NODE_TYPE] == labels.WORKER
    )
    harness.finish_deletions()
    await harness.settle()
    assert len(harness.kube.all(JOB, "ns")) == 1
    late = {**worker["metadata"], "name": "late", "uid": "late"}
    del late["deletionTimestamp"]
    harness.kube.put(POD, {**worker, "metadata": late})
    await harness.settle()
    assert [
        each["metadata"]["name"]
        for each in harness.kube.all(POD, "ns")
        if "deletionTimestamp" not in each["metadata"]
    ] == []
