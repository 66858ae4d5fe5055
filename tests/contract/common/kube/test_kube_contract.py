"""The fake API server accepts, refuses and answers as the real one (`common.kube.client.Kube`)."""

import uuid
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from common import errors
from common.api.opaque import Body
from common.kube.client import Kube, KubeClient, PatchRequest
from common.kube.resources import (
    EVENT,
    POD,
    RAY_SERVICE,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Resource,
)
from common.kube.resources import NAMESPACE as NAMESPACES
from localcluster.control_plane import ControlPlane
from support.fakes.kube import FakeKube

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = "default"


@pytest_asyncio.fixture(params=["fake", "real"], loop_scope="session")
async def kube(request: pytest.FixtureRequest, control_plane: ControlPlane) -> AsyncGenerator[Kube]:
    if request.param == "fake":
        yield FakeKube()
        return
    client = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="contract")
    yield client
    await client.close()


def a_name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


def a_service(name: str, **labels: str) -> Body:
    spec = {"ports": [{"name": "http", "port": 80}], "selector": {"app": "a"}}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }


def a_rayservice(name: str, **meta: Any) -> Body:
    head = {
        "rayStartParams": {},
        "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray"}]}},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": name, **meta},
        "spec": {"serveConfigV2": "", "rayClusterConfig": {"headGroupSpec": head}},
    }


def read(body: bytes) -> Body:
    return msgspec.json.decode(body)


async def created(kube: Kube, resource: Resource, body: Body) -> Body:
    return read(await kube.create(resource, NAMESPACE, body))


async def test_a_created_object_has_uid_generation_and_version(kube: Kube) -> None:
    meta = (await created(kube, RAY_SERVICE, a_rayservice(a_name())))["metadata"]
    assert meta["uid"]
    assert meta["generation"] == 1
    assert meta["resourceVersion"].isdecimal()


async def test_a_name_that_is_taken_is_refused(kube: Kube) -> None:
    name = a_name()
    await created(kube, SERVICE, a_service(name))
    with pytest.raises(errors.AlreadyExists):
        await kube.create(SERVICE, NAMESPACE, a_service(name))


async def test_a_malformed_name_is_refused(kube: Kube) -> None:
    with pytest.raises(errors.Rejected):
        await kube.create(SERVICE, NAMESPACE, a_service("No_Name"))


async def test_a_dry_creation_is_admitted_and_stores_nothing(kube: Kube) -> None:
    name = a_name()
    await kube.dry_create(SERVICE, NAMESPACE, a_service(name))
    with pytest.raises(errors.NotFound):
        await kube.get(SERVICE, NAMESPACE, name)


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(kube: Kube) -> None:
    if not isinstance(kube, KubeClient):
        pytest.skip("the fake has no namespaces")
    name = a_name()
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    made = read(await kube.create(NAMESPACES, None, body))
    await kube.delete(NAMESPACES, None, name, uid=made["metadata"]["uid"])
    for create in (kube.create, kube.dry_create):
        with pytest.raises(errors.NamespaceTerminating):
            await create(SERVICE, name, a_service(a_name()))


async def test_an_object_too_large_for_the_store_is_refused(kube: Kube) -> None:
    env = [{"name": f"E{number}", "value": "x" * 1000} for number in range(1700)]
    spec = {"containers": [{"name": "c", "image": "i", "env": env}]}
    with pytest.raises(errors.Rejected, match="request is too large; make the object smaller"):
        await kube.create(POD, "default", {"metadata": {"name": a_name()}, "spec": spec})


async def test_the_answer_for_a_new_pod_is_its_metadata(kube: Kube) -> None:
    name, spec = a_name(), {"containers": [{"name": "c", "image": "i"}]}
    answer = read(await kube.create(POD, NAMESPACE, {"metadata": {"name": name}, "spec": spec}))
    assert sorted(answer) == ["apiVersion", "kind", "metadata"]
    assert (answer["metadata"]["name"], answer["kind"]) == (name, "PartialObjectMetadata")
    assert (
        read(await kube.get(POD, NAMESPACE, name))["metadata"]["uid"] == answer["metadata"]["uid"]
    )


