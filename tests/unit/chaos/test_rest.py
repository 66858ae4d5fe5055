"""At rest, every difference between a spec and the actual state is named."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from chaos.checker import rest
from chaos.checker.rest import FinalObjects
from common.ray import spec_hash

CONFIG: dict[str, Any] = {"headGroupSpec": {}, "workerGroupSpecs": []}


def a_harness() -> dict[str, Any]:
    """Return a RayCluster of one worker and a RayService, at rest."""
    group = {"groupName": "g", "replicas": 1, "minReplicas": 0, "maxReplicas": 3}
    status = {"desiredWorkerReplicas": 1, "readyWorkerReplicas": 1, "state": "ready"}
    its = {"ray.io/originated-from-cr-name": "s", "ray.io/originated-from-crd": "RayService"}
    hashed = {
        "ray.io/hash-without-replicas-and-workers-to-delete": spec_hash.service_goal_hash(CONFIG)
    }
    backends = [{"name": "blue-serve-svc", "weight": 100}]
    return {
        "clusters": [
            _a("RayCluster", "c", spec={"workerGroupSpecs": [group]}, status=status),
            _a(
                "RayCluster",
                "blue",
                labels=its,
                annotations=hashed,
                spec={},
                status={"state": "ready"},
            ),
        ],
        "services": [
            _a(
                "RayService",
                "s",
                spec={"rayClusterConfig": CONFIG, "serveConfigV2": "MESSAGE: v1"},
                status={
                    "observedGeneration": 3,
                    "serviceStatus": "Running",
                    "activeServiceStatus": {"rayClusterName": "blue"},
                },
            )
        ],
        "pods": [_pod("h", "c", "head"), _pod("w", "c", "worker"), _pod("b", "blue", "head")],
        "routes": [_a("HTTPRoute", "s-httproute", spec={"rules": [{"backendRefs": backends}]})],
        "configs": {"blue": "v1"},
        "jobs": [
            _a(
                "RayJob",
                "train",
                spec={"shutdownAfterJobFinishes": True},
                status={"jobDeploymentStatus": "Complete", "rayClusterName": "train-x"},
            )
        ],
        "job_children": [_owned("Job", "train")],
    }


def _a(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "ns",
        "uid": f"uid-of-{name}",
        "generation": 3,
        "labels": fields.pop("labels", {}),
    }
    return {
        "kind": kind,
        "metadata": {**meta, "annotations": fields.pop("annotations", {})},
        **fields,
    }


def _owned(kind: str, name: str, uid: str = "uid-of-train") -> dict[str, Any]:
    """Return an object that a RayJob owns."""
    body = _a(kind, name)
    body["metadata"]["ownerReferences"] = [{"kind": "RayJob", "name": "train", "uid": uid}]
    return body


def _pod(name: str, cluster: str, node: str) -> dict[str, Any]:
    labels = {
        "ray.io/cluster": cluster,
        "ray.io/node-type": node,
        "ray.io/group": "g" if node == "worker" else "headgroup",
    }
    return _a("Pod", name, labels=labels, spec={}, status={"phase": "Running"})


def test_nothing_is_wrong() -> None:
    assert rest.judge(FinalObjects(**a_harness())) == []


Spoil = Callable[[dict[str, Any]], object]


def cluster_of(harness: dict[str, Any]) -> dict[str, Any]:
    return harness["clusters"][0]


def job_of(harness: dict[str, Any]) -> dict[str, Any]:
    return harness["jobs"][0]


def service_of(harness: dict[str, Any]) -> dict[str, Any]:
    return harness["services"][0]


SPOILED: dict[str, tuple[Spoil, str]] = {
    "no head": (lambda w: w["pods"].pop(0), "c: it has 0 head pods"),
    "two heads": (lambda w: w["pods"].append(_pod("h2", "c", "head")), "c: it has 2 head pods"),
    "too many": (
        lambda w: w["pods"].append(_pod("w2", "c", "worker")),
        "group g has 2 workers, wanted 1",
    ),
    "one is going": (
        lambda w: w["pods"][1]["metadata"].update(deletionTimestamp="x"),
        "group g has 0 workers",
    ),
    "not suspended": (lambda w: cluster_of(w)["spec"].update(suspend=True), "it has 1 head pods"),
    "old status": (
        lambda w: cluster_of(w)["status"].update(desiredWorkerReplicas=2),
        "its status wants 2 workers",
    ),
    "not ready": (
        lambda w: cluster_of(w)["status"].update(readyWorkerReplicas=0),
        "has 0 ready workers",
    ),
    "no state": (lambda w: cluster_of(w)["status"].update(state=""), "its state is unknown"),
    "never gone": (
        lambda w: cluster_of(w)["metadata"].update(deletionTimestamp="x"),
        "it is being deleted",
    ),
    "an orphan": (
        lambda w: w["pods"].append(_pod("x", "other", "head")),
        "its cluster other is gone",
    ),
    "never reconciled": (
        lambda w: service_of(w)["metadata"].update(generation=4),
        "its status is of generation 3",
    ),
    "an upgrade without end": (
        lambda w: service_of(w)["status"].update(pendingServiceStatus={"rayClusterName": "green"}),
        "its upgrade to green goes on",
    ),
    "a cluster too many": (
        lambda w: w["clusters"].append(
            {**w["clusters"][1], "metadata": {**w["clusters"][1]["metadata"], "name": "x"}}
        ),
        "it has the clusters blue, x",
    ),
    "old cluster": (
        lambda w: service_of(w)["spec"].update(rayClusterConfig={"rayVersion": "3"}),
        "not of its spec",
    ),
    "an old Serve config": (lambda w: w["configs"].update(blue="v0"), "the head of blue got v0"),
    "a weight on another cluster": (
        lambda w: w["routes"][0]["spec"]["rules"][0]["backendRefs"].append(
            {"name": "x-serve-svc", "weight": 5}
        ),
        "its route weighs",
    ),
    "a job without an end": (
        lambda w: job_of(w)["status"].update(jobDeploymentStatus="Running"),
        "train: its state is Running",
    ),
    "a finalizer that stays": (
        lambda w: job_of(w)["metadata"].update(deletionTimestamp="x", finalizers=["f"]),
        "train: it is being deleted, with the finalizers ['f']",
    ),
    "a cluster of an ended job": (
        lambda w: w["clusters"].append(
            {**_owned("RayCluster", "train-x"), "spec": {"suspend": True}}
        ),
        "train: its cluster train-x is left",
    ),
    "a submitter without its job": (
        lambda w: w["job_children"].append(_owned("Job", "old", "uid-of-old")),
        "old: its RayJob train is gone",
    ),
    "a cluster without its job": (
        lambda w: w["clusters"].append(
            {**_owned("RayCluster", "old-x", "uid-of-old"), "spec": {"suspend": True}}
        ),
        "old-x: its RayJob train is gone",
    ),
}


@pytest.mark.parametrize(("spoil", "why"), SPOILED.values(), ids=SPOILED)
def test_it_finds(spoil: Spoil, why: str) -> None:
    harness = copy.deepcopy(a_harness())
    spoil(harness)
    assert any(why in f"{each.name}: {each.why}" for each in rest.judge(FinalObjects(**harness)))
