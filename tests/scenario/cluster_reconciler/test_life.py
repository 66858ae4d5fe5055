"""A RayCluster's life on fakes, as a user follows it (spec raycluster §25, cases 19-28, 43-84, 111-114)."""

import copy
from datetime import timedelta

import pytest

from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER, ROLE, SERVICE, Resource
from common.runtime.key import Key
from scenario.cluster_reconciler.world import World, a_running_world
from support.builders.ray_cluster import a_group, a_head, a_ray_cluster
from support.fakes.kube import FakeKube, Request


@pytest.mark.acceptance("raycluster", 19)
async def test_a_new_cluster_gets_its_service_then_its_head_then_its_workers() -> None:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    kinds = [text.rsplit("-", 1)[0] for text in world.kube.writes()]
    assert kinds[:5] == ["create Service c-head", "create Pod c-head"] + 3 * ["create Pod c-g-worker"]
    assert world.reasons() == ["CreatedService", "CreatedHeadPod", "CreatedWorkerPod"]


@pytest.mark.acceptance("raycluster", 111)
async def test_a_cluster_whose_pods_run_is_ready() -> None:
    world = await a_running_world()
    status = world.cluster().status
    assert status.state == "ready"
    assert (status.ready_worker_replicas, status.available_worker_replicas, status.desired_worker_replicas) == (3, 3, 3)
    assert world.conditions() == {
        "HeadPodReady": ("True", "HeadPodRunningAndReady"),
        "RayClusterProvisioned": ("True", "AllPodRunningAndReadyFirstTime"),
        "RayClusterSuspended": ("False", "RayClusterSuspended"),
        "RayClusterSuspending": ("False", "RayClusterSuspending"),
    }


@pytest.mark.acceptance("raycluster", 25, 28)
async def test_a_steady_cluster_is_looked_at_after_300_seconds_and_nothing_is_written() -> None:
    world = await a_running_world()
    await world.pass_time(299)
    assert world.kube.requests == []
    await world.pass_time(1)
    assert world.kube.requests == []
    world.kube.finish_deletion(SERVICE, "ns", "c-head-svc")
    await world.settle()
    assert world.kube.writes() == ["create Service c-head-svc"]


async def test_a_look_without_change_writes_nothing() -> None:
    world = await a_running_world()
    await world.look()
    assert world.kube.requests == []


@pytest.mark.parametrize(("replicas", "pods"), [(5, 5), (1, 1), (0, 0), (20, 10)])
@pytest.mark.acceptance("raycluster", 51, 52, 54)
async def test_workers_follow_replicas_within_their_limits(replicas: int, pods: int) -> None:
    world = await a_running_world()
    world.apply(a_ray_cluster(groups=[a_group(replicas=replicas)]))
    await world.settle()
    assert len(world.names("worker")) == pods
    assert world.cluster().status.desired_worker_replicas == pods


@pytest.mark.acceptance("raycluster", 51)
async def test_new_workers_take_the_smallest_free_indexes() -> None:
    world = await a_running_world()
    second = next(p for p in world.pods("worker") if p["metadata"]["labels"][labels.REPLICA_INDEX] == "1")
    await world.app.ports.kube.delete(POD, "ns", second["metadata"]["name"])
    await world.settle()
    assert sorted(p["metadata"]["labels"][labels.REPLICA_INDEX] for p in world.pods("worker")) == ["0", "1", "2"]


@pytest.mark.acceptance("raycluster", 43)
async def test_a_failed_head_is_replaced_and_workers_stay() -> None:
    world = await a_running_world()
    old, workers = world.names("head"), world.names("worker")
    world.fail(old[0])
    await world.settle()
    assert len(world.names("head")) == 1
    assert world.names("head") != old
    assert world.names("worker") == workers
    assert world.reasons() == ["DeletedHeadPod", "CreatedHeadPod"]


@pytest.mark.acceptance("raycluster", 46)
async def test_no_new_head_while_the_old_one_is_terminating() -> None:
    world = await a_running_world()
    world.kube.graceful_pods = True
    old = world.names("head")
    world.fail(old[0])
    await world.settle()
    assert world.names("head") == old
    world.finish_deletions()
    await world.settle()
    assert len(world.names("head")) == 1
    assert world.names("head") != old