async def test_the_metadata_of_an_object_can_be_read_alone(kube: Kube) -> None:
    made = read(await kube.create(SERVICE, NAMESPACE, a_service(name := a_name())))
    answer = read(await kube.get_metadata(SERVICE, NAMESPACE, name))
    assert (answer["kind"], "spec" in answer) == ("PartialObjectMetadata", False)
    assert answer["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(errors.NotFound):
        await kube.get_metadata(SERVICE, NAMESPACE, a_name())


@pytest.mark.parametrize(
    "resource", [SERVICE, RAY_SERVICE, POD, SECRET], ids=lambda each: each.kind
)
async def test_what_is_not_there_is_not_found(kube: Kube, resource: Resource) -> None:
    with pytest.raises(errors.NotFound):
        await kube.get(resource, NAMESPACE, a_name())
    with pytest.raises(errors.NotFound):
        await kube.delete(resource, NAMESPACE, a_name())


async def test_a_list_brings_what_its_selector_matches(kube: Kube) -> None:
    mark = a_name()
    names = sorted([a_name(), a_name()])
    for name in names:
        await created(kube, SERVICE, a_service(name, mark=mark))
    await created(kube, SERVICE, a_service(a_name(), mark="other"))
    found = read(await kube.list(SERVICE, NAMESPACE, label_selector=f"mark={mark}"))
    assert [item["metadata"]["name"] for item in found["items"]] == names
    marked = read(await kube.list(SERVICE, NAMESPACE, label_selector="mark"))
    assert {*names} < {item["metadata"]["name"] for item in marked["items"]}
    assert all("mark" in item["metadata"]["labels"] for item in marked["items"])


async def test_a_status_is_replaced_without_touching_the_spec(kube: Kube) -> None:
    old = await created(kube, RAY_SERVICE, a_rayservice(a_name()))
    meta = {key: old["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
    body = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": meta,
        "status": {"serviceStatus": "Running"},
    }
    new = read(await kube.replace(RAY_SERVICE, NAMESPACE, body, subresource="status"))
    assert new["status"]["serviceStatus"] == "Running"
    assert new["spec"] == old["spec"]
    assert new["metadata"]["generation"] == 1


async def test_a_status_decided_on_an_old_read_is_a_conflict(kube: Kube) -> None:
    old = await created(kube, RAY_SERVICE, a_rayservice(a_name()))
    meta = {key: old["metadata"][key] for key in ("name", "namespace", "resourceVersion")}
    body = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": meta,
        "status": {"serviceStatus": "Running"},
    }
    await kube.replace(RAY_SERVICE, NAMESPACE, body, subresource="status")
    with pytest.raises(errors.Conflict):
        await kube.replace(RAY_SERVICE, NAMESPACE, {**body, "status": {}}, subresource="status")


async def test_a_patch_that_names_an_old_version_is_a_conflict(kube: Kube) -> None:
    old = await created(kube, SERVICE, a_service(a_name()))
    name, version = old["metadata"]["name"], old["metadata"]["resourceVersion"]
    patch = PatchRequest(body={"metadata": {"resourceVersion": version, "labels": {"a": "b"}}})
    assert read(await kube.patch(SERVICE, NAMESPACE, name, patch))["metadata"]["labels"]["a"] == "b"
    with pytest.raises(errors.Conflict):
        await kube.patch(
            SERVICE,
            NAMESPACE,
            name,
            PatchRequest(body={"metadata": {"resourceVersion": version, "labels": {"a": "c"}}}),
        )


async def test_a_merge_patch_removes_null_fields(kube: Kube) -> None:
    name = a_name()
    await created(kube, SERVICE, a_service(name, gone="x", kept="y"))
    new = read(
        await kube.patch(
            SERVICE, NAMESPACE, name, PatchRequest(body={"metadata": {"labels": {"gone": None}}})
        )
    )
    assert new["metadata"]["labels"] == {"kept": "y"}


async def test_a_change_of_spec_bumps_the_generation_and_a_change_of_labels_does_not(
    kube: Kube,
) -> None:
    name = a_name()
    await created(kube, RAY_SERVICE, a_rayservice(name))
    labels = PatchRequest(body={"metadata": {"labels": {"a": "b"}}})
    assert (
        read(await kube.patch(RAY_SERVICE, NAMESPACE, name, labels))["metadata"]["generation"] == 1
    )
    spec = PatchRequest(body={"spec": {"serveConfigV2": "x"}})
    assert read(await kube.patch(RAY_SERVICE, NAMESPACE, name, spec))["metadata"]["generation"] == 2


async def test_a_patch_that_changes_nothing_keeps_the_version(kube: Kube) -> None:
    old = await created(kube, RAY_SERVICE, a_rayservice(a_name(), labels={"a": "b"}))
    same = PatchRequest(body={"metadata": {"labels": {"a": "b"}}})
    new = read(await kube.patch(RAY_SERVICE, NAMESPACE, old["metadata"]["name"], same))
    assert new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]


