"""Bad input and refused writes: the reason is reported, the rest continues, and all is well once the cause is fixed.

Spec raycluster §25, cases 21, 23, 26, 36, 38, 45, 50, 63, 66, 77, 78, 115.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from cluster_reconciler.config import Config
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import POD, RAY_CLUSTER, SERVICE_ACCOUNT, Resource
from common.runtime.executor import MAX_CONCURRENT_ACTIONS
from common.runtime.key import Key
from scenario.cluster_reconciler.harness import Harness, a_running_harness
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.fakes.kube import FakeKube, Request, refusing
from support.tables import cases

QUOTA = errors.Forbidden(
    'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
)
WEBHOOK = errors.Rejected(
    'admission webhook "policy.example.org" denied the request: no team label'
)
DENIED = errors.Forbidden('pods is forbidden: User "x" cannot create resource "pods"')


def pods_with(*containers: Body, **spec: Any) -> Body:
    return a_template(*containers, **spec)


@pytest.mark.acceptance("raycluster", 50)
@pytest.mark.parametrize("problem", [QUOTA, WEBHOOK, DENIED], ids=["quota", "webhook", "rights"])
async def test_a_head_that_is_refused_is_reported_until_it_is_admitted(
    problem: errors.RaybusError,
) -> None:
    harness = Harness()
    harness.kube.faults.append(refusing("create", "Pod", problem))
    harness.apply(a_ray_cluster())
    await harness.settle()
    failure = next(
        each for each in harness.cluster().status.conditions if each.type == "ReplicaFailure"
    )
    assert (failure.status, failure.reason) == ("True", "FailedCreateHeadPod")
    assert failure.message.startswith("FailedCreateHeadPod\n")
    assert str(problem) in failure.message
    assert "FailedToCreateHeadPod" in harness.reasons()
    assert len([r for r in harness.kube.requests if (r.verb, r.kind) == ("create", "Pod")]) <= 3
    harness.kube.faults.clear()
    await harness.reconcile()
    assert len(harness.names()) == 4
    assert "ReplicaFailure" not in harness.conditions()


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
    harness = Harness()
    harness.kube.faults.append(refusing("create", kind, WEBHOOK))
    harness.apply(a_ray_cluster(**fields))
    await harness.settle()
    assert harness.names() == []
    failures = {each for each in harness.reasons() if each.startswith("Failed")}
    assert failures == ({reason} if reason else set())
    assert str(WEBHOOK) in str(harness.errors[0])
    assert harness.conditions()["ReplicaFailure"] == ("True", f"FailedCreate{kind}")
    harness.kube.faults.clear()
    await harness.reconcile()
    assert len(harness.names()) == 4
    assert "ReplicaFailure" not in harness.conditions()


@pytest.mark.parametrize("problem", [QUOTA, WEBHOOK, DENIED, errors.Conflict("old")])
async def test_an_ingress_that_is_refused_is_reported_and_the_rest_continues(
    problem: errors.RaybusError,
) -> None:
    harness = Harness()
    harness.kube.faults.append(refusing("create", "Ingress", problem))
    harness.apply(a_ray_cluster(head=a_head(enable_ingress=True)))
    await harness.settle()
    assert len(harness.names()) == 4
    assert "FailedToCreateIngress" in harness.reasons()
    assert harness.conditions()["ReplicaFailure"] == ("True", "FailedCreateIngress")
    await harness.reconcile()
    assert [text for text in harness.kube.writes() if "status" in text] == [
        "update RayCluster/status c"
    ]
    harness.kube.faults.clear()
    await harness.reconcile()
    assert ("Ingress", "ns", "c-head-ingress") in harness.kube.objects
    assert "ReplicaFailure" not in harness.conditions()


async def test_a_refusal_that_lasts_is_written_once() -> None:
    """The API server's text names the pod: with another pod each time, each reconcile would write a status and an Event."""
    harness = Harness()
    harness.kube.faults.append(naming_refusal)
    harness.apply(a_ray_cluster())
    await harness.settle()
    for _ in range(20):
        await harness.reconcile()
    assert [text for text in harness.kube.writes() if "status" in text] == [
        "update RayCluster/status c"
    ]
    assert harness.reasons().count("FailedToCreateHeadPod") == 1


def naming_refusal(request: Request) -> errors.RaybusError | None:
    if (request.verb, request.kind) != ("create", "Pod"):
        return None
    return errors.Forbidden(f'pods "{request.name}" is forbidden: exceeded quota: q')


