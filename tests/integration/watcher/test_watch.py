"""One collection of a real API server: expiry, silence, and kinds that come later."""

from secrets import token_hex

import pytest

from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import Resource
from common.kube.watch import WatchTarget, WatchTiming
from integration.watcher.followed import following
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.waiting import eventually

pytestmark = [pytest.mark.integration]

CRD = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
)


async def test_a_version_that_is_too_old_leads_to_a_new_list(
    kube: KubeClient, namespace: str, control_plane: ControlPlane
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
    await (
        control_plane.restart_api_server()
    )  # its memory of events begins anew, so old versions have expired
    target = WatchTarget(resource=resources.RAY_CLUSTER, namespace=namespace)

    async with following(kube, target, WatchTiming(), resume_from="1") as (watch, collection):
        await eventually(lambda: "demo" in collection.names, within=20.0, what="the new list")
        await eventually(lambda: watch.problem is None, what="the watch after it")
        assert collection.lists == 1


async def test_a_silent_watch_is_replaced_and_misses_nothing(
    kube: KubeClient, namespace: str
) -> None:
    target = WatchTarget(resource=resources.RAY_CLUSTER, namespace=namespace)

    async with following(kube, target, WatchTiming(silence=0.3)) as (watch, collection):
        await eventually(watch.known.is_set, what="the first list")
        await eventually(lambda: "no bookmark" in (watch.problem or ""), what="the silence")
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
        await eventually(lambda: "demo" in collection.names, what="the object")
        assert collection.lists == 1


async def test_a_periodic_list_corrects_a_watch_that_lied(kube: KubeClient, namespace: str) -> None:
    target = WatchTarget(resource=resources.RAY_CLUSTER, namespace=namespace)

    async with following(kube, target, WatchTiming(relist=1.0)) as (watch, collection):
        await eventually(watch.known.is_set, what="the first list")
        collection.names.add("never-there")
        await eventually(lambda: collection.lists >= 2, what="the second list")
        assert not collection.names


async def test_an_optional_kind_may_come_later_and_go_again(kube: KubeClient) -> None:
    kind = f"Late{token_hex(3)}"
    plural = kind.lower() + "s"
    late = Resource(group="example.org", kind=kind, plural=plural)
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": names,
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }

    async with following(
        kube, WatchTarget(resource=late, is_optional=True), WatchTiming(absent=0.1)
    ) as (watch, collection):
        await eventually(watch.known.is_set, what="its absence")
        assert (watch.problem, watch.is_served) == (None, False)

        await kube.create(CRD, None, crd)
        await eventually(lambda: watch.is_served, within=20.0, what="the kind")
        body = {"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "one"}}
        await kube.create(late, "default", body)
        await eventually(lambda: "one" in collection.names, what="the object")

        await kube.delete(CRD, None, f"{plural}.example.org")
        await eventually(
            lambda: not collection.names and not watch.is_served, within=20.0, what="its end"
        )


async def test_a_required_kind_that_is_not_served_is_named(kube: KubeClient) -> None:
    missing = Resource(group="example.org", kind="Nothing", plural="nothings")

    async with following(kube, WatchTarget(resource=missing), WatchTiming()) as (watch, _):
        await eventually(lambda: "install its CRD" in (watch.problem or ""), what="the reason")
        assert watch.problem == "nothings: is not served by the API server; install its CRD"
        assert not watch.known.is_set()


async def test_a_change_of_labels_leaves_the_selection(kube: KubeClient, namespace: str) -> None:
    target = WatchTarget(resource=resources.RAY_CLUSTER, namespace=namespace, selector="colour=red")
    red = a_ray_cluster()
    red["metadata"]["labels"] = {"colour": "red"}

    async with following(kube, target, WatchTiming()) as (watch, collection):
        await eventually(watch.known.is_set, what="the first list")
        await kube.create(resources.RAY_CLUSTER, namespace, red)
        await eventually(lambda: "demo" in collection.names, what="the object")
        patch = PatchRequest(body={"metadata": {"labels": {"colour": "blue"}}})
        await kube.patch(resources.RAY_CLUSTER, namespace, "demo", patch)
        await eventually(lambda: not collection.names, what="its end")