@pytest.mark.acceptance("raycluster", 59, 60)
async def test_failed_workers_are_deleted_once_and_replaced_when_they_are_gone() -> None:
    world = await a_running_world()
    world.kube.graceful_pods = True
    first, second, third = world.names("worker")
    world.fail(first)
    world.fail(second, "Succeeded")
    await world.settle()
    assert [text for text in world.kube.writes() if "Pod" in text] == [f"delete Pod {first}", f"delete Pod {second}"]
    world.finish_deletions()
    await world.settle()
    assert third in world.names("worker")
    assert len(world.names("worker")) == 3
    assert {first, second}.isdisjoint(world.names("worker"))


@pytest.mark.acceptance("raycluster", 55)
async def test_the_autoscaler_names_the_worker_that_goes() -> None:
    cluster = a_ray_cluster(enable_in_tree_autoscaling=True)
    world = await a_running_world(cluster)
    named = world.names("worker")[1]
    world.apply(
        a_ray_cluster(
            enable_in_tree_autoscaling=True,
            groups=[a_group(replicas=2, scale_strategy={"workersToDelete": [named]})],
        )
    )
    await world.settle()
    assert named not in world.names("worker")
    assert len(world.names("worker")) == 2
    assert world.cluster().raw_spec["workerGroupSpecs"][0]["scaleStrategy"] == {"workersToDelete": [named]}


@pytest.mark.acceptance("raycluster", 54)
async def test_with_the_autoscaler_surplus_workers_stay_until_they_are_named() -> None:
    world = await a_running_world(a_ray_cluster(enable_in_tree_autoscaling=True))
    world.apply(a_ray_cluster(enable_in_tree_autoscaling=True, groups=[a_group(replicas=1)]))
    await world.settle()
    assert len(world.names("worker")) == 3


@pytest.mark.acceptance("raycluster", 56, 57)
async def test_a_named_worker_is_replaced_in_the_same_pass_when_replicas_stay() -> None:
    world = await a_running_world()
    named = world.names("worker")[0]
    world.apply(a_ray_cluster(groups=[a_group(scale_strategy={"workersToDelete": [named, "no-such-pod"]})]))
    await world.settle()
    await world.pass_time(300)
    assert named not in world.names("worker")
    assert len(world.names("worker")) == 3
    assert [text.split("-")[0] for text in world.kube.writes() if "Pod" in text] == ["delete Pod c", "create Pod c"]


@pytest.mark.acceptance("raycluster", 73)
async def test_suspend_sets_the_condition_then_deletes_then_reports() -> None:
    world = await a_running_world()
    world.kube.graceful_pods = True
    world.apply(a_ray_cluster(suspend=True))
    await world.settle()
    assert world.conditions()["RayClusterSuspending"] == ("True", "RayClusterSuspending")
    assert [text.split(" ")[:2] for text in world.kube.writes()] == [
        ["update", "RayCluster/status"],
        ["deletecollection", "Pod"],
    ]
    world.finish_deletions()
    await world.settle()
    assert world.conditions()["RayClusterSuspended"] == ("True", "RayClusterSuspended")
    assert world.conditions()["RayClusterProvisioned"] == ("False", "RayClusterPodsProvisioning")
    assert world.cluster().status.state == "suspended"


@pytest.mark.acceptance("raycluster", 74, 75)
async def test_a_suspended_cluster_resumes_only_on_an_explicit_false() -> None:
    world = await a_running_world()
    world.apply(a_ray_cluster(suspend=True))
    await world.settle()
    world.apply(a_ray_cluster())
    await world.settle()
    assert world.names() == []
    world.apply(a_ray_cluster(suspend=False))
    await world.settle()
    assert len(world.names()) == 4
    assert world.cluster().status.state == "suspended"
    world.kubelet()
    await world.settle()
    assert world.cluster().status.state == "ready"


@pytest.mark.acceptance("raycluster", 76)
async def test_unsuspending_in_between_still_deletes_all_then_resumes() -> None:
    world = await a_running_world()
    world.kube.graceful_pods = True
    before = world.names()
    world.apply(a_ray_cluster(suspend=True))
    await world.look()
    world.apply(a_ray_cluster(suspend=False))
    await world.settle()
    world.finish_deletions()
    await world.settle()
    assert len(world.names()) == 4
    assert set(before).isdisjoint(world.names())


@pytest.mark.acceptance("raycluster", 80)
async def test_recreate_deletes_all_and_starts_anew() -> None:
    world = await a_running_world(a_ray_cluster(upgrade_strategy={"type": "Recreate"}))
    before = world.names()
    world.apply(a_ray_cluster(upgrade_strategy={"type": "Recreate"}, ray_version="2.53.0"))
    await world.settle()
    assert len(world.names()) == 4
    assert set(before).isdisjoint(world.names())
    assert world.reasons()[0] == "DeletedPod"