async def test_a_head_that_never_gets_ready_is_reported_and_costs_nothing() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    unready: Body = {
        "type": "Ready",
        "status": "False",
        "reason": "ContainersNotReady",
        "message": "not ready: [ray]",
    }
    waiting: Body = {
        "name": "ray-head",
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
    }
    status: Body = {"phase": "Running", "conditions": [unready], "containerStatuses": [waiting]}
    harness.kube.set_status(POD, "ns", harness.names("head")[0], status)
    await harness.pass_time(1)
    assert harness.conditions()["HeadPodReady"] == ("False", "CrashLoopBackOff")
    assert harness.conditions()["RayClusterProvisioned"][0] == "False"
    before = harness.names()
    harness.kube.requests.clear()
    for _ in range(12):
        await harness.pass_time(300)
    assert (harness.names(), harness.kube.requests) == (before, [])


@pytest.mark.acceptance("raycluster", 63)
async def test_one_group_that_is_refused_does_not_hold_up_the_others() -> None:
    harness = Harness()
    harness.kube.faults.append(refusing("create", "Pod", WEBHOOK, name="c-bad-"))
    harness.apply(a_ray_cluster(groups=[a_group("bad"), a_group("good")]))
    await harness.settle()
    assert (len(harness.names(group="bad")), len(harness.names(group="good"))) == (0, 3)
    assert harness.conditions()["ReplicaFailure"] == ("True", "FailedCreateWorkerPod")


async def test_a_deleted_cluster_gets_no_pods_before_the_watch_reports_its_deletion() -> None:
    harness = await a_running_harness()
    del harness.kube.objects["RayCluster", "ns", "c"]
    for _ in range(3):  # the garbage collector takes what stands below it
        for name in harness.names():
            await harness.kube.delete(POD, "ns", name)
        harness.finish_deletions()
        await harness.settle()
    assert harness.names() == []
    assert (
        len([each for each in harness.kube.requests if (each.verb, each.kind) == ("create", "Pod")])
        <= 4
    )


async def test_a_deletion_that_meets_a_conflict_is_tried_again_and_brings_no_pod_too_many() -> None:
    harness = await a_running_harness()
    before = harness.names()
    harness.kube.faults.append(
        refusing("delete", "Pod", errors.Conflict("a webhook wants another try"))
    )
    harness.apply(a_ray_cluster(groups=[a_group("g", replicas=1)]))
    await harness.settle()
    harness.apply(a_ray_cluster(groups=[a_group("g", replicas=3)]))
    await harness.settle()
    assert harness.names() == before
    harness.apply(a_ray_cluster(groups=[a_group("g", replicas=1)]))
    await harness.settle()
    harness.kube.faults.clear()
    await harness.reconcile()
    await harness.settle()
    assert len(harness.names()) == 2


@pytest.mark.acceptance("raycluster", 77)
async def test_pods_that_cannot_be_deleted_are_reported_while_suspending() -> None:
    harness = await a_running_harness()
    harness.kube.faults.append(refusing("deletecollection", "Pod", DENIED))
    harness.apply(a_ray_cluster(suspend=True))
    await harness.settle()
    assert "FailedToDeletePodCollection" in harness.reasons()
    assert harness.conditions()["ReplicaFailure"] == ("True", "FailedDeleteAllPods")
    harness.kube.faults.clear()
    await harness.reconcile()
    await harness.settle()
    assert harness.conditions()["RayClusterSuspended"][0] == "True"


@pytest.mark.acceptance("raycluster", 78)
async def test_a_cluster_that_is_born_suspended_has_a_service_and_no_pods() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(suspend=True))
    await harness.settle()
    assert (harness.names(), harness.cluster().status.state) == ([], "suspended")
    assert ("Service", "ns", "c-head-svc") in harness.kube.objects
    assert harness.conditions()["RayClusterSuspended"][0] == "True"


@pytest.mark.acceptance("raycluster", 21)
async def test_pods_come_when_the_service_account_does() -> None:
    template = pods_with(a_container(), service_account_name="custom")
    harness = Harness()
    harness.apply(a_ray_cluster(enable_in_tree_autoscaling=True, head=a_head(template=template)))
    await harness.settle()
    assert ("Service", "ns", "c-head-svc") not in harness.kube.objects
    harness.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": "custom", "namespace": "ns"}})
    await harness.reconcile()
    assert len(harness.names()) == 4


@pytest.mark.acceptance("raycluster", 23)
async def test_a_pods_error_counts_for_more_than_that_of_a_status() -> None:
    harness = Harness()
    harness.kube.faults += [
        refusing("create", "Pod", QUOTA),
        refusing("update", "RayCluster", errors.Conflict("old")),
    ]
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert isinstance(harness.errors[0], errors.Forbidden)


