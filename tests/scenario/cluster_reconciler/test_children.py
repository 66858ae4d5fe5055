"""Children that follow the RayCluster, or may not be touched (spec raycluster §8.2, §8.7; cases 22, 35, 39-41, 110)."""

from typing import Any

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import services
from cluster_reconciler.resources.ingress import ROUTE
from common import errors, labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import INGRESS, PERSISTENT_VOLUME_CLAIM, SERVICE, Resource
from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template
from support.fakes.kube import refusing
from support.tables import cases

EMBEDDED = Config(gates=BETA | {FeatureGate.EMBEDDED_STORAGE})
CLASS = {"kubernetes.io/ingress.class": "nginx"}


def an_open_cluster(**fields: Any) -> RayCluster:
    return a_ray_cluster(head=a_head(enable_ingress=True), **fields)


def an_embedded_cluster(**storage: Any) -> RayCluster:
    return a_ray_cluster(gcs_fault_tolerance_options={"backend": "rocksdb", "storage": storage})


async def a_harness(cluster: RayCluster, config: Config | None = None) -> Harness:
    harness = Harness(config)
    harness.apply(cluster)
    await harness.settle()
    return harness


def child(harness: Harness, resource: Resource, name: str) -> Body:
    return harness.kube.objects[resource.kind, "ns", name]


def claim(harness: Harness) -> Body:
    return child(harness, PERSISTENT_VOLUME_CLAIM, "c-gcs-pvc")


async def test_case_110_an_ingress_follows_its_cluster() -> None:
    harness = await a_harness(an_open_cluster(annotations=CLASS))
    harness.apply(an_open_cluster(annotations=CLASS | {"note": "x"}))
    await harness.settle()
    have = child(harness, INGRESS, "c-head-ingress")
    assert have["metadata"]["annotations"] == {"note": "x"}
    assert have["spec"]["ingressClassName"] == "nginx"
    assert harness.kube.writes().count("update Ingress c-head-ingress") == 1
    assert "UpdatedIngress" in harness.reasons()


async def test_case_110_a_steady_ingress_is_not_written_and_others_edits_are_undone() -> None:
    harness = await a_harness(an_open_cluster(annotations={"note": "x"}))
    await harness.pass_time(1)
    harness.kube.requests.clear()
    await harness.pass_time(300)
    assert harness.kube.writes() == []
    have = child(harness, INGRESS, "c-head-ingress")
    chosen = {**have["spec"], "ingressClassName": "default-of-the-server"}
    harness.kube.put(
        INGRESS,
        {**have, "metadata": {**have["metadata"], "annotations": {"foreign": "y"}}, "spec": chosen},
    )
    await harness.pass_time(300)
    assert child(harness, INGRESS, "c-head-ingress")["metadata"]["annotations"] == {"note": "x"}
    assert child(harness, INGRESS, "c-head-ingress")["spec"] == chosen


async def test_case_110_a_foreign_ingress_is_left_alone_and_reported() -> None:
    harness = Harness()
    harness.kube.put(
        INGRESS, {"metadata": {"name": "c-head-ingress", "namespace": "ns"}, "spec": {}}
    )
    harness.apply(an_open_cluster())
    await harness.settle()
    assert len(harness.names()) == 4
    assert child(harness, INGRESS, "c-head-ingress")["spec"] == {}
    text = "Ingress ns/c-head-ingress already exists and is not owned by this RayCluster; not modifying it"
    assert ("Warning", "FailedToCreateIngress", text) in harness.kube.events()


async def test_a_failed_update_of_an_ingress_is_retried() -> None:
    harness = await a_harness(an_open_cluster())
    harness.kube.faults.append(
        lambda r: errors.Rejected("denied by a webhook") if r.verb == "update" else None
    )
    harness.apply(an_open_cluster(annotations={"note": "x"}))
    await harness.settle()
    assert "FailedToUpdateIngress" in harness.reasons()
    harness.kube.faults.clear()
    await harness.reconcile()
    assert child(harness, INGRESS, "c-head-ingress")["metadata"]["annotations"] == {"note": "x"}


@pytest.mark.parametrize(("wants_ingress", "kind"), [(False, ROUTE), (True, INGRESS)])
async def test_openshift_gets_a_route_unless_configured_otherwise(
    wants_ingress: bool, kind: Resource
) -> None:
    config = Config(is_openshift=True, uses_ingress_on_openshift=wants_ingress)
    harness = await a_harness(an_open_cluster(), config)
    assert harness.kube.writes().count(f"create {kind.kind} c-head-{kind.kind.lower()}") == 1
    assert f"Created{kind.kind}" in harness.reasons()
    harness.kube.finish_deletion(kind, "ns", f"c-head-{kind.kind.lower()}")
    await harness.pass_time(300)
    assert child(harness, kind, f"c-head-{kind.kind.lower()}")


@pytest.mark.acceptance("raycluster", 35, 39)
async def test_a_claim_gets_the_owner_that_its_policy_asks_for() -> None:
    harness = await a_harness(an_embedded_cluster(), EMBEDDED)
    assert harness.cluster().metadata.finalizers == []
    assert claim(harness)["metadata"]["ownerReferences"][0]["uid"] == harness.cluster().metadata.uid
    harness.apply(an_embedded_cluster(deletionPolicy="Retain"))
    await harness.settle()
    assert claim(harness)["metadata"]["ownerReferences"] == []
    harness.apply(an_embedded_cluster(deletionPolicy="DeleteWithCluster"))
    await harness.settle()
    assert claim(harness)["metadata"]["ownerReferences"][0]["uid"] == harness.cluster().metadata.uid


