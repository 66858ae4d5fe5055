"""From the API server over NATS to a reader, with users, TLS and every kind of breakage."""

import contextlib
import copy
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest

from common import errors
from common.api.opaque import Body
from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import Resource
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_pod, a_ray_cluster
from support.servers.relayed import Relayed, relayed
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]


async def until_known(harness: Relayed, kind: str, name: str, *, within: float = 10.0) -> None:
    await eventually(lambda: harness.reader.knows(kind, name), within=within, what=f"{kind} {name}")


async def test_objects_come_and_go(harness: Relayed, kube: KubeClient, namespace: str) -> None:
    loads = len(harness.reader.reasons)
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
    await kube.create(resources.POD, namespace, a_pod("name.with.dots"))
    await until_known(harness, "RayCluster", "demo")
    await until_known(harness, "Pod", "name.with.dots")

    await kube.delete(resources.RAY_CLUSTER, namespace, "demo")
    await eventually(lambda: "demo" not in harness.reader.names("RayCluster"), what="the tombstone")
    assert len(harness.reader.reasons) == loads


async def test_the_largest_cluster_passes(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    noise = random.Random(1).randbytes(600_000).hex()
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("large", ballast=noise))

    await until_known(harness, "RayCluster", "large")
    spec = harness.reader.objects["RayCluster", namespace, "large"]["spec"]
    assert spec["headGroupSpec"]["template"]["spec"]["containers"][0]["env"][0]["value"] == noise


async def test_nats_is_killed_and_comes_back(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("before"))
    await until_known(harness, "RayCluster", "before")

    harness.nats.kill()
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("meanwhile"))
    await kube.delete(resources.RAY_CLUSTER, namespace, "before")
    await eventually(lambda: not harness.reader.is_synced, what="a stale reader")
    harness.nats.start()

    await until_known(harness, "RayCluster", "meanwhile")
    await eventually(
        lambda: harness.reader.is_synced and harness.reader.names("RayCluster") == {"meanwhile"}
    )


async def test_a_lost_volume_is_filled_again(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    for number in range(5):
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(f"demo-{number}"))
    await eventually(lambda: len(harness.reader.names("RayCluster")) == 5, what="all five")

    harness.nats.kill()
    harness.nats.lose_store()
    harness.nats.start()

    await eventually(lambda: not harness.reader.is_synced, what="a stale reader")
    await harness.until_synced()
    assert len(harness.reader.names("RayCluster")) == 5


async def test_nobody_decides_on_an_empty_stream(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
    await until_known(harness, "RayCluster", "demo")

    assert harness.watcher.stop() == 0
    harness.nats.kill()
    harness.nats.lose_store()
    harness.nats.start()
    await eventually(lambda: not harness.reader.is_synced, within=30.0, what="a stale reader")
    syncs = len(harness.reader.syncs)
    await harness.bus.session()
    assert not harness.reader.is_synced

    harness.watcher.start()
    await harness.until_synced()
    assert len(harness.reader.syncs) == syncs + 1
    assert harness.reader.names("RayCluster") == {"demo"}


async def test_the_api_server_restarts(
    harness: Relayed, kube: KubeClient, namespace: str, control_plane: ControlPlane
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("before"))
    await until_known(harness, "RayCluster", "before")

    await control_plane.restart_api_server()
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("after"))

    await until_known(harness, "RayCluster", "after", within=30.0)
    assert harness.reader.names("RayCluster") == {"before", "after"}


async def test_a_killed_watcher_catches_up_on_what_it_missed(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    for name in ("stays", "goes"):
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(name))
        await until_known(harness, "RayCluster", name)

    harness.watcher.kill()
    await kube.delete(resources.RAY_CLUSTER, namespace, "goes")
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("comes"))
    harness.watcher.start()

    await until_known(harness, "RayCluster", "comes", within=20.0)
    await eventually(
        lambda: (
            harness.reader.is_synced and harness.reader.names("RayCluster") == {"stays", "comes"}
        )
    )


async def test_a_stopped_watcher_hands_over_at_once(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    assert harness.watcher.stop() == 0
    harness.watcher.start()

    await harness.watcher.until_ready(within=5.0)


async def test_kuberay_and_raybus_exclude_each_other(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "ray-operator-leader"},
        "spec": {"holderIdentity": "kuberay-operator-abc_123", "leaseDurationSeconds": 3600},
    }
    await kube.create(resources.LEASE, namespace, lease)

    async with relayed(tmp_path, control_plane.kubeconfig, namespace) as harness:
        answer = (0, "")
        while not answer[0]:
            answer = await harness.watcher.get("/readyz")
        assert answer[0] == 503
        while "held by" not in answer[1]:
            answer = await harness.watcher.get("/readyz")
        assert "ray-operator-leader is held by kuberay-operator-abc_123" in answer[1]
        assert (await harness.watcher.get("/healthz"))[0] == 200
        assert not harness.reader.is_synced

        await kube.patch(
            resources.LEASE,
            namespace,
            "ray-operator-leader",
            PatchRequest(body={"spec": {"holderIdentity": ""}}),
        )
        await harness.until_synced()