@pytest.mark.acceptance("raycluster", 26)
async def test_a_status_alone_enqueues_nothing_and_an_annotation_is_reconciled() -> None:
    harness = await a_running_harness()
    body = harness.kube.objects["RayCluster", "ns", "c"]
    harness.kube.set_status(
        RAY_CLUSTER, "ns", "c", body["status"] | {"lastUpdateTime": "2026-02-02T00:00:00Z"}
    )
    await harness.settle()
    assert harness.kube.requests == []
    harness.apply(a_ray_cluster(annotations={"ray.io/enable-serve-service": "true"}))
    await harness.settle()
    assert "create Service c-serve-svc" in harness.kube.writes()


@pytest.mark.acceptance("raycluster", 36)
async def test_a_stale_finalizer_of_embedded_storage_goes_without_a_job() -> None:
    options: dict[str, Any] = {"gcs_fault_tolerance_options": {"backend": "rocksdb"}}
    harness = Harness(Config(gates=BETA | {FeatureGate.EMBEDDED_STORAGE}))
    harness.apply(a_ray_cluster(**options))
    body = harness.kube.objects["RayCluster", "ns", "c"]
    body["metadata"]["finalizers"] = [labels.GCS_FT_FINALIZER]
    harness.kube.put(RAY_CLUSTER, body)
    await harness.settle()
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    assert ("RayCluster", "ns", "c") not in harness.kube.objects
    assert "create Job c-redis-cleanup" not in harness.kube.writes()


@pytest.mark.acceptance("raycluster", 38)
async def test_an_invalid_spec_holds_a_fault_tolerant_cluster_until_it_is_corrected() -> None:
    options: dict[str, Any] = {"gcs_fault_tolerance_options": {"redisAddress": "redis:6379"}}
    harness = await a_running_harness(a_ray_cluster(**options))
    broken = harness.kube.objects["RayCluster", "ns", "c"]
    good = broken["spec"]
    harness.kube.put(
        RAY_CLUSTER,
        broken | {"spec": good | {"workerGroupSpecs": [a_group(min_replicas=5, max_replicas=1)]}},
    )
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.pass_time(299)
    assert ("RayCluster", "ns", "c") in harness.kube.objects
    assert "RedisCleanupBlocked" in harness.reasons()
    assert harness.names() == []
    harness.kube.put(RAY_CLUSTER, harness.kube.objects["RayCluster", "ns", "c"] | {"spec": good})
    await harness.settle()
    assert "CreatedRedisCleanupJob" in harness.reasons()


@pytest.mark.acceptance("raycluster", 45)
async def test_an_ended_sidecar_does_not_cost_the_head() -> None:
    template = pods_with(a_container("ray"), a_container("side"), restart_policy="Never")
    harness = Harness()
    harness.apply(a_ray_cluster(head=a_head(template=template)))
    await harness.settle()
    head = harness.names("head")
    ended: Body = {"terminated": {"exitCode": 1, "reason": "Error"}}
    running: Body = {"running": {}}
    for ray, is_kept in ((running, True), (ended, False)):
        statuses: list[Body] = [{"name": "ray", "state": ray}, {"name": "side", "state": ended}]
        harness.kube.set_status(
            POD, "ns", head[0], {"phase": "Running", "containerStatuses": statuses}
        )
        await harness.settle()
        assert (harness.names("head") == head) is is_kept


@pytest.mark.acceptance("raycluster", 66)
async def test_the_pods_of_a_group_that_left_the_spec_stay_and_count() -> None:
    harness = await a_running_harness(a_ray_cluster(groups=[a_group(), a_group("h", replicas=1)]))
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert len(harness.names(group="h")) == 1
    assert harness.cluster().status.available_worker_replicas == 4


@pytest.mark.acceptance("raycluster", 115)
async def test_the_time_to_provision_is_measured_from_the_creation() -> None:
    harness = Harness()
    harness.apply(a_ray_cluster())
    await harness.settle()
    harness.clock.advance(42)
    harness.kubelet()
    await harness.settle()
    series = {"name": "c", "namespace": "ns", "uid": harness.cluster().metadata.uid}
    duration = "kuberay_cluster_provisioned_duration_seconds"
    assert harness.registry.get_sample_value(duration, series) == 42
    await harness.app.observer.kube.delete(RAY_CLUSTER, "ns", "c")
    await harness.settle()
    assert harness.registry.get_sample_value(duration, series) is None


INVALID = {
    "no container": (
        {"head": a_head(template={"spec": {"containers": []}})},
        "at least one container",
    ),
    "a count that is no number": ({"groups": [a_group(min_replicas="x")]}, "minReplicas"),
    "token without a version": (
        {"auth_options": {"mode": "token"}},
        "RayVersion was not specified",
    ),
}


