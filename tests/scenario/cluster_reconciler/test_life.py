"""A RayCluster's life on fakes, as a user follows it (spec raycluster §25, cases 19-28, 43-84, 111-114)."""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import ray_pod
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import POD, RAY_CLUSTER, ROLE, SERVICE, Resource
from common.validation import ray_cluster
from scenario.cluster_reconciler.harness import Harness, a_running_harness
from support.builders.ray_cluster import a_group, a_head, a_ray_cluster, a_template
from support.fakes.kube import FakeKube, refusing
from support.tables import cases


@pytest.mark.acceptance("raycluster", 19)
async def test_a_new_cluster_gets_its_service_then_its_head_then_its_workers() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    kinds = [text.rsplit("-", 1)[0] for text in harness.kube.writes()]
    assert kinds[:5] == ["create Service c-head", "create Pod c-head"] + 3 * [
        "create Pod c-g-worker"
    ]
    assert harness.reasons() == ["CreatedService", "CreatedHeadPod", "CreatedWorkerPod"]
    sources = {
        each.body["reportingController"] for each in harness.kube.requests if each.kind == "Event"
    }
    assert sources == {"raybus.io/cluster-reconciler"}


async def test_a_reconcile_checks_the_spec_once_and_builds_the_pod_of_a_group_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def count(module: object, name: str) -> None:
        original = getattr(module, name)

        def counted(*arguments: Any) -> Any:
            calls.append(name)
            return original(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(ray_cluster, "spec")
    count(ray_pod, "complete")
    harness = Harness()
    harness.apply(a_ray_cluster(groups=[a_group("a", replicas=5), a_group("b", replicas=2)]))
    await harness.reconcile()
    assert len(harness.pods()) == 8
    assert (calls.count("spec"), calls.count("complete")) == (1, 3)


@pytest.mark.acceptance("raycluster", 111)
async def test_a_cluster_with_all_pods_running_is_ready() -> None:
    harness = await a_running_harness()
    status = harness.cluster().status
    assert status.state == "ready"
    assert (
        status.ready_worker_replicas,
        status.available_worker_replicas,
        status.desired_worker_replicas,
    ) == (3, 3, 3)
    assert harness.conditions() == {
        "HeadPodReady": ("True", "HeadPodRunningAndReady"),
        "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
        "RayClusterSuspended": ("False", "RayClusterSuspended"),
        "RayClusterSuspending": ("False", "RayClusterSuspending"),
    }


@pytest.mark.acceptance("raycluster", 25, 28)
async def test_a_steady_cluster_is_reconciled_after_300_seconds_and_nothing_is_written() -> None:
    harness = await a_running_harness()
    await harness.pass_time(299)
    assert harness.kube.requests == []
    await harness.pass_time(1)
    assert harness.kube.requests == []
    harness.kube.finish_deletion(SERVICE, "ns", "c-head-svc")
    await harness.settle()
    assert harness.kube.writes() == ["create Service c-head-svc"]


async def test_a_reconcile_without_change_writes_nothing() -> None:
    harness = await a_running_harness()
    await harness.reconcile()
    assert harness.kube.requests == []


@pytest.mark.parametrize(("replicas", "pods"), [(5, 5), (1, 1), (0, 0), (20, 10)])
@pytest.mark.acceptance("raycluster", 51, 52, 54)
async def test_workers_follow_replicas_within_their_limits(replicas: int, pods: int) -> None:
    harness = await a_running_harness()
    harness.apply(a_ray_cluster(groups=[a_group(replicas=replicas)]))
    await harness.settle()
    assert len(harness.names("worker")) == pods
    assert harness.cluster().status.desired_worker_replicas == pods


@pytest.mark.acceptance("raycluster", 51)
async def test_new_workers_take_the_smallest_free_indexes() -> None:
    harness = await a_running_harness()
    second = next(
        p for p in harness.pods("worker") if p["metadata"]["labels"][labels.REPLICA_INDEX] == "1"
    )
    await harness.app.observer.kube.delete(POD, "ns", second["metadata"]["name"])
    await harness.settle()
    assert sorted(
        p["metadata"]["labels"][labels.REPLICA_INDEX] for p in harness.pods("worker")
    ) == ["0", "1", "2"]


@pytest.mark.acceptance("raycluster", 43)
async def test_a_failed_head_is_replaced_and_workers_stay() -> None:
    harness = await a_running_harness()
    old, workers = harness.names("head"), harness.names("worker")
    harness.fail(old[0])
    await harness.settle()
    assert len(harness.names("head")) == 1
    assert harness.names("head") != old
    assert harness.names("worker") == workers
    assert harness.reasons() == ["DeletedHeadPod", "CreatedHeadPod"]


async def test_of_two_groups_with_one_name_the_first_has_pods_and_a_warning_names_both() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1), a_group(replicas=4)]))
    await harness.settle()
    assert len(harness.names("worker")) == 1
    warning = "2 worker groups are called 'g': only the first one has pods; give the others names of their own"
    assert (
        "Warning",
        "InvalidRayClusterSpec",
        f"RayCluster spec warning ns/c: {warning}",
    ) in harness.kube.events()