@pytest.mark.acceptance("raycluster", 83)
async def test_without_a_strategy_a_changed_spec_leaves_pods_alone() -> None:
    world = await a_running_world()
    before = world.names()
    world.apply(a_ray_cluster(ray_version="2.53.0"))
    await world.settle()
    assert world.names() == before


async def test_a_quota_that_is_used_up_is_told_and_lifted() -> None:
    world = World()
    world.kube.faults.append(_no_worker_pods)
    world.apply(a_ray_cluster(groups=[a_group(replicas=10), a_group("h", replicas=10)]))
    await world.settle()
    status, reason = world.conditions()["ReplicaFailure"]
    assert (status, reason) == ("True", "FailedCreateWorkerPod")
    refused = [r for r in world.kube.requests if r.verb == "create" and "worker" in r.name]
    assert len(refused) <= 6, "one attempt a group and look, not one a pod"
    assert "FailedToCreateWorkerPod" in world.reasons()
    assert world.conditions()["HeadPodReady"] == ("False", "Unknown")
    world.kube.faults.clear()
    await world.look()
    assert len(world.names("worker")) == 20
    assert "ReplicaFailure" not in world.conditions()


def _no_worker_pods(request: Request) -> errors.RaybusError | None:
    if request.verb == "create" and request.kind == "Pod" and "worker" in request.name:
        return errors.Forbidden("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
    return None


async def test_no_pod_without_the_head_service() -> None:
    world = World()
    world.kube.put(SERVICE, {"metadata": {"name": "c-head-svc", "namespace": "ns"}, "spec": {"clusterIP": "10.0.0.1"}})
    world.apply(a_ray_cluster())
    await world.settle()
    assert world.names() == []
    assert world.reasons() == ["FailedToCreateService"]


@pytest.mark.acceptance("raycluster", 64)
async def test_an_old_state_does_not_make_a_second_set_of_pods() -> None:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    world.is_deaf = True
    pods = dict(world.kube.objects)
    world.start()
    world.is_deaf = False
    world.tell("RayCluster", pods["RayCluster", "ns", "c"])
    await world.settle()
    assert len(world.names()) == 4


@pytest.mark.parametrize("crash_after", [1, 2, 3])
async def test_a_create_that_is_repeated_by_another_owner_meets_the_same_name(crash_after: int) -> None:
    world = World()
    world.apply(a_ray_cluster())
    other = copy.deepcopy(world.kube.objects)
    await world.look()
    created = world.names()
    world.is_deaf = True
    world.start()
    world.is_deaf = False
    world.tell("RayCluster", other["RayCluster", "ns", "c"])
    world.app.ports.memories.of(Key("ns", "c"), world.cluster().metadata.uid).has_listed_pods = True
    for _ in range(crash_after):
        await world.look()
    assert world.names() == created


class LosesAnAnswer(FakeKube):
    """Makes the second worker, and fails to say so."""

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        answer = await super().create(resource, namespace, body)
        if "-worker-" in body["metadata"]["name"] and len(self.all(POD, "ns")) == 3:
            raise errors.Unavailable("connection reset")
        return answer


@pytest.mark.acceptance("raycluster", 64)
async def test_a_pod_whose_answer_was_lost_is_not_made_twice() -> None:
    world = World(kube=LosesAnAnswer())
    world.apply(a_ray_cluster())
    world.is_deaf = True
    await world.look()
    await world.look()
    assert len(world.names("worker")) == 3


@pytest.mark.acceptance("raycluster", 27)
async def test_a_deleted_cluster_is_left_to_the_garbage_collector() -> None:
    world = await a_running_world()
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.settle()
    assert world.kube.writes() == ["delete RayCluster c"]
    assert world.names() == []


@pytest.mark.acceptance("raycluster", 47)
async def test_two_heads_are_an_error_that_names_them() -> None:
    world = await a_running_world()
    head = world.pods("head")[0]
    double = {**head, "metadata": {**head["metadata"], "name": "extra"}}
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
        del double["metadata"][field]
    world.kube.put(POD, double)
    await world.settle()
    assert any("2 head pods found [" in str(problem) for problem in world.errors)


@pytest.mark.acceptance("raycluster", 48)
async def test_a_head_that_was_provisioned_stays_dead_when_told_so() -> None:
    annotations = {labels.DISABLE_PROVISIONED_HEAD_RESTART: "true"}
    world = await a_running_world(a_ray_cluster(annotations=annotations))
    await world.app.ports.kube.delete(POD, "ns", world.names("head")[0])
    await world.app.ports.kube.delete(POD, "ns", world.names("worker")[0])
    await world.settle()
    assert world.names("head") == []
    assert len(world.names("worker")) == 2
    assert world.conditions()["HeadPodReady"] == ("False", "HeadPodNotFound")


@pytest.mark.acceptance("raycluster", 20, 28)
async def test_rbac_comes_before_any_pod_and_is_looked_up_only_now_and_then() -> None:
    world = World()
    world.apply(a_ray_cluster(enable_in_tree_autoscaling=True))
    await world.settle()
    assert [text.split()[1] for text in world.kube.writes()][:5] == [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "Pod",
    ]
    assert len([r for r in world.kube.requests if r.verb == "get"]) == 3
    world.kube.finish_deletion(ROLE, "ns", "c")
    await world.pass_time(300)
    assert ("Role", "ns", "c") in world.kube.objects


async def test_a_service_account_that_the_user_forgot_holds_everything_back() -> None:
    head = a_head(template={"spec": {"serviceAccountName": "custom", "containers": [{"name": "ray", "image": "ray"}]}})
    world = World()
    world.apply(a_ray_cluster(enable_in_tree_autoscaling=True, head=head))
    await world.settle()
    assert world.kube.writes() == ["update RayCluster/status c"]
    assert world.reasons() == ["AutoscalerServiceAccountNotFound"]
    assert world.conditions()["ReplicaFailure"] == ("True", "AutoscalerServiceAccountNotFound")


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        pytest.param(a_ray_cluster("c" * 54), "InvalidRayClusterMetadata", id="a name that is too long"),
        pytest.param(
            a_ray_cluster(groups=[a_group(min_replicas=5, max_replicas=1)]), "InvalidRayClusterSpec", id="min above max"
        ),
        pytest.param(a_ray_cluster(ray_version=7.5), "InvalidRayClusterSpec", id="a number where text is expected"),
        pytest.param(a_ray_cluster(suspend="perhaps"), "InvalidRayClusterSpec", id="a field of the wrong type"),
    ],
)
@pytest.mark.acceptance("raycluster", 5, 7)
async def test_an_invalid_cluster_gets_an_event_and_nothing_else(cluster: RayCluster, reason: str) -> None:
    world = World()
    world.apply(cluster)
    await world.settle()
    assert world.kube.writes() == []
    assert world.reasons() == [reason]
    assert world.errors == []