@cases(("fields", "text"), INVALID)
async def test_an_invalid_spec_is_reported_once_and_recovers_when_it_is_corrected(
    fields: dict[str, Any], text: str
) -> None:
    harness = Harness()
    harness.apply(a_ray_cluster(**fields))
    await harness.settle()
    await harness.pass_time(3600)
    notes = [note for _, reason, note in harness.kube.events() if reason == "InvalidRayClusterSpec"]
    assert len(notes) == 1
    assert text in notes[0]
    assert (harness.kube.writes(), harness.promised) == ([], {})
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert len(harness.names()) == 4


async def test_unknown_fields_of_a_template_reach_the_pods() -> None:
    template = pods_with(a_container("ray", fieldOfTomorrow={"a": 1}), anotherField="x")
    harness = Harness()
    harness.apply(a_ray_cluster(head=a_head(template=template)))
    await harness.settle()
    spec = harness.pods("head")[0]["spec"]
    assert (spec["containers"][0]["fieldOfTomorrow"], spec["anotherField"]) == ({"a": 1}, "x")


async def test_a_spec_of_a_megabyte_makes_pods() -> None:
    env = [{"name": f"E{number}", "value": "x" * 1000} for number in range(500)]
    template = pods_with(a_container("ray", env=env))
    harness = Harness()
    harness.apply(
        a_ray_cluster(groups=[a_group(name, replicas=1, template=template) for name in ("g", "h")])
    )
    await harness.settle()
    assert len(harness.names("worker")) == 2
    assert harness.pods("worker")[0]["spec"]["containers"][0]["env"][: len(env)] == env


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
    harness = Harness(kube=kube)
    harness.apply(a_ray_cluster(groups=[a_group(replicas=200, max_replicas=200)]))
    await harness.settle()
    assert len(harness.names("worker")) == 200
    assert kube.most == MAX_CONCURRENT_ACTIONS


@pytest.mark.parametrize(
    ("group", "hosts"), [("g", 2), ("g" * 57, 2), ("g" * 58, 2), ("g" * 63, 4), ("g" * 63, 1)]
)
async def test_names_at_their_limits_make_valid_objects(group: str, hosts: int) -> None:
    name = "c" * 53
    harness = Harness()
    harness.apply(a_long_cluster(name, group, hosts))
    await harness.settle()
    made = [
        key[2]
        for key in harness.kube.objects
        if key[0] in {"Pod", "Service", "Role", "ServiceAccount", "Ingress"}
    ]
    assert len(harness.names()) == 1 + 2 * hosts
    assert max(map(len, made)) <= 63
    assert all(
        len(value) <= 63 for pod in harness.pods() for value in pod["metadata"]["labels"].values()
    )
    harness.kube.requests.clear()
    await harness.reconcile(Key("ns", name))
    assert harness.kube.writes() == []


def a_long_cluster(name: str, group: str, hosts: int) -> RayCluster:
    groups = [a_group(group, replicas=2, num_of_hosts=hosts)]
    return a_ray_cluster(
        name, head=a_head(enable_ingress=True), groups=groups, enable_in_tree_autoscaling=True
    )


async def test_the_name_of_a_secret_that_cannot_exist_is_reported_with_its_field_and_nothing_is_read() -> (
    None
):
    harness = Harness()
    options = {"mode": "token", "secretName": "../../tenant-b/secrets/prod-ray"}
    harness.apply(a_ray_cluster(auth_options=options, ray_version="2.52.0"))
    await harness.settle()
    assert "InvalidRayClusterSpec" in harness.reasons()
    assert any(
        "authOptions.secretName is not the name of a Secret" in note
        for _, _, note in harness.kube.events()
    )
    assert harness.kube.writes() == []


@pytest.mark.parametrize(
    ("place", "text", "problem"),
    [
        (("rayVersion",), "1" * 120_000 + "\n", "<= 128 - at `$.rayVersion`"),
        (
            ("workerGroupSpecs", 0, "groupName"),
            "g" * 254,
            "<= 253 - at `$.workerGroupSpecs[0].groupName`",
        ),
    ],
)
async def test_a_text_above_its_limit_is_reported_by_its_field_where_the_crd_has_no_limit(
    place: tuple[str | int, ...], text: str, problem: str
) -> None:
    harness = Harness()
    cluster = a_ray_cluster()
    spec: Any = cluster.raw_spec
    holder: Any = spec
    for step in place[:-1]:
        holder = holder[step]
    holder[place[-1]] = text
    harness.apply(
        msgspec.structs.replace(cluster, spec_json=msgspec.Raw(msgspec.json.encode(spec)))
    )
    await harness.settle()
    note = next(
        note for _, reason, note in harness.kube.events() if reason == "InvalidRayClusterSpec"
    )
    assert f"Expected `str` of length {problem}; correct the field" in note
    assert harness.names() == []