async def test_a_status_with_both_conditions_of_suspension_is_reported_and_nothing_is_done() -> (
    None
):
    harness = await a_running_harness()
    names = harness.names()
    body = harness.kube.objects["RayCluster", "ns", "c"]
    time = "2026-01-01T00:00:00Z"
    both = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": time}
        for kind in ("RayClusterSuspending", "RayClusterSuspended")
    ]
    harness.kube.put(RAY_CLUSTER, body | {"status": body["status"] | {"conditions": both}})
    await harness.settle()
    assert harness.names() == names
    (note,) = {
        note for _, reason, note in harness.kube.events() if reason == "InvalidRayClusterStatus"
    }
    assert "should not be both true" in note


@pytest.mark.parametrize(
    ("kind", "reason"), [("head", "FailedDeleteHeadPod"), ("worker", "FailedDeleteWorkerPod")]
)
async def test_a_pod_that_cannot_be_deleted_is_named_by_its_kind(kind: str, reason: str) -> None:
    harness = await a_running_harness()
    harness.kube.faults.append(
        lambda r: errors.Unavailable("webhook") if r.verb == "delete" and r.kind == "Pod" else None
    )
    harness.fail(harness.names(kind)[0])
    await harness.settle()
    assert harness.conditions()["ReplicaFailure"] == ("True", reason)


async def test_a_status_has_its_generation_its_time_and_the_beginning_of_each_state() -> None:
    harness = await a_running_harness()
    began = harness.cluster().status
    assert began.observed_generation == harness.cluster().metadata.generation
    harness.clock.advance(60)
    harness.apply(a_ray_cluster(suspend=True))
    await harness.settle()
    status = harness.cluster().status
    assert status.observed_generation == harness.cluster().metadata.generation
    assert status.observed_generation == began.observed_generation + 1
    assert began.last_update_time is not None
    assert status.last_update_time == began.last_update_time + timedelta(seconds=60)
    assert status.state_transition_times == {
        **(began.state_transition_times or {}),
        "suspended": status.last_update_time,
    }
    assert list(began.state_transition_times or {}) == ["ready"]


def _of_another_owner(harness: Harness) -> None:
    service = harness.kube.objects["Service", "ns", "c-head-svc"]
    harness.kube.put(SERVICE, service | {"metadata": service["metadata"] | {"name": "second"}})


def _nothing(_: Harness) -> None:
    """Leave all as it is."""


@cases(
    ("broken", "change"),
    {
        "the spec cannot be read": ({"workerGroupSpecs": 7}, _nothing),
        "the spec breaks a rule": (
            {"workerGroupSpecs": [a_group(min_replicas=5, max_replicas=1)]},
            _nothing,
        ),
        "the strategy is invalid": ({"upgradeStrategy": {"type": "Sideways"}}, _nothing),
        "the gate of mutual TLS is off": ({"tlsOptions": {"enabled": True}}, _nothing),
        "two head Services": ({}, _of_another_owner),
        "no ServiceAccount": (
            {
                "enableInTreeAutoscaling": True,
                "headGroupSpec": a_head(template=a_template(service_account_name="none")),
            },
            _nothing,
        ),
    },
)
async def test_a_cluster_is_suspended_whatever_else_is_wrong(
    broken: Body, change: Callable[[Harness], None]
) -> None:
    harness = await a_running_harness()
    change(harness)
    body = harness.kube.objects["RayCluster", "ns", "c"]
    harness.kube.put(RAY_CLUSTER, body | {"spec": body["spec"] | broken | {"suspend": True}})
    await harness.settle()
    for _ in range(4):
        await harness.reconcile()
    assert harness.names() == []
    assert harness.conditions()["RayClusterSuspended"] == ("True", "RayClusterSuspended")
    status = harness.cluster().status
    assert (status.state, status.ready_worker_replicas) == ("suspended", 0)
    seen = len(harness.kube.writes())
    await harness.pass_time(300)
    assert harness.kube.writes()[seen:] == []


