"""The fields of an object that are published on the bus, and those that are left out."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common.api.meta import ObjectMeta
from common.bus.messages import ObjectState
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


def wait_of(kind: str, meta: ObjectMeta, **fields: object) -> float:
    body = msgspec.json.encode(fields)
    state = ObjectState(
        kind=kind, namespace="ns", name="x", uid="u", version="1", form="1.0", body=body
    )
    return publish_filter.seconds_to_wait(state, meta)


def test_a_pod_that_does_not_run_yet_may_wait() -> None:
    assert (
        wait_of("Pod", ObjectMeta(), status={"phase": "Pending"}) == publish_filter.PENDING_SECONDS
    )


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("Pod", {"phase": "Running"}),
        ("Pod", {"phase": "Failed"}),
        ("Pod", {}),
        ("Pod", ["Pending"]),
        ("Pod", {"phase": ["Pending"]}),
        ("RayCluster", {"phase": "Pending"}),
    ],
)
def test_nothing_else_waits(kind: str, status: object) -> None:
    assert wait_of(kind, ObjectMeta(), status=status) == 0


def test_a_pod_that_is_being_deleted_does_not_wait() -> None:
    meta = ObjectMeta(deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    assert wait_of("Pod", meta, status={"phase": "Pending"}) == 0


def test_an_object_in_quarantine_does_not_wait() -> None:
    meta = ObjectMeta(name="x", namespace="ns")
    assert (
        publish_filter.seconds_to_wait(publish_filter.make_quarantined("Pod", meta, "why"), meta)
        == 0
    )


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