async def test_a_deletion_with_another_uid_is_a_conflict(kube: Kube) -> None:
    old = await created(kube, SERVICE, a_service(a_name()))
    name = old["metadata"]["name"]
    with pytest.raises(errors.Conflict):
        await kube.delete(SERVICE, NAMESPACE, name, uid=str(uuid.uuid4()))
    await kube.delete(SERVICE, NAMESPACE, name, uid=old["metadata"]["uid"])
    with pytest.raises(errors.NotFound):
        await kube.get(SERVICE, NAMESPACE, name)


async def test_an_object_with_a_finalizer_stays_until_it_is_removed(kube: Kube) -> None:
    name = a_name()
    await created(kube, RAY_SERVICE, a_rayservice(name, finalizers=["ray.io/rayservice-finalizer"]))
    await kube.delete(RAY_SERVICE, NAMESPACE, name)
    assert read(await kube.get(RAY_SERVICE, NAMESPACE, name))["metadata"]["deletionTimestamp"]
    await kube.patch(
        RAY_SERVICE, NAMESPACE, name, PatchRequest(body={"metadata": {"finalizers": None}})
    )
    with pytest.raises(errors.NotFound):
        await kube.get(RAY_SERVICE, NAMESPACE, name)


async def test_a_collection_is_deleted_by_selector(kube: Kube) -> None:
    mark = a_name()
    for _ in range(2):
        await created(
            kube,
            SECRET,
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": a_name(), "labels": {"mark": mark}},
            },
        )
    await kube.delete_collection(SECRET, NAMESPACE, label_selector=f"mark={mark}")
    assert read(await kube.list(SECRET, NAMESPACE, label_selector=f"mark={mark}"))["items"] == []


async def test_a_token_is_issued_for_an_account_that_exists_and_names_its_times(kube: Kube) -> None:
    name = a_name()
    with pytest.raises(errors.NotFound):
        await kube.request_token(NAMESPACE, name, seconds=600)
    await created(kube, SERVICE_ACCOUNT, {"metadata": {"name": name}})
    issued = [
        read(await kube.request_token(NAMESPACE, name, seconds=seconds)) for seconds in (600, 3600)
    ]
    assert len({each["status"]["token"] for each in issued}) == 2
    lives = [
        datetime.fromisoformat(each["status"]["expirationTimestamp"])
        - datetime.fromisoformat(each["metadata"]["creationTimestamp"])
        for each in issued
    ]
    assert lives == [timedelta(minutes=10), timedelta(hours=1)]


async def test_requests_are_counted_by_code_and_method(kube: Kube) -> None:
    if not isinstance(kube, KubeClient):
        pytest.skip("the fake sends no requests")
    labels = {"code": "404", "method": "GET", "host": kube.server.partition("://")[2]}
    timed = {"verb": "GET", "host": labels["host"]}
    seconds = "rest_client_request_duration_seconds_count"
    before = REGISTRY.get_sample_value("rest_client_requests_total", labels) or 0
    before_timed = REGISTRY.get_sample_value(seconds, timed) or 0
    with pytest.raises(errors.NotFound):
        await kube.get(SECRET, NAMESPACE, "no-such-secret")
    assert REGISTRY.get_sample_value("rest_client_requests_total", labels) == before + 1
    assert REGISTRY.get_sample_value(seconds, timed) == before_timed + 1


async def test_events_of_our_recorder_are_accepted(kube: Kube) -> None:
    from common.api.meta import ObjectMeta  # noqa: PLC0415
    from common.clock import SystemClock  # noqa: PLC0415
    from common.kube.resources import RAY_CLUSTER  # noqa: PLC0415
    from common.runtime.actions import KubeEvent  # noqa: PLC0415  (this test alone needs the recorder)
    from common.runtime.events import EventRecorder  # noqa: PLC0415

    recorder = EventRecorder(
        kube,
        RAY_CLUSTER,
        controller="raycluster-controller",
        instance="contract-0",
        clock=SystemClock(),
    )
    meta = ObjectMeta(
        namespace=NAMESPACE, name=a_name(), uid=str(uuid.uuid4()), resource_version="1"
    )
    reported = KubeEvent(type="Warning", reason="Reported", action="Test", note="ü" * 1000)
    await recorder.record(meta, reported)
    await recorder.record(meta, reported)
    await recorder.record(
        meta, KubeEvent(type="Normal", reason="Many", action="Test", note="x"), count=3
    )
    items = read(await kube.list(EVENT, NAMESPACE))["items"]
    counts = {
        item["reason"]: item["series"]["count"]
        for item in items
        if item["regarding"]["name"] == meta.name
    }
    assert counts == {"Reported": 2, "Many": 3}