@pytest.mark.acceptance("raycluster", 2)
async def test_another_controllers_cluster_is_left_alone() -> None:
    world = World()
    world.apply(a_ray_cluster(managed_by="kueue.x-k8s.io/multikueue"))
    await world.settle()
    assert world.kube.requests == []


@pytest.mark.acceptance("raycluster", 67, 68, 69, 71)
async def test_multi_host_replicas_live_and_die_together() -> None:
    groups = [a_group(replicas=2, num_of_hosts=4)]
    world = await a_running_world(a_ray_cluster(groups=groups))
    assert len(world.names("worker")) == 8
    assert ("Service", "ns", "c-headless") in world.kube.objects
    indexes = {
        (p["metadata"]["labels"][labels.REPLICA_INDEX], p["metadata"]["labels"][labels.HOST_INDEX])
        for p in world.pods("worker")
    }
    assert indexes == {(str(index), str(host)) for index in range(2) for host in range(4)}
    before = world.names("worker")
    world.fail(before[0])
    await world.settle()
    assert len(world.names("worker")) == 8
    assert len(set(before) & set(world.names("worker"))) == 4
    await world.app.ports.kube.delete(POD, "ns", world.names("worker")[0])
    await world.settle()
    assert len(world.names("worker")) == 8
    world.apply(a_ray_cluster(groups=[a_group(replicas=1, num_of_hosts=4)]))
    await world.settle()
    assert len({p["metadata"]["labels"][labels.REPLICA_NAME] for p in world.pods("worker")}) == 1


@pytest.mark.acceptance("raycluster", 25)
async def test_the_requeue_time_can_be_configured() -> None:
    world = await a_running_world(config=Config(requeue_seconds=10))
    assert [when - world.clock.now() for when in world.promised.values()] == [timedelta(seconds=10)]