async def test_a_tree_stands_in_one_partition(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    await kube.create(resources.POD, namespace, a_pod("early", cluster="late"))
    await until_known(harness, "Pod", "early")
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("late", service="svc"))
    await until_known(harness, "RayCluster", "late")

    await harness.until_synced()
    await until_known(harness, "Pod", "early")
    assert [key for key, _ in harness.reader.removals] == []


async def test_a_tree_that_changes_its_root_twice_a_second_makes_nobody_load_again(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("restless", service="one"))
    for number in range(20):
        await kube.create(resources.POD, namespace, a_pod(f"restless-{number}", cluster="restless"))
    await until_known(harness, "Pod", "restless-19")
    loads = len(harness.reader.reasons)

    for flip in range(10):
        patch = PatchRequest(
            body={
                "metadata": {"labels": {"ray.io/originated-from-cr-name": ("two", "one")[flip % 2]}}
            }
        )
        await kube.patch(resources.RAY_CLUSTER, namespace, "restless", patch)
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(f"victim-{flip}"))
        await until_known(harness, "RayCluster", f"victim-{flip}", within=5.0)

    await eventually(
        lambda: (
            len(harness.reader.names("Pod")) == 20
            and "restless" in harness.reader.names("RayCluster")
        )
    )
    assert len(harness.reader.reasons) == loads
    assert harness.reader.removals == []


@contextlib.asynccontextmanager
async def opaque_templates(kube: KubeClient) -> AsyncGenerator[None]:
    """Have the API server take anything for a pod template in v1alpha1, as definitions of earlier releases did."""
    crd = Resource(
        group="apiextensions.k8s.io",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
    )
    name = "rayclusters.ray.io"
    before = msgspec.json.decode(await kube.get(crd, None, name))["spec"]["versions"]
    opened = copy.deepcopy(before)
    spec = opened[1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["headGroupSpec"]["properties"]["template"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    await kube.patch(crd, None, name, PatchRequest(body={"spec": {"versions": opened}}))
    try:
        yield
    finally:
        await kube.patch(crd, None, name, PatchRequest(body={"spec": {"versions": before}}))


async def test_an_object_that_nests_too_deep_is_alone_in_quarantine(
    harness: Relayed, kube: KubeClient, namespace: str
) -> None:
    hostile = a_ray_cluster("hostile")
    hostile["apiVersion"] = "ray.io/v1alpha1"
    for each in (hostile["spec"]["headGroupSpec"], *hostile["spec"].get("workerGroupSpecs", [])):
        each.setdefault("rayStartParams", {})
    container = hostile["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["command"] = msgspec.json.decode(b"[" * 400 + b"]" * 400)
    old = Resource(group="ray.io", version="v1alpha1", kind="RayCluster", plural="rayclusters")
    async with opaque_templates(kube):
        await eventually_true(lambda: _is_taken(kube, old, namespace, hostile), within=20.0)

    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("victim"))
    await until_known(harness, "RayCluster", "victim")
    key = ("RayCluster", namespace, "hostile")
    await eventually(lambda: key in harness.reader.quarantine, what="the quarantine")
    assert "nests deeper than 100 levels" in harness.reader.quarantine[key]

    harness.watcher.kill()  # a list brings both on one page
    harness.watcher.start()
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("later"))
    await until_known(harness, "RayCluster", "later", within=20.0)
    assert {"victim", "later"} <= harness.reader.names("RayCluster")
    assert key in harness.reader.quarantine

    await kube.delete(resources.RAY_CLUSTER, namespace, "hostile")
    await eventually(lambda: key not in harness.reader.quarantine, what="its end")


async def _is_taken(kube: KubeClient, resource: Resource, namespace: str, body: Body) -> bool:
    """Create an object; return whether the API server takes it by now: it learns a definition within a moment."""
    try:
        await kube.create(resource, namespace, body)
    except errors.Terminal:
        return False
    return True


async def test_the_definition_refuses_what_nests_too_deep(kube: KubeClient, namespace: str) -> None:
    hostile = a_ray_cluster("hostile")
    hostile["apiVersion"] = "ray.io/v1alpha1"
    hostile["spec"]["headGroupSpec"]["rayStartParams"] = {}
    container = hostile["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["command"] = msgspec.json.decode(b"[" * 400 + b"]" * 400)
    old = Resource(group="ray.io", version="v1alpha1", kind="RayCluster", plural="rayclusters")
    with pytest.raises(errors.Rejected, match="command"):
        await kube.create(old, namespace, hostile)
