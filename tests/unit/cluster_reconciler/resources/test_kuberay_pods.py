"""Pods of the alpha features are KubeRay's, without a server: all that we build is in what KubeRay's operator made, and nothing is missing.

The API server adds defaults to what it stores; so each field of ours must be there with the same value, and each list must be as long.
An integration test compares what an API server stores of both (`integration/cluster_reconciler/test_kuberay_objects.py`).
"""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from cluster_reconciler.resources import head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.resources.tls import WAIT_FOR_ADDRESS
from common import labels
from common.api import ray_cluster
from common.api.opaque import Body
from common.ray import cluster_traits as traits
from support.kuberay import goldens, objects
from support.kuberay.settings import Setting, of_name

TOKEN = "kube-api-access"
CASES = [
    (of_name(name), cluster)
    for name in ("history", "mtls")
    for cluster in goldens.clusters(of_name(name))
]


@pytest.mark.acceptance("raycluster", 120)
@pytest.mark.parametrize(
    ("setting", "name"), CASES, ids=lambda each: each if isinstance(each, str) else each.name
)
def test_each_pod_is_kuberays(setting: Setting, name: str) -> None:
    theirs = goldens.load(setting, name, namespace=goldens.NAMESPACE)
    theirs[0]["metadata"]["uid"] = objects.CLUSTER_UID
    pods = [each for each in theirs if each["kind"] == "Pod"]
    assert pods
    for pod in pods:
        assert (
            list(
                _missing(_made(setting, theirs[0], pod), _comparable(pod), pod["metadata"]["name"])
            )
            == []
        )


def _made(setting: Setting, cluster: Body, pod: Body) -> Body:
    """Build the pod that corresponds to a pod of KubeRay."""
    decoded, meta, config = ray_cluster.decode(cluster), pod["metadata"], setting.config()
    if meta["labels"][labels.NODE_TYPE] == labels.HEAD:
        made = head_pod.build(decoded, config, name=meta["name"])
    else:
        own = meta["labels"]
        (group,) = [
            each for each in traits.worker_groups(decoded) if each.group_name == own[labels.GROUP]
        ]
        index, host = int(own[labels.REPLICA_INDEX]), int(own.get(labels.HOST_INDEX, 0))
        replica = ReplicaIndex(index, host, own.get(labels.REPLICA_NAME))
        made = worker_pod.build(decoded, group, config, name=meta["name"], replica=replica)
    return _comparable(made)


def _comparable(pod: Body) -> Body:
    """Return a pod without the API server's mounts, the version in a text, and the script that
    differs on purpose.
    """
    spec = pod["spec"]
    spec["volumes"] = [
        each for each in spec.get("volumes", []) if not each["name"].startswith(TOKEN)
    ]
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        mounts = container.get("volumeMounts", [])
        container["volumeMounts"] = [each for each in mounts if not each["name"].startswith(TOKEN)]
        container["args"] = [" ".join(each.split()) for each in container.get("args", [])]
        if container["name"] == WAIT_FOR_ADDRESS:
            container["args"] = ["SCRIPT"]
        container["env"] = [
            each
            for each in container.get("env", [])
            if each["name"] != "RAY_USAGE_STATS_EXTRA_TAGS"
        ]
    pod["metadata"].get("annotations", {}).pop(labels.KUBERAY_VERSION, None)
    return {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": spec}


def _missing(ours: object, theirs: object, place: str) -> Iterator[str]:
    """Yield each value of ours that KubeRay's object lacks, and each list with another length."""
    match ours, theirs:
        case dict(), dict():
            for key, value in cast("dict[str, Any]", ours).items():
                yield from _missing(
                    value, cast("dict[str, Any]", theirs).get(key), f"{place}/{key}"
                )
        case list(), list():
            both = cast("list[Any]", ours), cast("list[Any]", theirs)
            if len(both[0]) != len(both[1]):
                yield f"{place}: KubeRay has {len(both[1])}, here are {len(both[0])}"
            for number, (mine, other) in enumerate(zip(*both, strict=False)):
                yield from _missing(mine, other, f"{place}/{number}")
        case _:
            if ours != theirs and not (ours in ([], {}, "") and theirs is None):
                yield f"{place}: KubeRay has {theirs!r}, here is {ours!r}"
