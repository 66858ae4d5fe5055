"""Bad input and a world that says no: the reason is told, the rest goes on, and all is well once it is mended.

Spec raycluster §25, cases 21, 23, 26, 36, 38, 45, 50, 63, 66, 77, 78, 115.
"""

import asyncio
from typing import Any

import pytest

from cluster_reconciler import apply
from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, Gate
from common.kube.resources import POD, RAY_CLUSTER, SERVICE_ACCOUNT, Resource
from common.runtime.key import Key
from scenario.cluster_reconciler.world import World, a_running_world
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.fakes.kube import FakeKube, Fault, Request

QUOTA = errors.Forbidden('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1')
WEBHOOK = errors.Rejected('admission webhook "policy.example.org" denied the request: no team label')
DENIED = errors.Forbidden('pods is forbidden: User "x" cannot create resource "pods"')


def refusing(verb: str, kind: str, problem: errors.RaybusError, *, name: str = "") -> Fault:
    def fault(request: Request) -> errors.RaybusError | None:
        return problem if (request.verb, request.kind) == (verb, kind) and name in request.name else None

    return fault


def pods_with(*containers: Body, **spec: Any) -> Body:
    return a_template(*containers, **spec)


@pytest.mark.acceptance("raycluster", 50)
@pytest.mark.parametrize("problem", [QUOTA, WEBHOOK, DENIED], ids=["quota", "webhook", "rights"])
async def test_a_head_that_is_refused_is_told_until_it_is_let_in(problem: errors.RaybusError) -> None:
    world = World()
    world.kube.faults.append(refusing("create", "Pod", problem))
    world.apply(a_ray_cluster())
    await world.settle()
    failure = next(each for each in world.cluster().status.conditions if each.type == "ReplicaFailure")
    assert (failure.status, failure.reason) == ("True", "FailedCreateHeadPod")
    assert failure.message.startswith("FailedCreateHeadPod\n")
    assert str(problem) in failure.message
    assert "FailedToCreateHeadPod" in world.reasons()
    assert len([r for r in world.kube.requests if (r.verb, r.kind) == ("create", "Pod")]) <= 3
    world.kube.faults.clear()
    await world.look()
    assert len(world.names()) == 4
    assert "ReplicaFailure" not in world.conditions()


@pytest.mark.parametrize(
    ("kind", "reason", "fields"),
    [
        ("Service", "FailedToCreateService", {}),
        ("ServiceAccount", "FailedToCreateServiceAccount", {"enable_in_tree_autoscaling": True}),
        ("Role", "FailedToCreateRole", {"enable_in_tree_autoscaling": True}),
        ("RoleBinding", "FailedToCreateRoleBinding", {"enable_in_tree_autoscaling": True}),
        ("Secret", "", {"auth_options": {}}),
    ],
)
async def test_a_child_that_is_refused_holds_pods_back_until_it_is_let_in(
    kind: str, reason: str, fields: dict[str, Any]
) -> None:
    world = World()
    world.kube.faults.append(refusing("create", kind, WEBHOOK))
    world.apply(a_ray_cluster(**fields))
    await world.settle()
    assert world.names() == []
    assert reason in {*world.reasons(), ""}
    assert str(WEBHOOK) in str(world.errors[0])
    assert world.conditions()["ReplicaFailure"] == ("True", f"FailedCreate{kind}")
    world.kube.faults.clear()
    await world.look()
    assert len(world.names()) == 4
    assert "ReplicaFailure" not in world.conditions()


@pytest.mark.parametrize("problem", [QUOTA, WEBHOOK, DENIED, errors.Conflict("old")])
async def test_an_ingress_that_is_refused_is_told_and_the_rest_goes_on(problem: errors.RaybusError) -> None:
    world = World()
    world.kube.faults.append(refusing("create", "Ingress", problem))
    world.apply(a_ray_cluster(head=a_head(enable_ingress=True)))
    await world.settle()
    assert len(world.names()) == 4
    assert "FailedToCreateIngress" in world.reasons()
    assert world.conditions()["ReplicaFailure"] == ("True", "FailedCreateIngress")
    await world.look()
    assert [text for text in world.kube.writes() if "status" in text] == ["update RayCluster/status c"]
    world.kube.faults.clear()
    await world.look()
    assert ("Ingress", "ns", "c-head-ingress") in world.kube.objects
    assert "ReplicaFailure" not in world.conditions()