async def test_a_suspended_cluster_resumes_once_its_spec_is_corrected() -> None:
    harness = await a_running_harness()
    body = harness.kube.objects["RayCluster", "ns", "c"]
    good, strategy = body["spec"], {"upgradeStrategy": {"type": "Sideways"}}
    for spec in (good | strategy | {"suspend": True}, good | strategy | {"suspend": False}):
        harness.kube.put(RAY_CLUSTER, body | {"spec": spec, "status": harness_status(harness)})
        await harness.settle()
    assert (harness.names(), harness.conditions()["RayClusterSuspended"][0]) == ([], "False")
    harness.kube.put(RAY_CLUSTER, body | {"spec": good, "status": harness_status(harness)})
    await harness.settle()
    assert len(harness.names()) == 4


def harness_status(harness: Harness) -> Body:
    """Return the status as the API server holds it."""
    return harness.kube.objects["RayCluster", "ns", "c"]["status"]


async def test_a_worker_on_a_lost_node_is_reported_and_replaced_after_its_grace_period() -> None:
    harness = await a_running_harness()
    lost = harness.names("worker")[0]
    harness.kube.graceful_pods = True
    await harness.app.observer.kube.delete(POD, "ns", lost)
    await harness.settle()
    await harness.pass_time(2)
    assert len(harness.names("worker")) == 3
    assert harness.cluster().status.available_worker_replicas == 2
    await harness.pass_time(27)
    assert "PodsNotEnding" not in harness.reasons()
    await harness.pass_time(1)
    assert len(harness.names("worker")) == 4
    (note,) = (note for _, reason, note in harness.kube.events() if reason == "PodsNotEnding")
    assert lost in note
    harness.kubelet()
    await harness.settle()
    await harness.pass_time(2)
    status = harness.cluster().status
    assert (status.state, status.available_worker_replicas) == ("ready", 3)
    assert len(harness.names("worker")) == 4


async def test_a_replica_with_a_lost_host_is_replaced_whole() -> None:
    cluster = a_ray_cluster(groups=[a_group(num_of_hosts=2, replicas=2)])
    harness = await a_running_harness(cluster)
    lost, *_ = before = harness.names("worker")
    harness.kube.graceful_pods = True
    await harness.app.observer.kube.delete(POD, "ns", lost)
    await harness.settle()
    await harness.pass_time(30)
    gone = {
        each["metadata"]["name"]
        for each in harness.pods("worker")
        if "deletionTimestamp" in each["metadata"]
    }
    assert (lost in gone, len(gone)) == (True, 2)
    for name in gone - {lost}:
        harness.kube.finish_deletion(POD, "ns", name)
    await harness.settle()
    assert len(set(harness.names("worker")) - set(before)) == 2


async def test_a_head_on_a_lost_node_is_reported_and_never_doubled() -> None:
    harness = await a_running_harness()
    (head,) = harness.names("head")
    harness.kube.graceful_pods = True
    await harness.app.observer.kube.delete(POD, "ns", head)
    await harness.settle()
    await harness.pass_time(30)
    assert harness.names("head") == [head]
    assert "PodsNotEnding" in harness.reasons()


RECREATE: Body = {"upgrade_strategy": {"type": "Recreate"}}


async def test_old_workers_go_although_the_deletion_of_all_pods_stopped_after_the_head() -> None:
    harness = await a_running_harness(a_ray_cluster(**RECREATE))
    old = harness.names("worker")
    harness.is_deaf = True
    await harness.app.observer.kube.delete(POD, "ns", harness.names("head")[0])
    harness.apply(a_ray_cluster(**RECREATE, ray_version="2.53.0"))
    harness.is_deaf = False
    harness.start()
    await harness.settle()
    assert set(old).isdisjoint(harness.names("worker"))
    assert len(harness.names()) == 4


