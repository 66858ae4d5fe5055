"""The fields of an object that are published on the bus, and those that are left out."""

from typing import Any

import msgspec
import pytest

from common.bus.subjects import TreeKind, TreeLocation
from common.kube import resources
from common.kube.resources import Resource
from watcher import publish_filter

LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}


def an_object(**more: object) -> bytes:
    metadata = {
        "name": "x",
        "namespace": "ns",
        "annotations": LAST_APPLIED,
        "managedFields": [{"manager": "kubectl"}],
    }
    return msgspec.json.encode({"metadata": metadata, **more})


def trimmed(resource: Resource, raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(publish_filter.trim(resource, raw), type=dict[str, Any])


@pytest.mark.parametrize(
    "resource", [resources.RAY_SERVICE, resources.RAY_CLUSTER, resources.RAY_JOB]
)
def test_custom_resources_keep_all_but_managed_fields(resource: Resource) -> None:
    found = trimmed(resource, an_object(spec={"unknown": {"deep": [1]}}))

    assert found == {
        "apiVersion": "ray.io/v1",
        "kind": resource.kind,
        "metadata": {"name": "x", "namespace": "ns", "annotations": LAST_APPLIED},
        "spec": {"unknown": {"deep": [1]}},
    }


def test_a_pod_keeps_what_decisions_read() -> None:
    spec = {
        "containers": [{"name": "ray", "env": [{"name": "PASSWORD", "value": "secret"}]}],
        "nodeName": "n",
    }
    found = trimmed(
        resources.POD, an_object(spec=spec, status={"phase": "Running", "qosClass": "Burstable"})
    )

    assert found["spec"] == {"containers": [{"name": "ray"}], "nodeName": "n"}
    assert found["status"] == {"phase": "Running"}
    assert found["metadata"]["annotations"] == {"team": "a"}


def test_a_pod_that_does_not_fit_its_view_is_published_whole_but_for_environments() -> None:
    container = {
        "name": "ray",
        "env": [{"name": "PASSWORD", "value": "secret"}],
        "envFrom": [{"prefix": "X"}],
    }
    found = trimmed(resources.POD, an_object(spec={"containers": [container], "nodeName": 7}))

    assert found["spec"] == {"containers": [{"name": "ray"}], "nodeName": 7}


def test_secrets_never_reach_the_bus() -> None:
    with pytest.raises(ValueError, match="must not be published"):
        publish_filter.trim(resources.SECRET, an_object(data={"key": "dmFsdWU="}))


def wait_of(resource: Resource, raw: bytes) -> float:
    return publish_filter.seconds_to_wait(publish_filter.decode_view(resource, raw))


def test_a_pod_that_does_not_run_yet_may_wait() -> None:
    raw = an_object(status={"phase": "Pending"})
    assert wait_of(resources.POD, raw) == publish_filter.PENDING_SECONDS


@pytest.mark.parametrize(
    ("resource", "status"),
    [
        (resources.POD, {"phase": "Running"}),
        (resources.POD, {"phase": "Failed"}),
        (resources.POD, {}),
        (resources.POD, ["Pending"]),
        (resources.POD, {"phase": ["Pending"]}),
        (resources.JOB, {"phase": "Pending"}),
        (resources.RAY_CLUSTER, {"phase": "Pending"}),
    ],
)
def test_nothing_else_waits(resource: Resource, status: object) -> None:
    assert wait_of(resource, an_object(status=status)) == 0


def test_a_pod_that_is_being_deleted_does_not_wait() -> None:
    metadata = {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    raw = msgspec.json.encode({"metadata": metadata, "status": {"phase": "Pending"}})
    assert wait_of(resources.POD, raw) == 0


def test_the_view_of_an_object_gives_the_same_body_as_its_json() -> None:
    raw = an_object(spec={"nodeName": "n"}, status={"phase": "Running"})
    view = publish_filter.decode_view(resources.POD, raw)
    assert view is not None
    assert publish_filter.trim(resources.POD, view) == publish_filter.trim(resources.POD, raw)


@pytest.mark.parametrize(
    ("kind", "tree", "expected"),
    [
        ("EndpointSlice", TreeKind.CLUSTER, False),
        ("EndpointSlice", TreeKind.SERVICE, True),
        ("EndpointSlice", TreeKind.JOB, True),
        ("Service", TreeKind.CLUSTER, True),
    ],
)
def test_endpoint_slices_are_read_below_ray_services_and_ray_jobs(
    kind: str, tree: TreeKind, expected: bool
) -> None:
    assert publish_filter.is_read(kind, TreeLocation(1, tree)) is expected
