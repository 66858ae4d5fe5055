"""Children that bear a name of ours and are not ours: those of a deleted cluster of the same name, and those that users made."""

import pytest

from common.api.opaque import Body
from common.kube.resources import (
    PERSISTENT_VOLUME_CLAIM,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from scenario.cluster_reconciler.harness import NAMESPACE, Harness
from support.builders.ray_cluster import a_ray_cluster

CHILDREN = (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, SECRET)


def an_object(resource: Resource, *owners: Body) -> Body:
    meta: Body = {
        "name": "c",
        "namespace": NAMESPACE,
        "uid": "of-before",
        "ownerReferences": list(owners),
    }
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}


def a_predecessor() -> Body:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "c",
        "uid": "another",
        "controller": True,
    }


def a_harness(*bodies: tuple[Resource, Body]) -> Harness:
    harness = Harness()
    for resource, body in bodies:
        harness.kube.put(resource, body)
    harness.apply(a_ray_cluster(enable_in_tree_autoscaling=True, auth_options={}))
    return harness


@pytest.mark.parametrize("resource", CHILDREN, ids=lambda each: each.kind)
async def test_no_pod_relies_on_a_child_that_a_deleted_cluster_of_the_same_name_leaves_behind(
    resource: Resource,
) -> None:
    harness = a_harness((resource, an_object(resource, a_predecessor())))
    await harness.settle()
    assert harness.pods() == []
    assert f"{resource.kind} ns/c: left behind by a deleted RayCluster" in str(harness.errors[-1])
    await harness.kube.delete(resource, NAMESPACE, "c", uid="of-before")  # the garbage collector
    await harness.reconcile()
    await harness.settle()
    assert len(harness.pods()) == 4
    assert (
        harness.kube.objects[resource.kind, NAMESPACE, "c"]["metadata"]["ownerReferences"][0][
            "name"
        ]
        == "c"
    )


async def test_a_role_that_the_cluster_does_not_own_is_never_bound() -> None:
    harness = a_harness((ROLE, an_object(ROLE)))
    await harness.settle()
    assert (ROLE_BINDING.kind, NAMESPACE, "c") not in harness.kube.objects
    assert "FailedToCreateRole" in harness.reasons()
    assert harness.pods() == []


async def test_a_role_that_appears_between_the_read_and_the_creation_is_not_bound_either() -> None:
    harness = a_harness()
    real = harness.kube.get

    async def late(resource: Resource, namespace: str, name: str) -> bytes:
        try:
            return await real(resource, namespace, name)
        finally:
            if resource is ROLE and (ROLE.kind, NAMESPACE, "c") not in harness.kube.objects:
                harness.kube.put(ROLE, an_object(ROLE))

    harness.kube.get = late  # type: ignore[method-assign]
    await harness.reconcile()
    assert (ROLE_BINDING.kind, NAMESPACE, "c") not in harness.kube.objects


async def test_a_head_service_that_lost_its_labels_is_reported_until_it_has_them_again() -> None:
    harness = a_harness()
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    body = harness.kube.objects[SERVICE.kind, NAMESPACE, "c-head-svc"]
    harness.kube.put(SERVICE, {**body, "metadata": {**body["metadata"], "labels": {}}})
    await harness.reconcile()
    text = (
        'services "c-head-svc" already exists without its labels; '
        "set ray.io/cluster=c, ray.io/node-type=head, ray.io/identifier=c-head, or delete it"
    )
    assert text in harness.kube.events()[-1][2]
    assert text in str(harness.cluster().status.conditions)
    assert harness.conditions()["ReplicaFailure"] == ("True", "FailedCreateService")
    assert harness.cluster().status.head.service_name == "c-head-svc"
    harness.kube.put(SERVICE, body)
    await harness.settle()
    assert "ReplicaFailure" not in harness.conditions()


async def test_a_secret_and_a_claim_that_users_made_are_accepted_as_in_kuberay() -> None:
    harness = a_harness(
        (SECRET, an_object(SECRET)), (PERSISTENT_VOLUME_CLAIM, an_object(PERSISTENT_VOLUME_CLAIM))
    )
    await harness.settle()
    assert len(harness.pods()) == 4
