"""The environment of a head pod, as the kubelet would compute it."""

from common.api.opaque import Body
from version_matrix.head_pods import read_environment

POD: Body = {
    "metadata": {
        "name": "c-head",
        "namespace": "ns",
        "labels": {"ray.io/cluster": "c"},
        "annotations": {"a/b": "d"},
    },
    "status": {"podIP": "10.0.0.7"},
}


def _field(name: str, path: str) -> Body:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def test_values_and_fields_of_the_pod_become_variables() -> None:
    container: Body = {
        "env": [
            {"name": "PLAIN", "value": "first"},
            {"name": "PLAIN", "value": "last"},
            {"name": "EMPTY"},
            _field("NAME", "metadata.name"),
            _field("CLUSTER", "metadata.labels['ray.io/cluster']"),
            _field("ANNOTATION", "metadata.annotations['a/b']"),
            _field("ADDRESS", "status.podIP"),
            _field("MISSING", "status.hostIP"),
        ]
    }
    assert read_environment(POD, container) == {
        "PLAIN": "last",
        "EMPTY": "",
        "NAME": "c-head",
        "CLUSTER": "c",
        "ANNOTATION": "d",
        "ADDRESS": "10.0.0.7",
        "MISSING": "",
    }
