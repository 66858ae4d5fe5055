"""A declared difference is exactly what its cause explains."""

import copy
from typing import Any

import pytest

from common.api.opaque import Json
from parity import consequences
from parity.comparable import Difference

READY = {"type": "Ready", "status": "True"}
CERTIFICATE = "Certificate ray-worker-cert-c"


def a_pod(node_type: str = "worker", *, ready: bool = True, address: str = "") -> Json:
    status: Json = {"phase": "Running", "conditions": [READY] if ready else [], "podIP": address}
    return {
        "kind": "Pod",
        "metadata": {"labels": {"ray.io/node-type": node_type}},
        "status": status,
    }


def an_outcome(
    *, writes: tuple[str, ...] = (), addresses: tuple[str, ...] = ("127.0.0.1",), **pods: Json
) -> Json:
    certificate: Json = {"kind": "Certificate", "spec": {"ipAddresses": [*addresses]}}
    objects = {f"Pod {name}": pod for name, pod in pods.items()}
    return {"objects": {**objects, CERTIFICATE: certificate}, "writes": dict.fromkeys(writes, 1)}


THEIRS = an_outcome(
    a=a_pod(address="10.0.0.1"),
    b=a_pod(ready=False),
    h=a_pod("head"),
    addresses=("10.0.0.1", "127.0.0.1"),
)
OURS = an_outcome(writes=("delete Pod a", "delete Pod b"), h=a_pod("head"))
"""The outcome in which only raybus has deleted a worker that is ready and one that is not."""


@pytest.mark.parametrize(
    ("place", "theirs", "ours", "follows"),
    [
        ("objects/Pod a", {}, None, True),
        ("objects/Pod a", {}, {}, False),
        ("objects/Pod h", {}, None, False),
        ("writes/delete Pod b", None, 1, True),
        ("writes/delete Pod b", 1, 2, False),
        ("writes/create Pod b", None, 1, False),
        ("events/Normal DeletedWorkerPod", None, ["Deleted"], True),
        ("events/Normal DeletedWorkerPod", ["Deleted"], "Deleted another", True),
        ("events/Normal DeletedWorkerPod", ["Deleted"], None, False),
        ("events/Normal MTLSCertificatesUpdated", None, ["Updated"], True),
        ("events/Normal MTLSCertificatesUpdated", ["Updated"], None, False),
        ("events/Normal MTLSPKIReady", None, ["Ready"], False),
        (f"objects/{CERTIFICATE}/spec/ipAddresses/01", "127.0.0.1", None, True),
        ("objects/RayCluster c/status/readyWorkerReplicas", 1, None, True),
        ("objects/RayCluster c/status/readyWorkerReplicas", 2, None, False),
        ("objects/RayCluster c/status/availableWorkerReplicas", 3, 1, True),
        ("objects/RayCluster c/status/availableWorkerReplicas", 2, 1, False),
        ("objects/RayCluster c/status/desiredWorkerReplicas", 2, 1, False),
    ],
)
def test_what_follows_from_workers_that_raybus_alone_deletes(
    place: str, theirs: Any, ours: Any, follows: bool
) -> None:
    assert (
        consequences.of_deleted_pods(Difference(f"0/{place}", theirs, ours), THEIRS, OURS)
        is follows
    )


@pytest.mark.parametrize("writes", [(), ("delete Pod a",)])
def test_nothing_follows_from_a_worker_that_is_gone_on_both_sides_or_that_nobody_deleted(
    writes: tuple[str, ...],
) -> None:
    found = Difference("0/objects/Pod a", {}, None)
    theirs, ours = copy.deepcopy(THEIRS), an_outcome(writes=writes)
    theirs["writes"] = dict.fromkeys(writes, 1)
    assert not consequences.of_deleted_pods(found, theirs, ours)


