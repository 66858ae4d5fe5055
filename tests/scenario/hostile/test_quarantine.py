"""A deleted object that raybus cannot decode loses each finalizer of raybus at its time limit."""

import copy
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest

from common import labels
from common.api.opaque import Body
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE, Resource
from scenario.hostile import nasty
from scenario.hostile.attacks import CLUSTERS, NAME, SERVICES, TENANT, Attack
from scenario.hostile.tenancy import Tenancy, Watch, run_watched

FOREIGN: Final = "example.com/kept"
LIMITS: Final = {"RayService": 600.0, "RayCluster": 300.0}
"""Seconds after the deletion within which raybus removes its finalizer, by kind."""
FINALIZERS: Final = {
    "RayService": labels.RAYSERVICE_FINALIZER,
    "RayCluster": labels.GCS_FT_FINALIZER,
}
FOUND: Final = pytest.mark.parametrize(
    ("resource", "body"),
    [(RAY_SERVICE, SERVICES[0]), (RAY_CLUSTER, CLUSTERS[0])],
    ids=["RayService", "RayCluster"],
)


def unreadable(resource: Resource, body: Body, **meta: Any) -> Body:
    """Return an object with our finalizer that nests too deep."""
    new = copy.deepcopy(body)
    new["metadata"] |= {"namespace": TENANT, "finalizers": [FINALIZERS[resource.kind]], **meta}
    new["spec"]["deep"] = nasty.nested(200)
    return new


def played(
    resource: Resource, body: Body, play: Callable[[Tenancy], Coroutine[Any, Any, None]]
) -> Tenancy:
    async def scenario() -> Tenancy:
        tenancy = Tenancy(Attack(resource=resource, body=body, later=body))
        await play(tenancy)
        return tenancy

    return run_watched(scenario, Watch())


def finalizers(tenancy: Tenancy, resource: Resource) -> list[str] | None:
    """Return the finalizers of the object; None when it is gone."""
    found = tenancy.kube.objects.get((resource.kind, TENANT, NAME))
    return None if found is None else found["metadata"].get("finalizers", [])


def notes(tenancy: Tenancy) -> dict[str, str]:
    return {reason: note for _, reason, note in tenancy.kube.events()}


@FOUND
def test_a_deleted_object_that_cannot_be_read_goes_at_its_limit(
    resource: Resource, body: Body
) -> None:
    async def play(tenancy: Tenancy) -> None:
        async with tenancy.running():
            tenancy.kube.put(resource, unreadable(resource, body))
            await tenancy.live(3)
            await tenancy.delete(resource, NAME)
            await tenancy.live(LIMITS[resource.kind] - 5)
            assert finalizers(tenancy, resource) == [FINALIZERS[resource.kind]]
            await tenancy.live(10)

    tenancy = played(resource, body, play)
    assert finalizers(tenancy, resource) is None
    told = notes(tenancy)
    if resource is RAY_SERVICE:
        assert f"{labels.ORIGIN_NAME}={NAME}" in told["FinalizerReleased"]
    else:
        assert "Redis storage namespace" in told["ForceDeletedStuckCluster"]
    assert tenancy.failures == []


@FOUND
def test_another_replica_releases_what_was_deleted_before_it_came(
    resource: Resource, body: Body
) -> None:
    """All that it ever sees of the object is the message in quarantine, in its first load."""

    async def play(tenancy: Tenancy) -> None:
        tenancy.kube.put(resource, unreadable(resource, body))
        await tenancy.delete(resource, NAME)
        async with tenancy.running():
            await tenancy.live(LIMITS[resource.kind] + 5)

    assert finalizers(played(resource, body, play), resource) is None


@FOUND
def test_finalizers_of_others_stay(resource: Resource, body: Body) -> None:
    held = unreadable(resource, body, finalizers=[FOREIGN, FINALIZERS[resource.kind]])

    async def play(tenancy: Tenancy) -> None:
        async with tenancy.running():
            tenancy.kube.put(resource, held)
            await tenancy.delete(resource, NAME)
            await tenancy.live(LIMITS[resource.kind] + 5)

    assert finalizers(played(resource, body, play), resource) == [FOREIGN]


@FOUND
def test_an_object_that_is_not_deleted_keeps_its_finalizer(resource: Resource, body: Body) -> None:
    async def play(tenancy: Tenancy) -> None:
        async with tenancy.running():
            tenancy.kube.put(resource, unreadable(resource, body))
            await tenancy.live(LIMITS[resource.kind] + 5)

    tenancy = played(resource, body, play)
    assert finalizers(tenancy, resource) == [FINALIZERS[resource.kind]]
    assert "Quarantined" in notes(tenancy)


def test_a_pod_that_cannot_be_read_does_not_hold_its_root() -> None:
    """The root itself is readable; it waits for the object below it."""
    readable = unreadable(RAY_CLUSTER, CLUSTERS[0])
    del readable["spec"]["deep"]

    async def play(tenancy: Tenancy) -> None:
        async with tenancy.running():
            tenancy.kube.put(RAY_CLUSTER, readable)
            await tenancy.live(5)
            pod = copy.deepcopy(tenancy.kube.all(POD, TENANT)[0])
            pod["spec"]["deep"] = nasty.nested(200)
            tenancy.kube.put(POD, pod)
            await tenancy.live(2)
            await tenancy.delete(RAY_CLUSTER, NAME)
            await tenancy.live(LIMITS["RayCluster"] + 5)

    assert finalizers(played(RAY_CLUSTER, readable, play), RAY_CLUSTER) is None