async def test_workers_of_kuberay_go_before_the_head_that_alone_knows_their_spec() -> None:
    harness = await a_running_harness(a_ray_cluster(**RECREATE))
    for pod in harness.pods("worker"):
        meta: Body = {**pod["metadata"], "annotations": {}}
        harness.kube.put(POD, {**pod, "metadata": meta})
    head = harness.names("head")
    harness.kube.faults.append(
        lambda r: errors.Unavailable("webhook") if r.verb == "deletecollection" else None
    )
    harness.apply(a_ray_cluster(**RECREATE, ray_version="2.53.0"))
    await harness.settle()
    assert harness.names("head") == head
    deletions = {each for each in harness.kube.writes() if each.startswith("deletecollection")}
    assert deletions == {f"deletecollection Pod {labels.CLUSTER}=c,{labels.NODE_TYPE}=worker"}


USERS_LABELS: Final = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/created-by",
    "ray.io/identifier",
)
OVERRIDES: Final = [
    *(pytest.param({"template": a_template(labels={each: "x"})}, id=each) for each in USERS_LABELS),
    *(pytest.param({"labels": {each: "x"}}, id=f"group {each}") for each in USERS_LABELS),
]


def selects_the_head(harness: Harness) -> bool:
    (head,) = harness.pods("head")
    selector = harness.kube.objects["Service", "ns", "c-head-svc"]["spec"]["selector"]
    held = {key: value for key, value in selector.items() if value is not None}
    return held.items() <= head["metadata"]["labels"].items() and len(held) >= 2


@pytest.mark.parametrize("fields", OVERRIDES)
async def test_the_head_service_selects_the_head_whatever_labels_it_has(fields: Body) -> None:
    harness = await a_running_harness(a_ray_cluster(head=a_head(**fields)))
    assert selects_the_head(harness)
    assert len(harness.kube.all(SERVICE, "ns")) == 1


@pytest.mark.parametrize("fields", OVERRIDES)
async def test_the_head_service_follows_edits_of_labels_and_selects_old_and_new_heads(
    fields: Body,
) -> None:
    harness = await a_running_harness()
    for head in (a_head(**fields), a_head()):
        harness.apply(a_ray_cluster(head=head))
        await harness.settle()
        assert selects_the_head(harness)
        harness.fail(harness.names("head")[0])
        await harness.settle()
        await harness.reconcile()
        assert selects_the_head(harness)


@pytest.mark.parametrize("is_ours", [True, False])
async def test_a_stale_selector_is_repaired_if_the_service_is_ours(is_ours: bool) -> None:
    harness = await a_running_harness()
    service = harness.kube.objects["Service", "ns", "c-head-svc"]
    selector = service["spec"]["selector"] | {"app.kubernetes.io/name": "other", "mine": "kept"}
    owners: Body = {} if is_ours else {"ownerReferences": []}
    metadata = service["metadata"] | owners
    spec = service["spec"] | {"selector": selector}
    harness.kube.put(SERVICE, service | {"metadata": metadata, "spec": spec})
    await harness.settle()
    await harness.reconcile()
    changed = harness.kube.objects["Service", "ns", "c-head-svc"]["spec"]["selector"]
    wanted = {key: each for key, each in selector.items() if key != "app.kubernetes.io/name"}
    assert changed == (wanted if is_ours else selector)
    assert ("UpdatedService" in harness.reasons()) is is_ours


async def test_workers_live_on_under_a_crd_that_prunes_the_number_of_hosts() -> None:
    harness = await a_running_harness()
    workers = harness.names("worker")
    harness.apply(a_ray_cluster(groups=[a_group(num_of_hosts=None)]))
    await harness.settle()
    assert (len(workers), harness.names("worker"), harness.trace) == (3, workers, [])


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        (
            {"ray_version": "2.8.1"},
            "rayVersion 2.8.1 is older than 2.9, the oldest that is tested: use Ray 2.9.0 or later",
        ),
        (
            {"groups": [a_group(num_of_hosts=-1)]},
            "worker group g has numOfHosts -1: it counts as 1",
        ),
    ],
)
async def test_what_is_allowed_and_unwise_is_reported(fields: Any, warning: str) -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(**fields))
    await harness.settle()
    text = f"RayCluster spec warning ns/c: {warning}"
    assert ("Warning", "InvalidRayClusterSpec", text) in harness.kube.events()