async def test_a_refusal_that_lasts_is_written_once() -> None:
    """The API server's text names the pod: were it another pod each time, each look would write a status and an Event."""
    world = World()
    world.kube.faults.append(naming_refusal)
    world.apply(a_ray_cluster())
    await world.settle()
    for _ in range(20):
        await world.look()
    assert [text for text in world.kube.writes() if "status" in text] == ["update RayCluster/status c"]
    assert world.reasons().count("FailedToCreateHeadPod") == 1


def naming_refusal(request: Request) -> errors.RaybusError | None:
    if (request.verb, request.kind) != ("create", "Pod"):
        return None
    return errors.Forbidden(f'pods "{request.name}" is forbidden: exceeded quota: q')


async def test_a_head_that_never_gets_ready_is_told_and_costs_nothing() -> None:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    unready: Body = {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "not ready: [ray]"}
    waiting: Body = {"name": "ray-head", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
    status: Body = {"phase": "Running", "conditions": [unready], "containerStatuses": [waiting]}
    world.kube.set_status(POD, "ns", world.names("head")[0], status)
    await world.pass_time(1)
    assert world.conditions()["HeadPodReady"] == ("False", "CrashLoopBackOff")
    assert world.conditions()["RayClusterProvisioned"][0] == "False"
    before = world.names()
    world.kube.requests.clear()
    for _ in range(12):
        await world.pass_time(300)
    assert (world.names(), world.kube.requests) == (before, [])


@pytest.mark.acceptance("raycluster", 63)
async def test_one_group_that_is_refused_does_not_hold_up_the_others() -> None:
    world = World()
    world.kube.faults.append(refusing("create", "Pod", WEBHOOK, name="c-bad-"))
    world.apply(a_ray_cluster(groups=[a_group("bad"), a_group("good")]))
    await world.settle()
    assert (len(world.names(group="bad")), len(world.names(group="good"))) == (0, 3)
    assert world.conditions()["ReplicaFailure"] == ("True", "FailedCreateWorkerPod")


async def test_a_cluster_whose_end_the_watch_has_not_told_gets_no_pods_once_the_api_server_does_not_know_it() -> None:
    world = await a_running_world()
    del world.kube.objects["RayCluster", "ns", "c"]
    for _ in range(3):  # the garbage collector takes what stands below it
        for name in world.names():
            await world.kube.delete(POD, "ns", name)
        world.finish_deletions()
        await world.settle()
    assert world.names() == []
    assert len([each for each in world.kube.requests if (each.verb, each.kind) == ("create", "Pod")]) <= 4


async def test_a_deletion_that_meets_a_conflict_is_tried_again_and_brings_no_pod_too_many() -> None:
    world = await a_running_world()
    before = world.names()
    world.kube.faults.append(refusing("delete", "Pod", errors.Conflict("a webhook wants another try")))
    world.apply(a_ray_cluster(groups=[a_group("g", replicas=1)]))
    await world.settle()
    world.apply(a_ray_cluster(groups=[a_group("g", replicas=3)]))
    await world.settle()
    assert world.names() == before
    world.apply(a_ray_cluster(groups=[a_group("g", replicas=1)]))
    await world.settle()
    world.kube.faults.clear()
    await world.look()
    await world.settle()
    assert len(world.names()) == 2


@pytest.mark.acceptance("raycluster", 77)
async def test_pods_that_cannot_be_deleted_are_told_while_suspending() -> None:
    world = await a_running_world()
    world.kube.faults.append(refusing("deletecollection", "Pod", DENIED))
    world.apply(a_ray_cluster(suspend=True))
    await world.settle()
    assert "FailedToDeletePodCollection" in world.reasons()
    assert world.conditions()["ReplicaFailure"] == ("True", "FailedDeleteAllPods")
    world.kube.faults.clear()
    await world.look()
    await world.settle()
    assert world.conditions()["RayClusterSuspended"][0] == "True"


@pytest.mark.acceptance("raycluster", 78)
async def test_a_cluster_that_is_born_suspended_has_a_service_and_no_pods() -> None:
    world = World()
    world.apply(a_ray_cluster(suspend=True))
    await world.settle()
    assert (world.names(), world.cluster().status.state) == ([], "suspended")
    assert ("Service", "ns", "c-head-svc") in world.kube.objects
    assert world.conditions()["RayClusterSuspended"][0] == "True"


@pytest.mark.acceptance("raycluster", 21)
async def test_pods_come_when_the_service_account_does() -> None:
    template = pods_with(a_container(), service_account_name="custom")
    world = World()
    world.apply(a_ray_cluster(enable_in_tree_autoscaling=True, head=a_head(template=template)))
    await world.settle()
    assert ("Service", "ns", "c-head-svc") not in world.kube.objects
    world.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": "custom", "namespace": "ns"}})
    await world.look()
    assert len(world.names()) == 4


@pytest.mark.acceptance("raycluster", 23)
async def test_a_pods_error_counts_for_more_than_that_of_a_status() -> None:
    world = World()
    world.kube.faults += [
        refusing("create", "Pod", QUOTA),
        refusing("update", "RayCluster", errors.Conflict("old")),
    ]
    world.apply(a_ray_cluster())
    await world.settle()
    assert isinstance(world.errors[0], errors.Forbidden)


@pytest.mark.acceptance("raycluster", 26)
async def test_a_status_alone_makes_no_work_and_an_annotation_is_looked_at() -> None:
    world = await a_running_world()
    body = world.kube.objects["RayCluster", "ns", "c"]
    world.kube.set_status(RAY_CLUSTER, "ns", "c", body["status"] | {"lastUpdateTime": "2026-02-02T00:00:00Z"})
    await world.settle()
    assert world.kube.requests == []
    world.apply(a_ray_cluster(annotations={"ray.io/enable-serve-service": "true"}))
    await world.settle()
    assert "create Service c-serve-svc" in world.kube.writes()


@pytest.mark.acceptance("raycluster", 36)
async def test_a_stale_finalizer_of_embedded_storage_goes_without_a_job() -> None:
    options: dict[str, Any] = {"gcs_fault_tolerance_options": {"backend": "rocksdb"}}
    world = World(Config(gates=BETA | {Gate.EMBEDDED_STORAGE}))
    world.apply(a_ray_cluster(**options))
    body = world.kube.objects["RayCluster", "ns", "c"]
    body["metadata"]["finalizers"] = [labels.GCS_FT_FINALIZER]
    world.kube.put(RAY_CLUSTER, body)
    await world.settle()
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.settle()
    assert ("RayCluster", "ns", "c") not in world.kube.objects
    assert "create Job c-redis-cleanup" not in world.kube.writes()


@pytest.mark.acceptance("raycluster", 38)
async def test_an_invalid_spec_holds_a_fault_tolerant_cluster_back_until_it_is_mended() -> None:
    options: dict[str, Any] = {"gcs_fault_tolerance_options": {"redisAddress": "redis:6379"}}
    world = await a_running_world(a_ray_cluster(**options))
    broken = world.kube.objects["RayCluster", "ns", "c"]
    good = broken["spec"]
    world.kube.put(
        RAY_CLUSTER, broken | {"spec": good | {"workerGroupSpecs": [a_group(min_replicas=5, max_replicas=1)]}}
    )
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.pass_time(1000)
    assert ("RayCluster", "ns", "c") in world.kube.objects
    assert "InvalidRayClusterSpec" in world.reasons()
    world.kube.put(RAY_CLUSTER, world.kube.objects["RayCluster", "ns", "c"] | {"spec": good})
    await world.settle()
    assert world.names() == []


@pytest.mark.acceptance("raycluster", 45)
async def test_an_ended_sidecar_does_not_cost_the_head() -> None:
    template = pods_with(a_container("ray"), a_container("side"), restart_policy="Never")
    world = World()
    world.apply(a_ray_cluster(head=a_head(template=template)))
    await world.settle()
    head = world.names("head")
    ended: Body = {"terminated": {"exitCode": 1, "reason": "Error"}}
    running: Body = {"running": {}}
    for ray, is_kept in ((running, True), (ended, False)):
        statuses: list[Body] = [{"name": "ray", "state": ray}, {"name": "side", "state": ended}]
        world.kube.set_status(POD, "ns", head[0], {"phase": "Running", "containerStatuses": statuses})
        await world.settle()
        assert (world.names("head") == head) is is_kept


@pytest.mark.acceptance("raycluster", 66)
async def test_the_pods_of_a_group_that_left_the_spec_stay_and_count() -> None:
    world = await a_running_world(a_ray_cluster(groups=[a_group(), a_group("h", replicas=1)]))
    world.apply(a_ray_cluster())
    await world.settle()
    assert len(world.names(group="h")) == 1
    assert world.cluster().status.available_worker_replicas == 4


@pytest.mark.acceptance("raycluster", 115)
async def test_the_time_to_provision_is_measured_from_the_creation() -> None:
    world = World()
    world.apply(a_ray_cluster())
    await world.settle()
    world.clock.advance(42)
    world.kubelet()
    await world.settle()
    series = {"name": "c", "namespace": "ns", "uid": world.cluster().metadata.uid}
    duration = "kuberay_cluster_provisioned_duration_seconds"
    assert world.registry.get_sample_value(duration, series) == 42
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.settle()
    assert world.registry.get_sample_value(duration, series) is None


INVALID = [
    pytest.param({"head": a_head(template={"spec": {"containers": []}})}, "at least one container", id="no container"),
    pytest.param({"groups": [a_group(min_replicas="x")]}, "minReplicas", id="a count that is no number"),
    pytest.param({"auth_options": {"mode": "token"}}, "RayVersion was not specified", id="token without a version"),
]


@pytest.mark.parametrize(("fields", "text"), INVALID)
async def test_an_invalid_spec_is_told_once_and_recovers_when_it_is_mended(fields: dict[str, Any], text: str) -> None:
    world = World()
    world.apply(a_ray_cluster(**fields))
    await world.settle()
    await world.pass_time(3600)
    told = [note for _, reason, note in world.kube.events() if reason == "InvalidRayClusterSpec"]
    assert len(told) == 1
    assert text in told[0]
    assert (world.kube.writes(), world.promised) == ([], {})
    world.apply(a_ray_cluster())
    await world.settle()
    assert len(world.names()) == 4


async def test_unknown_fields_of_a_template_reach_the_pods() -> None:
    template = pods_with(a_container("ray", fieldOfTomorrow={"a": 1}), anotherField="x")
    world = World()
    world.apply(a_ray_cluster(head=a_head(template=template)))
    await world.settle()
    spec = world.pods("head")[0]["spec"]
    assert (spec["containers"][0]["fieldOfTomorrow"], spec["anotherField"]) == ({"a": 1}, "x")


async def test_a_spec_of_a_megabyte_makes_pods() -> None:
    env = [{"name": f"E{number}", "value": "x" * 1000} for number in range(500)]
    template = pods_with(a_container("ray", env=env))
    world = World()
    world.apply(a_ray_cluster(groups=[a_group(name, replicas=1, template=template) for name in ("g", "h")]))
    await world.settle()
    assert len(world.names("worker")) == 2
    assert world.pods("worker")[0]["spec"]["containers"][0]["env"][: len(env)] == env


class CountsCreates(FakeKube):
    """Notes how many pods are being created together."""

    under_way = most = 0

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        self.under_way += resource == POD
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        try:
            return await super().create(resource, namespace, body)
        finally:
            self.under_way -= resource == POD


async def test_many_pods_are_created_together_and_not_all_at_once() -> None:
    kube = CountsCreates()
    world = World(kube=kube)
    world.apply(a_ray_cluster(groups=[a_group(replicas=200, max_replicas=200)]))
    await world.settle()
    assert len(world.names("worker")) == 200
    assert kube.most == apply.AT_ONCE


@pytest.mark.parametrize(("group", "hosts"), [("g", 2), ("g" * 57, 2), ("g" * 58, 2), ("g" * 63, 4), ("g" * 63, 1)])
async def test_names_at_their_limits_make_valid_objects(group: str, hosts: int) -> None:
    name = "c" * 53
    world = World()
    world.apply(a_long_cluster(name, group, hosts))
    await world.settle()
    made = [key[2] for key in world.kube.objects if key[0] in {"Pod", "Service", "Role", "ServiceAccount", "Ingress"}]
    assert len(world.names()) == 1 + 2 * hosts
    assert max(map(len, made)) <= 63
    assert all(len(value) <= 63 for pod in world.pods() for value in pod["metadata"]["labels"].values())
    world.kube.requests.clear()
    await world.look(Key("ns", name))
    assert world.kube.writes() == []


def a_long_cluster(name: str, group: str, hosts: int) -> RayCluster:
    groups = [a_group(group, replicas=2, num_of_hosts=hosts)]
    return a_ray_cluster(name, head=a_head(enable_ingress=True), groups=groups, enable_in_tree_autoscaling=True)


async def test_the_name_of_a_secret_that_cannot_exist_is_told_by_its_field_and_nothing_is_asked_for() -> None:
    world = World()
    options = {"mode": "token", "secretName": "../../tenant-b/secrets/prod-ray"}
    world.apply(a_ray_cluster(auth_options=options, ray_version="2.52.0"))
    await world.settle()
    assert "InvalidRayClusterSpec" in world.reasons()
    assert any("authOptions.secretName is not the name of a Secret" in note for _, _, note in world.kube.events())
    assert world.kube.writes() == []