@cases(
    ("storage", "drift"),
    {
        "case 40: size": ({"size": "2Gi"}, "requested size 2Gi != current 1Gi"),
        "the same size in another unit": ({"size": "1024Mi"}, ""),
        "class": ({"storageClassName": "fast"}, "storageClassName fast != current <default>"),
        "two things": (
            {"accessModes": ["ReadWriteMany"], "size": "2Gi"},
            "requested size 2Gi != current 1Gi; accessModes [ReadWriteMany] != current [ReadWriteOnce]",
        ),
    },
)
async def test_a_claim_that_cannot_follow_is_reported(storage: Body, drift: str) -> None:
    harness = await a_harness(an_embedded_cluster(), EMBEDDED)
    before = claim(harness)["spec"]
    harness.apply(an_embedded_cluster(**storage))
    await harness.settle()
    note = (
        f"GCS storage PVC ns/c-gcs-pvc already exists and cannot be reconfigured in place ({drift}); "
        "delete the PVC to recreate it with the new settings"
    )
    notes = [
        text
        for kind, reason, text in harness.kube.events()
        if (kind, reason) == ("Warning", "FailedToCreatePVC")
    ]
    assert notes == ([note] if drift else [])
    assert claim(harness)["spec"] == before
    assert len(harness.names()) == 4


async def test_a_claim_that_asks_for_no_class_is_as_it_was_asked_for() -> None:
    harness = await a_harness(an_embedded_cluster(storageClassName=""), EMBEDDED)
    assert not claim(harness)["spec"]["storageClassName"]
    harness.apply(an_embedded_cluster(storageClassName="", deletionPolicy="Retain"))
    await harness.settle()
    assert "FailedToCreatePVC" not in harness.reasons()


async def test_a_claim_that_another_controls_holds_pods_back() -> None:
    harness = Harness(EMBEDDED)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "u", "controller": True}
    meta: Body = {"name": "c-gcs-pvc", "namespace": "ns", "ownerReferences": [owner]}
    spec: Body = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    harness.kube.put(PERSISTENT_VOLUME_CLAIM, {"metadata": meta, "spec": spec})
    harness.apply(an_embedded_cluster())
    await harness.settle()
    assert harness.names() == []
    assert "is controlled by ConfigMap x" in str(harness.kube.events())


async def test_case_41_the_users_claim_is_missing() -> None:
    harness = await a_harness(an_embedded_cluster(claimName="mine"), EMBEDDED)
    note = 'GcsFaultToleranceOptions.Storage.ClaimName "mine" not found in namespace ns; the head Pod will not start until it exists'
    assert ("Warning", "FailedToCreatePVC", note) in harness.kube.events()
    assert len(harness.names()) == 4
    assert harness.kube.all(PERSISTENT_VOLUME_CLAIM, "ns") == []


async def test_case_22_a_service_that_fails_holds_pods_back_and_the_status_is_still_written() -> (
    None
):
    harness = await a_harness(a_ray_cluster())
    harness.kubelet()
    await harness.settle()
    harness.kube.faults.append(
        refusing("create", "Service", errors.Forbidden("services is forbidden"))
    )
    annotations = {"ray.io/enable-serve-service": "true"}
    harness.apply(a_ray_cluster(annotations=annotations, groups=[]))
    harness.fail(harness.names("worker")[0])
    await harness.settle()
    assert len(harness.names()) == 4
    assert harness.cluster().status.available_worker_replicas == 2


async def test_a_serve_service_of_the_user_is_left_to_him_and_blocks_nothing() -> None:
    """KubeRay accepts whatever has the name."""
    harness = Harness()
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": "ns", "name": "c-serve-svc"},
        "spec": {},
    }
    listeners, harness.kube.on_change = (
        harness.kube.on_change,
        [],
    )  # without our labels no watch shows it
    harness.kube.put(SERVICE, theirs)
    harness.kube.on_change = listeners
    head = a_head(
        template=a_template(a_container(ports=[{"name": "serve", "containerPort": 8000}]))
    )
    harness.apply(a_ray_cluster(annotations={labels.ENABLE_SERVE_SERVICE: "true"}, head=head))
    await harness.settle()
    assert len(harness.names()) == 4
    assert harness.kube.objects["Service", "ns", "c-serve-svc"]["spec"] == {}


async def test_two_head_services_are_named_and_no_pod_is_created_until_one_is_left() -> None:
    """Workers could reach another head by either of them; KubeRay does the same."""
    harness = Harness()
    copy: Body = {
        "metadata": {
            "name": "mine",
            "namespace": "ns",
            "labels": dict(services.build_head_list_labels(a_ray_cluster())),
        }
    }
    harness.kube.put(SERVICE, copy)
    harness.kube.put(SERVICE, {"metadata": {**copy["metadata"], "name": "other"}})
    harness.apply(a_ray_cluster())
    await harness.settle()
    assert (harness.names(), str(harness.errors[-1])) == (
        [],
        "2 head service found [mine other]; delete all but c-head-svc",
    )
    for name in ("mine", "other"):
        await harness.app.observer.kube.delete(SERVICE, "ns", name)
    await harness.reconcile()
    await harness.settle()
    assert (len(harness.names()), ("Service", "ns", "c-head-svc") in harness.kube.objects) == (
        4,
        True,
    )