@pytest.mark.parametrize("addresses", [("127.0.0.1", "10.0.0.9"), ()])
def test_a_certificate_lacks_the_addresses_of_the_deleted_workers_and_no_other(
    addresses: tuple[str, ...],
) -> None:
    ours = an_outcome(writes=("delete Pod a",), addresses=addresses)
    found = Difference(f"0/objects/{CERTIFICATE}/spec/ipAddresses/00", "10.0.0.1", None)
    assert not consequences.of_deleted_pods(found, THEIRS, ours)


def test_no_certificate_changes_for_workers_without_an_address() -> None:
    theirs = an_outcome(b=a_pod())
    found = Difference("0/events/Normal MTLSCertificatesUpdated", None, ["Updated"])
    assert not consequences.of_deleted_pods(found, theirs, an_outcome(writes=("delete Pod b",)))


WRITTEN = "Updated worker certificate SANs (IPs: [10.0.0.1 127.0.0.1])"
LATER = "Updated worker certificate SANs (IPs: [127.0.0.1])"


@pytest.mark.parametrize(
    ("theirs", "ours", "follows"),
    [
        ([WRITTEN, LATER], [WRITTEN], True),
        ([LATER], [WRITTEN], False),
        ([WRITTEN, LATER], [], False),
        ([], [WRITTEN], False),
    ],
)
def test_a_certificate_may_name_what_both_wrote_and_kuberay_changed_again(
    theirs: list[str], ours: list[str], follows: bool
) -> None:
    found = Difference(f"0/objects/{CERTIFICATE}/spec/ipAddresses/00", "127.0.0.1", "10.0.0.1")
    reason = "Normal MTLSCertificatesUpdated"
    one = {**an_outcome(), "events": {reason: theirs}}
    other = {**an_outcome(addresses=("10.0.0.1", "127.0.0.1")), "events": {reason: ours}}
    assert consequences.of_gathered_addresses(found, one, other) is follows


PROVISIONED = Difference(
    "0/objects/RayCluster c/status/conditions/RayClusterProvisioned/status", "True", "False"
)


@pytest.mark.parametrize(
    ("theirs", "ours", "follows"),
    [
        (
            {"w": a_pod(), "new": a_pod(ready=False)},
            {"h": a_pod("head"), "new": a_pod(ready=False)},
            True,
        ),
        ({"w": a_pod()}, {"w": a_pod()}, True),
        ({}, {}, True),
        ({"w": a_pod(ready=False)}, {"w": a_pod(ready=False)}, False),
        ({"w": a_pod()}, {"h": a_pod("head"), "w": a_pod()}, False),
        ({"stray": a_pod("")}, {"stray": a_pod("")}, True),
    ],
    ids=[
        "a pod is created",
        "there is no head",
        "there is no pod",
        "a pod that was there is not ready",
        "all are ready",
        "a pod of another type",
    ],
)
def test_a_cluster_counts_as_provisioned_without_what_is_being_replaced(
    theirs: Json, ours: Json, follows: bool
) -> None:
    theirs, ours = an_outcome(writes=("create Pod new",), **theirs), an_outcome(**ours)
    assert consequences.of_replaced_pods(PROVISIONED, theirs, ours) is follows


@pytest.mark.parametrize(
    ("theirs", "ours", "follows"),
    [
        ("26T23:30 27T00:30 27T01:30 28T01:30", "26T23:30 27T00:30 28T01:30 29T01:30", True),
        ("26T23:30 27T00:30 27T01:30 28T01:30", "26T23:30 27T00:30 29T01:30 30T01:30", False),
        ("26T23:30 27T00:30 27T02:30 28T01:30", "26T23:30 27T00:30 28T01:30 29T01:30", False),
        ("26T23:30 27T00:30", "26T23:30 27T00:30", False),
    ],
)
def test_only_runs_an_hour_after_a_common_one_follow_from_a_clock_that_is_set_back(
    theirs: str, ours: str, *, follows: bool
) -> None:
    runs = [" ".join(f"2024-10-{run}:00Z" for run in text.split()) for text in (theirs, ours)]
    found = Difference("0/built/runs", *runs)
    assert consequences.of_repeated_times(found, {}, {}) is follows
