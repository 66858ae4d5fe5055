"""The fields of an object on the bus, and what is left out."""

from typing import Any

import msgspec
import pytest

from common.kube import resources
from common.kube.resources import Resource
from watcher import published

LAST_APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}


def an_object(**more: object) -> bytes:
    metadata = {"name": "x", "namespace": "ns", "annotations": LAST_APPLIED, "managedFields": [{"manager": "kubectl"}]}
    return msgspec.json.encode({"metadata": metadata, **more})


def trimmed(resource: Resource, raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(published.trim(resource, raw), type=dict[str, Any])


@pytest.mark.parametrize("resource", [resources.RAY_SERVICE, resources.RAY_CLUSTER])
def test_custom_resources_keep_all_but_managed_fields(resource: Resource) -> None:
    found = trimmed(resource, an_object(spec={"unknown": {"deep": [1]}}))

    assert found == {
        "apiVersion": "ray.io/v1",
        "kind": resource.kind,
        "metadata": {"name": "x", "namespace": "ns", "annotations": LAST_APPLIED},
        "spec": {"unknown": {"deep": [1]}},
    }


def test_a_pod_keeps_what_decisions_read() -> None:
    spec = {"containers": [{"name": "ray", "env": [{"name": "PASSWORD", "value": "secret"}]}], "nodeName": "n"}
    found = trimmed(resources.POD, an_object(spec=spec, status={"phase": "Running", "qosClass": "Burstable"}))

    assert found["spec"] == {"containers": [{"name": "ray"}], "nodeName": "n"}
    assert found["status"] == {"phase": "Running"}
    assert found["metadata"]["annotations"] == {"team": "a"}


def test_a_pod_that_does_not_fit_its_view_is_published_whole_but_for_environments() -> None:
    container = {"name": "ray", "env": [{"name": "PASSWORD", "value": "secret"}], "envFrom": [{"prefix": "X"}]}
    found = trimmed(resources.POD, an_object(spec={"containers": [container], "nodeName": 7}))

    assert found["spec"] == {"containers": [{"name": "ray"}], "nodeName": 7}


def test_secrets_never_reach_the_bus() -> None:
    with pytest.raises(ValueError, match="must not be published"):
        published.trim(resources.SECRET, an_object(data={"key": "dmFsdWU="}))