@pytest.mark.parametrize("version", ["2.9.0", "2.52.0", "", "nightly"])
async def test_no_version_that_is_tested_or_unknown_is_warned_of(version: str) -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(ray_version=version))
    await harness.settle()
    assert "InvalidRayClusterSpec" not in harness.reasons()


async def test_a_failed_head_is_replaced_under_the_name_that_its_template_gives() -> None:
    template = a_template(name="c-head-mine")
    harness = await a_running_harness(a_ray_cluster(head=a_head(template=template)))
    harness.fail("c-head-mine")
    await harness.settle()
    assert harness.names("head") == ["c-head-mine"]
    assert harness.trace.count("create Pod c-head-mine") == 1


def hold(harness: Harness, *names: str) -> None:
    """Add a finalizer to pods, as Kueue does, so that ended pods stay Terminating when deleted."""
    for name in names:
        pod = harness.kube.objects["Pod", "ns", name]
        metadata = pod["metadata"] | {"finalizers": ["kueue.x-k8s.io/managed"]}
        harness.kube.put(POD, pod | {"metadata": metadata})


@pytest.mark.acceptance("raycluster", 46)
async def test_no_new_head_while_the_old_one_is_terminating() -> None:
    harness = await a_running_harness()
    old = harness.names("head")
    hold(harness, *old)
    harness.fail(old[0])
    await harness.settle()
    assert harness.names("head") == old
    harness.finish_deletions()
    await harness.settle()
    assert len(harness.names("head")) == 1
    assert harness.names("head") != old


@pytest.mark.acceptance("raycluster", 59, 60)
async def test_failed_workers_are_deleted_once_and_replaced_when_they_are_gone() -> None:
    harness = await a_running_harness()
    first, second, third = harness.names("worker")
    hold(harness, first, second)
    harness.fail(first)
    harness.fail(second, "Succeeded")
    await harness.settle()
    assert [text for text in harness.kube.writes() if "Pod" in text] == [
        f"delete Pod {first}",
        f"delete Pod {second}",
    ]
    harness.finish_deletions()
    await harness.settle()
    assert third in harness.names("worker")
    assert len(harness.names("worker")) == 3
    assert {first, second}.isdisjoint(harness.names("worker"))


@pytest.mark.acceptance("raycluster", 55)
async def test_the_autoscaler_names_the_worker_that_goes() -> None:
    cluster = a_ray_cluster(enable_in_tree_autoscaling=True)
    harness = await a_running_harness(cluster)
    named = harness.names("worker")[1]
    harness.apply(
        a_ray_cluster(
            enable_in_tree_autoscaling=True,
            groups=[a_group(replicas=2, scale_strategy={"workersToDelete": [named]})],
        )
    )
    await harness.settle()
    assert named not in harness.names("worker")
    assert len(harness.names("worker")) == 2
    assert harness.cluster().raw_spec["workerGroupSpecs"][0]["scaleStrategy"] == {
        "workersToDelete": [named]
    }


@pytest.mark.acceptance("raycluster", 54)
async def test_with_the_autoscaler_surplus_workers_stay_until_they_are_named() -> None:
    harness = await a_running_harness(a_ray_cluster(enable_in_tree_autoscaling=True))
    harness.apply(a_ray_cluster(enable_in_tree_autoscaling=True, groups=[a_group(replicas=1)]))
    await harness.settle()
    assert len(harness.names("worker")) == 3


@pytest.mark.acceptance("raycluster", 56, 57)
async def test_a_named_worker_is_replaced_in_the_same_pass_when_replicas_stay() -> None:
    harness = await a_running_harness()
    named = harness.names("worker")[0]
    harness.apply(
        a_ray_cluster(groups=[a_group(scale_strategy={"workersToDelete": [named, "no-such-pod"]})])
    )
    await harness.settle()
    await harness.pass_time(300)
    assert named not in harness.names("worker")
    assert len(harness.names("worker")) == 3
    assert [text.split("-")[0] for text in harness.kube.writes() if "Pod" in text] == [
        "delete Pod c",
        "create Pod c",
    ]


