"""Children that follow the RayCluster, or may not be touched (spec raycluster §8.2, §8.7; cases 22, 35, 39-41, 110)."""

from typing import Any

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources.route import ROUTE
from common import errors
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, Gate
from common.kube.resources import INGRESS, PERSISTENT_VOLUME_CLAIM, Resource
from scenario.cluster_reconciler.world import World
from support.builders.ray_cluster import a_head, a_ray_cluster
from support.fakes.kube import Request

EMBEDDED = Config(gates=BETA | {Gate.EMBEDDED_STORAGE})
CLASS = {"kubernetes.io/ingress.class": "nginx"}


def an_open_cluster(**fields: Any) -> RayCluster:
    return a_ray_cluster(head=a_head(enable_ingress=True), **fields)


def an_embedded_cluster(**storage: Any) -> RayCluster:
    return a_ray_cluster(gcs_fault_tolerance_options={"backend": "rocksdb", "storage": storage})


async def a_world(cluster: RayCluster, config: Config | None = None) -> World:
    world = World(config)
    world.apply(cluster)
    await world.settle()
    return world


def child(world: World, resource: Resource, name: str) -> Body:
    return world.kube.objects[resource.kind, "ns", name]


def claim(world: World) -> Body:
    return child(world, PERSISTENT_VOLUME_CLAIM, "c-gcs-pvc")


async def test_case_110_an_ingress_follows_its_cluster() -> None:
    world = await a_world(an_open_cluster(annotations=CLASS))
    world.apply(an_open_cluster(annotations=CLASS | {"note": "x"}))
    await world.settle()
    have = child(world, INGRESS, "c-head-ingress")
    assert have["metadata"]["annotations"] == {"note": "x"}
    assert have["spec"]["ingressClassName"] == "nginx"
    assert world.kube.writes().count("update Ingress c-head-ingress") == 1
    assert "UpdatedIngress" in world.reasons()


async def test_case_110_a_steady_ingress_is_not_written_and_others_edits_are_undone() -> None:
    world = await a_world(an_open_cluster(annotations={"note": "x"}))
    await world.pass_time(1)
    world.kube.requests.clear()
    await world.pass_time(300)
    assert world.kube.writes() == []
    have = child(world, INGRESS, "c-head-ingress")
    chosen = {**have["spec"], "ingressClassName": "default-of-the-server"}
    world.kube.put(INGRESS, {**have, "metadata": {**have["metadata"], "annotations": {"foreign": "y"}}, "spec": chosen})
    await world.pass_time(300)
    assert child(world, INGRESS, "c-head-ingress")["metadata"]["annotations"] == {"note": "x"}
    assert child(world, INGRESS, "c-head-ingress")["spec"] == chosen


async def test_case_110_a_foreign_ingress_is_left_alone_and_told() -> None:
    world = World()
    world.kube.put(INGRESS, {"metadata": {"name": "c-head-ingress", "namespace": "ns"}, "spec": {}})
    world.apply(an_open_cluster())
    await world.settle()
    assert len(world.names()) == 4
    assert child(world, INGRESS, "c-head-ingress")["spec"] == {}
    text = "Ingress ns/c-head-ingress already exists and is not owned by this RayCluster; not modifying it"
    assert ("Warning", "FailedToCreateIngress", text) in world.kube.events()


async def test_an_ingress_whose_update_failed_is_tried_again() -> None:
    world = await a_world(an_open_cluster())
    world.kube.faults.append(lambda r: errors.Rejected("denied by a webhook") if r.verb == "update" else None)
    world.apply(an_open_cluster(annotations={"note": "x"}))
    await world.settle()
    assert "FailedToUpdateIngress" in world.reasons()
    world.kube.faults.clear()
    await world.look()
    assert child(world, INGRESS, "c-head-ingress")["metadata"]["annotations"] == {"note": "x"}


