"""A reconcile reads its own writes, also where the answer of the API server is not the whole object."""

from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from common import errors, labels
from common.api.core import Pod, Service
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, RayClusterStatus
from common.kube.resources import POD, RAY_CLUSTER, SERVICE, Resource
from common.runtime.actions import Annotate, Create, Delete, IfExists, UpdateStatus
from common.runtime.cache import Cache
from common.runtime.writer import Writer
from support.fakes.kube import FakeKube
from support.tables import cases

OWNER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "name": "demo",
    "uid": "u",
    "controller": True,
}


@pytest.mark.parametrize(
    ("ports", "containers"),
    [
        pytest.param([{"containerPort": 8080}], ["ray"], id="as it was sent"),
        pytest.param(None, [], id="a null, which no view reads"),
    ],
)
async def test_a_created_pod_is_in_the_cache_at_once(ports: Any, containers: list[str]) -> None:
    kube, cache = FakeKube(), Cache()
    root = RayCluster(metadata=ObjectMeta(name="demo", namespace="default", uid="u"))
    writer = Writer(kube, cache, {"Pod": Pod}, resource=RAY_CLUSTER, root=root)
    meta = {"name": "demo-head", "ownerReferences": [OWNER]}
    body = {
        "metadata": meta,
        "spec": {"containers": [{"name": "ray", "image": "i", "ports": ports}]},
    }
    assert await writer.create(Create(resource=POD, body=body))
    pod = cache.get(Pod, "default", "demo-head")
    assert pod is not None
    assert pod.metadata.uid == kube.objects["Pod", "default", "demo-head"]["metadata"]["uid"]
    assert pod.metadata.owner_references[0].name == "demo"
    assert [each.name for each in pod.spec.containers] == containers
    assert pod.status.phase == "Pending"


HEAD = {labels.CLUSTER: "demo", labels.NODE_TYPE: "head"}


@cases(
    ("have", "problem"),
    {
        "as it was to be made: our state is late": (HEAD, ""),
        "a user added one": (HEAD | {labels.GROUP: "g"}, ""),
        "a user took one away": (
            {labels.CLUSTER: "demo"},
            "set ray.io/node-type=head, or delete it",
        ),
        "a user took one away, changed one and added one": (
            {labels.GROUP: "g", labels.NODE_TYPE: "worker"},
            "set ray.io/cluster=demo, ray.io/node-type=head, or delete it",
        ),
    },
)
async def test_what_exists_with_other_labels_than_it_is_found_by(
    have: dict[str, str], problem: str
) -> None:
    kube, root = (
        FakeKube(),
        RayCluster(metadata=ObjectMeta(name="demo", namespace="default", uid="u")),
    )
    writer = Writer(kube, Cache(), {"Pod": Pod}, resource=RAY_CLUSTER, root=root)
    meta = {"name": "given", "ownerReferences": [OWNER]}
    kube.put(POD, {"metadata": {**meta, "labels": have}, "spec": {"containers": []}})
    wanted = HEAD | {labels.APP_NAME: "kuberay"}
    body: Body = {"metadata": {**meta, "labels": wanted}, "spec": {"containers": []}}
    creation = Create(resource=POD, body=body, if_exists=IfExists.NEED_OWN)
    if problem:
        with pytest.raises(
            errors.AlreadyExists,
            match=f'^pods "given" already exists without its labels; {problem}$',
        ):
            await writer.create(creation)
    else:
        assert not await writer.create(creation)


@pytest.mark.parametrize("writes", [0, 1], ids=["as it was observed", "as our last write left it"])
async def test_a_root_that_a_write_finds_gone_is_not_in_the_cache_any_more(writes: int) -> None:
    kube, cache, meta = FakeKube(), Cache(), {"name": "demo"}
    created = await kube.create(
        RAY_CLUSTER, "default", {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta}
    )
    root = msgspec.json.decode(created, type=RayCluster)
    cache.put(root)
    writer = Writer(kube, cache, {"RayCluster": RayCluster}, resource=RAY_CLUSTER, root=root)
    for number in range(writes):
        await writer.patch_root(Annotate(name="a", value=str(number)))
    await kube.delete(RAY_CLUSTER, "default", "demo")
    with pytest.raises(errors.NotFound):
        await writer.update_status(UpdateStatus(status=RayClusterStatus()))
    assert cache.get(RayCluster, "default", "demo") is None


@cases(
    ("resource", "view", "uid", "is_kept", "requests"),
    {
        "by an admission controller": (POD, Pod, "u", True, ["delete Pod demo", "get Pod demo"]),
        "because another has its name": (
            POD,
            Pod,
            "of another",
            False,
            ["delete Pod demo", "get Pod demo"],
        ),
        "of another kind: no pod is counted": (
            SERVICE,
            Service,
            "of another",
            True,
            ["delete Service demo"],
        ),
    },
)
async def test_a_deletion_that_is_refused(
    resource: Resource,
    view: type[Pod] | type[Service],
    uid: str,
    is_kept: bool,
    requests: list[str],
) -> None:
    kube, cache = FakeKube(), Cache()
    meta = ObjectMeta(name="demo", namespace="default", uid="u", resource_version="7")
    cache.put(view(metadata=meta))
    kube.objects[resource.kind, "default", "demo"] = {
        "metadata": {"name": "demo", "namespace": "default", "uid": uid}
    }
    kube.faults.append(
        lambda request: errors.Conflict("refused") if request.verb == "delete" else None
    )
    root = RayCluster(metadata=ObjectMeta(name="demo", namespace="default", uid="r"))
    writer = Writer(kube, cache, {resource.kind: view}, resource=RAY_CLUSTER, root=root)
    deletion = Delete(resource=resource, name="demo", uid="u")
    with pytest.raises(errors.Conflict) if is_kept else nullcontext():
        assert not await writer.delete(deletion)
    assert (cache.get(view, "default", "demo") is not None, list(map(str, kube.requests))) == (
        is_kept,
        requests,
    )