@pytest.mark.acceptance("raycluster", 73)
async def test_suspend_sets_the_condition_then_deletes_then_reports() -> None:
    harness = await a_running_harness()
    harness.kube.graceful_pods = True
    harness.apply(a_ray_cluster(suspend=True))
    await harness.settle()
    assert harness.conditions()["RayClusterSuspending"] == ("True", "RayClusterSuspending")
    assert [text.split(" ")[:2] for text in harness.kube.writes()] == [
        ["update", "RayCluster/status"],
        ["deletecollection", "Pod"],
        ["update", "RayCluster/status"],
    ]
    harness.finish_deletions()
    await harness.settle()
    assert harness.conditions()["RayClusterSuspended"] == ("True", "RayClusterSuspended")
    assert harness.conditions()["RayClusterProvisioned"] == ("False", "RayClusterPodsProvisioning")
    assert harness.cluster().status.state == "suspended"


@pytest.mark.acceptance("raycluster", 74, 75)
async def test_a_suspended_cluster_resumes_only_on_an_explicit_false() -> None:
    harness = await a_running_harness()
    harness.apply(a_ray_cluster(suspend=True))
    await harness.settle()
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert harness.names() == []
    harness.apply(a_ray_cluster(suspend=False))
    await harness.settle()
    assert len(harness.names()) == 4
    assert harness.cluster().status.state == "suspended"
    harness.kubelet()
    await harness.settle()
    assert harness.cluster().status.state == "ready"


@pytest.mark.acceptance("raycluster", 76)
async def test_unsuspending_in_between_still_deletes_all_then_resumes() -> None:
    harness = await a_running_harness()
    harness.kube.graceful_pods = True
    before = harness.names()
    harness.apply(a_ray_cluster(suspend=True))
    await harness.reconcile()
    harness.apply(a_ray_cluster(suspend=False))
    await harness.settle()
    harness.finish_deletions()
    await harness.settle()
    assert len(harness.names()) == 4
    assert set(before).isdisjoint(harness.names())


@pytest.mark.acceptance("raycluster", 80)
async def test_recreate_deletes_all_and_starts_anew() -> None:
    harness = await a_running_harness(a_ray_cluster(upgrade_strategy={"type": "Recreate"}))
    before = harness.names()
    harness.apply(a_ray_cluster(upgrade_strategy={"type": "Recreate"}, ray_version="2.53.0"))
    await harness.settle()
    assert len(harness.names()) == 4
    assert set(before).isdisjoint(harness.names())
    assert harness.reasons()[0] == "DeletedPod"


@pytest.mark.acceptance("raycluster", 83)
async def test_without_a_strategy_a_changed_spec_leaves_pods_alone() -> None:
    harness = await a_running_harness()
    before = harness.names()
    harness.apply(a_ray_cluster(ray_version="2.53.0"))
    await harness.settle()
    assert harness.names() == before


async def test_an_exhausted_quota_is_reported_and_lifted() -> None:
    harness = Harness()
    quota = errors.Forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
    harness.kube.faults.append(refusing("create", "Pod", quota, name="worker"))
    harness.apply(a_ray_cluster(groups=[a_group(replicas=10), a_group("h", replicas=10)]))
    await harness.settle()
    status, reason = harness.conditions()["ReplicaFailure"]
    assert (status, reason) == ("True", "FailedCreateWorkerPod")
    refused = [r for r in harness.kube.requests if r.verb == "create" and "worker" in r.name]
    assert len(refused) <= 6, "one attempt a group and reconcile, not one a pod"
    assert "FailedToCreateWorkerPod" in harness.reasons()
    assert harness.conditions()["HeadPodReady"] == ("False", "Unknown")
    harness.kube.faults.clear()
    await harness.reconcile()
    assert len(harness.names("worker")) == 20
    assert "ReplicaFailure" not in harness.conditions()