@pytest.mark.parametrize(("wants_ingress", "kind"), [(False, ROUTE), (True, INGRESS)])
async def test_openshift_gets_a_route_unless_told_otherwise(wants_ingress: bool, kind: Resource) -> None:
    config = Config(is_openshift=True, uses_ingress_on_openshift=wants_ingress)
    world = await a_world(an_open_cluster(), config)
    assert world.kube.writes().count(f"create {kind.kind} c-head-{kind.kind.lower()}") == 1
    assert f"Created{kind.kind}" in world.reasons()
    world.kube.finish_deletion(kind, "ns", f"c-head-{kind.kind.lower()}")
    await world.pass_time(300)
    assert child(world, kind, f"c-head-{kind.kind.lower()}")


@pytest.mark.acceptance("raycluster", 35, 39)
async def test_a_claim_gets_the_owner_that_its_policy_asks_for() -> None:
    world = await a_world(an_embedded_cluster(), EMBEDDED)
    assert world.cluster().metadata.finalizers == []
    assert claim(world)["metadata"]["ownerReferences"][0]["uid"] == world.cluster().metadata.uid
    world.apply(an_embedded_cluster(deletionPolicy="Retain"))
    await world.settle()
    assert claim(world)["metadata"]["ownerReferences"] == []
    world.apply(an_embedded_cluster(deletionPolicy="DeleteWithCluster"))
    await world.settle()
    assert claim(world)["metadata"]["ownerReferences"][0]["uid"] == world.cluster().metadata.uid


@pytest.mark.parametrize(
    ("storage", "drift"),
    [
        pytest.param({"size": "2Gi"}, "requested size 2Gi != current 1Gi", id="case 40: size"),
        pytest.param({"size": "1024Mi"}, "", id="the same size in other words"),
        pytest.param({"storageClassName": "fast"}, "storageClassName fast != current <default>", id="class"),
        pytest.param(
            {"accessModes": ["ReadWriteMany"], "size": "2Gi"},
            "requested size 2Gi != current 1Gi; accessModes [ReadWriteMany] != current [ReadWriteOnce]",
            id="two things",
        ),
    ],
)
async def test_a_claim_that_cannot_follow_is_told(storage: Body, drift: str) -> None:
    world = await a_world(an_embedded_cluster(), EMBEDDED)
    before = claim(world)["spec"]
    world.apply(an_embedded_cluster(**storage))
    await world.settle()
    note = (
        f"GCS storage PVC ns/c-gcs-pvc already exists and cannot be reconfigured in place ({drift}); "
        "delete the PVC to recreate it with the new settings"
    )
    told = [text for kind, reason, text in world.kube.events() if (kind, reason) == ("Warning", "FailedToCreatePVC")]
    assert told == ([note] if drift else [])
    assert claim(world)["spec"] == before
    assert len(world.names()) == 4


async def test_a_claim_that_another_controls_holds_pods_back() -> None:
    world = World(EMBEDDED)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": True}
    meta: Body = {"name": "c-gcs-pvc", "namespace": "ns", "ownerReferences": [owner]}
    spec: Body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.kube.put(PERSISTENT_VOLUME_CLAIM, {"metadata": meta, "spec": spec})
    world.apply(an_embedded_cluster())
    await world.settle()
    assert world.names() == []
    assert "is controlled by ConfigMap x" in str(world.kube.events())


async def test_case_41_the_users_claim_is_missing() -> None:
    world = await a_world(an_embedded_cluster(claimName="mine"), EMBEDDED)
    note = 'GcsFaultToleranceOptions.Storage.ClaimName "mine" not found in namespace ns; the head Pod will not start until it exists'
    assert ("Warning", "FailedToCreatePVC", note) in world.kube.events()
    assert len(world.names()) == 4
    assert world.kube.all(PERSISTENT_VOLUME_CLAIM, "ns") == []


async def test_case_22_a_service_that_fails_holds_pods_back_and_the_status_is_still_written() -> None:
    world = await a_world(a_ray_cluster())
    world.kubelet()
    await world.settle()
    world.kube.faults.append(_no_serve_service)
    annotations = {"ray.io/enable-serve-service": "true"}
    world.apply(a_ray_cluster(annotations=annotations, groups=[]))
    world.fail(world.names("worker")[0])
    await world.settle()
    assert len(world.names()) == 4
    assert world.cluster().status.available_worker_replicas == 2


def _no_serve_service(request: Request) -> errors.RaybusError | None:
    if request.verb == "create" and request.kind == "Service":
        return errors.Forbidden("services is forbidden")
    return None