async def test_no_pod_without_the_head_service() -> None:
    harness = Harness()
    harness.kube.put(
        SERVICE,
        {"metadata": {"name": "c-head-svc", "namespace": "ns"}, "spec": {"clusterIP": "10.0.0.1"}},
    )
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert harness.names() == []
    assert harness.reasons() == ["FailedToCreateService"]


@pytest.mark.acceptance("raycluster", 64)
async def test_an_old_state_does_not_make_a_second_set_of_pods() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    harness.is_deaf = True
    pods = dict(harness.kube.objects)
    harness.start()
    harness.is_deaf = False
    harness.deliver("RayCluster", pods["RayCluster", "ns", "c"])
    await harness.settle()
    assert len(harness.names()) == 4


@pytest.mark.parametrize("crash_after", [1, 2, 3])
async def test_a_create_that_is_repeated_by_another_owner_meets_the_same_name(
    crash_after: int,
) -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    other = copy.deepcopy(harness.kube.objects)
    await harness.reconcile()
    created = harness.names()
    harness.is_deaf = True
    harness.start()
    harness.is_deaf = False
    harness.deliver("RayCluster", other["RayCluster", "ns", "c"])
    harness.app.observer.get_memory(harness.cluster()).has_listed_pods = True
    for _ in range(crash_after):
        await harness.reconcile()
    assert harness.names() == created


class LosingAnswerKube(FakeKube):
    """Creates the second worker, and loses the answer."""

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        answer = await super().create(resource, namespace, body)
        if "-worker-" in body["metadata"]["name"] and len(self.all(POD, "ns")) == 3:
            raise errors.Unavailable("connection reset")
        return answer


@pytest.mark.acceptance("raycluster", 64)
async def test_a_pod_is_not_created_twice_when_the_answer_was_lost() -> None:
    harness = Harness(kube=LosingAnswerKube())
    harness.apply(a_ray_cluster())
    harness.is_deaf = True
    await harness.reconcile()
    await harness.reconcile()
    assert len(harness.names("worker")) == 3


@pytest.mark.acceptance("raycluster", 27)
async def test_a_deleted_cluster_is_left_to_the_garbage_collector() -> None:
    harness = await a_running_harness()
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    assert harness.kube.writes() == ["delete RayCluster c"]
    assert harness.names() == []


@pytest.mark.acceptance("raycluster", 47)
async def test_two_heads_are_an_error_that_names_them() -> None:
    harness = await a_running_harness()
    head = harness.pods("head")[0]
    double = {**head, "metadata": {**head["metadata"], "name": "extra"}}
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
        del double["metadata"][field]
    harness.kube.put(POD, double)
    await harness.settle()
    assert any("2 head pods found [" in str(problem) for problem in harness.errors)


@pytest.mark.acceptance("raycluster", 48)
async def test_a_head_that_was_provisioned_stays_dead_when_configured_so() -> None:
    annotations = {labels.DISABLE_PROVISIONED_HEAD_RESTART: "true"}
    harness = await a_running_harness(a_ray_cluster(annotations=annotations))
    await harness.app.observer.kube.delete(POD, "ns", harness.names("head")[0])
    await harness.app.observer.kube.delete(POD, "ns", harness.names("worker")[0])
    await harness.settle()
    assert harness.names("head") == []
    assert len(harness.names("worker")) == 2
    assert harness.conditions()["HeadPodReady"] == ("False", "HeadPodNotFound")


@pytest.mark.acceptance("raycluster", 20, 28)
async def test_rbac_comes_before_any_pod_and_is_looked_up_only_now_and_then() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(enable_in_tree_autoscaling=True))
    await harness.settle()
    assert [text.split()[1] for text in harness.kube.writes()][:5] == [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "Pod",
    ]
    assert len([r for r in harness.kube.requests if r.verb == "get"]) == 3
    harness.kube.finish_deletion(ROLE, "ns", "c")
    await harness.pass_time(300)
    assert ("Role", "ns", "c") in harness.kube.objects


async def test_a_service_account_that_the_user_forgot_holds_everything_back() -> None:
    head = a_head(
        template={
            "spec": {
                "serviceAccountName": "custom",
                "containers": [{"name": "ray", "image": "ray"}],
            }
        }
    )
    harness = Harness()
    harness.apply(a_ray_cluster(enable_in_tree_autoscaling=True, head=head))
    await harness.settle()
    assert harness.kube.writes() == ["update RayCluster/status c"]
    assert harness.reasons() == ["AutoscalerServiceAccountNotFound"]
    assert harness.conditions()["ReplicaFailure"] == ("True", "AutoscalerServiceAccountNotFound")


@cases(
    ("cluster", "reason"),
    {
        "min above max": (
            a_ray_cluster(groups=[a_group(min_replicas=5, max_replicas=1)]),
            "InvalidRayClusterSpec",
        ),
        "a number where text is expected": (
            a_ray_cluster(ray_version=7.5),
            "InvalidRayClusterSpec",
        ),
        "a field of the wrong type": (a_ray_cluster(suspend="perhaps"), "InvalidRayClusterSpec"),
    },
)
@pytest.mark.acceptance("raycluster", 7)
async def test_an_invalid_cluster_gets_an_event_and_nothing_else(
    cluster: RayCluster, reason: str
) -> None:
    harness = Harness()
    harness.apply(cluster)
    await harness.settle()
    assert harness.kube.writes() == []
    assert harness.reasons() == [reason]
    assert harness.errors == []


@pytest.mark.parametrize(
    "spec", [{}, {"suspend": "perhaps"}, {"groups": [a_group(replicas=2**31 - 1)]}]
)
@pytest.mark.parametrize("name", ["c" * 54, "1abc", "c.d", "c" * 253])
@pytest.mark.acceptance("raycluster", 5, 6)
async def test_a_wrong_name_is_reported_by_an_event_and_a_condition(
    name: str, spec: dict[str, Any]
) -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(name, **spec))
    await harness.settle()
    await harness.pass_time(600)
    assert harness.kube.writes() == [f"update RayCluster/status {name}"]
    assert set(harness.reasons()) == {"InvalidRayClusterMetadata"}
    (condition,) = harness.cluster(name).status.conditions
    assert (condition.type, condition.status, condition.reason) == (
        "ReplicaFailure",
        "True",
        "InvalidRayClusterMetadata",
    )
    assert "RayCluster name should be" in condition.message
    assert harness.errors == []


async def test_a_wrong_name_of_a_cluster_without_conditions_is_reported_by_an_event_alone() -> None:
    harness = Harness(Config(gates=BETA - {FeatureGate.STATUS_CONDITIONS}))
    harness.apply(a_ray_cluster("1abc"))
    await harness.settle()
    assert (harness.kube.writes(), harness.reasons()) == ([], ["InvalidRayClusterMetadata"])


@pytest.mark.acceptance("raycluster", 2)
async def test_another_controllers_cluster_is_left_alone() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(managed_by="kueue.x-k8s.io/multikueue"))
    await harness.settle()
    assert harness.kube.requests == []


@pytest.mark.acceptance("raycluster", 67, 68, 69, 71)
async def test_multi_host_replicas_live_and_die_together() -> None:
    groups = [a_group(replicas=2, num_of_hosts=4)]
    harness = await a_running_harness(a_ray_cluster(groups=groups))
    assert len(harness.names("worker")) == 8
    assert ("Service", "ns", "c-headless") in harness.kube.objects
    indexes = {
        (p["metadata"]["labels"][labels.REPLICA_INDEX], p["metadata"]["labels"][labels.HOST_INDEX])
        for p in harness.pods("worker")
    }
    assert indexes == {(str(index), str(host)) for index in range(2) for host in range(4)}
    before = harness.names("worker")
    harness.fail(before[0])
    await harness.settle()
    assert len(harness.names("worker")) == 8
    assert len(set(before) & set(harness.names("worker"))) == 4
    await harness.app.observer.kube.delete(POD, "ns", harness.names("worker")[0])
    await harness.settle()
    assert len(harness.names("worker")) == 8
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1, num_of_hosts=4)]))
    await harness.settle()
    assert len({p["metadata"]["labels"][labels.REPLICA_NAME] for p in harness.pods("worker")}) == 1


@pytest.mark.acceptance("raycluster", 25)
async def test_the_requeue_time_can_be_configured() -> None:
    harness = await a_running_harness(config=Config(requeue_seconds=10))
    assert [when - harness.clock.now() for when in harness.promised.values()] == [
        timedelta(seconds=10)
    ]
