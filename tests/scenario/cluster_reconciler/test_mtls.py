"""Certificates of a cluster with mutual TLS: made, awaited, changed with the pods, renewed, refused (spec raycluster §4.4, §11.15, §20)."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from cluster_reconciler.config import Config
from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.resources import CERTIFICATE, ISSUER, POD, RAY_CLUSTER, SECRET, Resource
from scenario.cluster_reconciler.harness import NAMESPACE, Harness
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.fakes.kube import Request
from support.tables import cases

ON = Config(gates=BETA | {FeatureGate.MTLS})
TLS: Json = {"tls_options": {"enabled": True}}
LEAVES = ("ray-head-cert-c", "ray-worker-cert-c")
CERT_MANAGER = ("Issuer", "Certificate")
CREATED = [
    "create Issuer ray-selfsigned-issuer-c",
    "create Certificate ray-ca-certificate-c",
    "create Issuer ray-ca-issuer-c",
    "create Certificate ray-head-cert-c",
    "create Certificate ray-worker-cert-c",
]


def secured(**fields: Any) -> RayCluster:
    return a_ray_cluster(**{**TLS, **fields})


def of(harness: Harness, name: str, resource: Resource = CERTIFICATE) -> Body:
    return harness.kube.objects[resource.kind, NAMESPACE, name]


def certify(
    harness: Harness, *names: str, keys: tuple[str, ...] = ("tls.crt", "tls.key", "ca.crt")
) -> None:
    """Act as cert-manager: write the Secret of each Certificate, and that it is ready."""
    for each in harness.kube.all(CERTIFICATE, NAMESPACE):
        meta, secret = each["metadata"], each["spec"].get("secretName")
        if secret is None or (names and meta["name"] not in names):
            continue
        known = harness.kube.objects.get(("Secret", NAMESPACE, secret), {"metadata": {}})
        annotations = {
            "cert-manager.io/certificate-name": meta["name"],
            "copy-of-the-values": "c2VjcmV0",
        }
        found = {
            **known["metadata"],
            "name": secret,
            "namespace": NAMESPACE,
            "annotations": annotations,
        }
        harness.kube.put(SECRET, {"metadata": found, "data": dict.fromkeys(keys, "c2VjcmV0")})
        report(harness, meta["name"])


def report(harness: Harness, name: str, **fields: Any) -> None:
    """Write the Ready condition of a Certificate."""
    generation = of(harness, name)["metadata"]["generation"]
    ready = {"type": "Ready", "status": "True", "observedGeneration": generation, **fields}
    harness.kube.set_status(CERTIFICATE, NAMESPACE, name, {"conditions": [ready]})


def notes(harness: Harness, reason: str) -> list[str]:
    return [note for _, why, note in harness.kube.events() if why == reason]


def writes(harness: Harness, *kinds: str) -> Iterator[str]:
    return (each for each in harness.kube.writes() if each.split()[1] in kinds)


async def started(config: Config = ON, cluster: RayCluster | None = None) -> Harness:
    """Return a harness with a cluster that awaits its certificates."""
    harness = Harness(config)
    harness.apply(cluster or secured())
    await harness.settle()
    return harness


async def running() -> Harness:
    """Return a harness with a cluster with certificates that name all its pods."""
    harness = await started()
    for _ in range(3):
        certify(harness)
        await harness.pass_time(6)
        harness.kubelet()
        await harness.settle()
    certify(harness)
    await harness.pass_time(6)
    harness.kube.requests.clear()
    harness.errors.clear()
    return harness


@pytest.mark.acceptance("raycluster", 120)
async def test_no_pod_comes_before_the_certificates() -> None:
    harness = await started()
    assert list(writes(harness, *CERT_MANAGER)) == CREATED
    assert harness.names() == []
    assert ("Service", NAMESPACE, "c-head-svc") in harness.kube.objects
    assert notes(harness, "MTLSCertsNotReady") == [
        "Waiting for cert-manager to issue mTLS certificates"
    ]
    assert "ReplicaFailure" not in harness.conditions()
    certify(harness)
    await harness.pass_time(1)
    assert len(harness.names()) == 4
    assert notes(harness, "MTLSPKIReady") == [
        "mTLS PKI is ready: CA, head, and worker certificates issued"
    ]
    assert harness.errors == []


@cases(
    "spoil",
    {
        "not ready": {"status": "False"},
        "ready for an earlier spec": {"observedGeneration": 0},
        "no such condition": {"type": "Issuing"},
    },
)
async def test_a_certificate_must_be_ready_for_its_spec_as_it_is(spoil: Json) -> None:
    harness = await started()
    certify(harness)
    report(harness, LEAVES[0], **spoil)
    await harness.pass_time(60)
    assert harness.names() == []
    report(harness, LEAVES[0])
    await harness.pass_time(60)
    assert len(harness.names()) == 4


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt"])
async def test_a_secret_must_have_each_key(key: str) -> None:
    harness = await started()
    certify(harness)
    secret = of(harness, "ray-worker-secret-c", SECRET)
    harness.kube.put(
        SECRET, {**secret, "data": {name: "x" for name in secret["data"] if name != key}}
    )
    await harness.pass_time(60)
    assert harness.names() == []
    certify(harness)
    await harness.pass_time(60)
    assert len(harness.names()) == 4


@pytest.mark.parametrize("missing", LEAVES)
async def test_both_certificates_are_needed(missing: str) -> None:
    harness = await started()
    certify(harness, *({"ray-ca-certificate-c", *LEAVES} - {missing}))
    await harness.pass_time(60)
    assert harness.names() == []


async def test_waiting_costs_less_and_less_and_is_no_error() -> None:
    harness, times = await started(), list[float]()
    start = harness.clock.now()
    while (now := (harness.clock.now() - start).total_seconds()) < 300:
        times.append(now)
        (due,) = harness.promised.values()
        await harness.pass_time((due - harness.clock.now()).total_seconds())
    steps = [round(later - earlier, 6) for earlier, later in pairwise(times)]
    assert steps[0] == 1
    assert steps == sorted(steps)
    assert steps[-1] == 30
    assert len(times) < 20
    assert harness.errors == []
    assert len(notes(harness, "MTLSCertsNotReady")) == 1


async def test_the_certificates_follow_the_pods_and_new_pods_await_them() -> None:
    harness = await started()
    certify(harness)
    await harness.pass_time(1)
    harness.kubelet()
    await harness.settle()
    heads = [each["status"]["podIP"] for each in harness.pods("head")]
    others = [each["status"]["podIP"] for each in harness.pods("worker")]
    assert of(harness, LEAVES[0])["spec"]["ipAddresses"] == sorted(["127.0.0.1", *heads])
    assert of(harness, LEAVES[1])["spec"]["ipAddresses"] == sorted(["127.0.0.1", *others])
    updated = f"Updated head certificate SANs (IPs: [{' '.join(sorted(['127.0.0.1', *heads]))}])"
    assert notes(harness, "MTLSCertificatesUpdated") == [
        updated
    ]  # the other one is counted in its series
    harness.apply(secured(groups=[a_group(replicas=5)]))
    await harness.pass_time(10)
    assert len(harness.names("worker")) == 3
    certify(harness)
    await harness.pass_time(10)
    assert len(harness.names("worker")) == 5


async def test_the_certificates_are_read_again_before_a_pod_is_made() -> None:
    harness = await running()
    await harness.app.observer.kube.delete(SECRET, NAMESPACE, "ray-worker-secret-c")
    harness.apply(secured(groups=[a_group(replicas=5)]))
    await harness.settle()
    assert len(harness.names("worker")) == 3
    certify(harness)
    await harness.pass_time(6)
    assert len(harness.names("worker")) == 5


async def test_pods_that_start_together_cost_one_change() -> None:
    harness = await running()
    harness.apply(secured(groups=[a_group(replicas=9)]))
    await harness.settle()
    for number, pod in enumerate(harness.pods("worker")):
        if "status" not in pod:
            status: Body = {"phase": "Pending", "podIP": f"10.1.0.{number}"}
            harness.kube.set_status(POD, NAMESPACE, pod["metadata"]["name"], status)
            await harness.settle()
            harness.clock.advance(0.2)
            certify(harness)
    await harness.pass_time(6)
    changes = [
        each
        for each in writes(harness, "Certificate")
        if each == "update Certificate ray-worker-cert-c"
    ]
    assert len(changes) == 2
    assert len(of(harness, LEAVES[1])["spec"]["ipAddresses"]) == 10


@pytest.mark.parametrize("status", [{"phase": "Failed"}, {"phase": "Succeeded"}])
async def test_pods_that_have_ended_are_not_named(status: Json) -> None:
    harness = await running()
    pod = harness.pods("worker")[0]
    address = pod["status"]["podIP"]
    harness.kube.set_status(POD, NAMESPACE, pod["metadata"]["name"], {**status, "podIP": address})
    await harness.settle()
    await harness.pass_time(6)
    assert address not in of(harness, LEAVES[1])["spec"]["ipAddresses"]


async def test_at_rest_they_are_read_once_in_300_seconds_and_nothing_is_written() -> None:
    harness = await running()
    for _ in range(3):
        await harness.pass_time(300)
    assert [str(each) for each in harness.kube.requests if each.kind == "Issuer"] == [
        "get Issuer ray-selfsigned-issuer-c",
        "get Issuer ray-ca-issuer-c",
    ] * 3
    assert harness.kube.writes() == []
    assert not [each for each in harness.kube.requests if each.kind == "Event"]


async def test_secrets_belong_to_their_certificates_and_no_key_is_written_or_kept() -> None:
    harness = await running()
    for name, secret in (
        ("ray-head-cert-c", "ray-head-secret-c"),
        ("ray-worker-cert-c", "ray-worker-secret-c"),
    ):
        uid = of(harness, name)["metadata"]["uid"]
        reference = {
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "name": name,
            "uid": uid,
        }
        assert of(harness, secret, SECRET)["metadata"]["ownerReferences"] == [reference]
        assert set(of(harness, secret, SECRET)["data"].values()) == {"c2VjcmV0"}
    (memory,) = harness.app.observer.memories.values()
    assert "c2VjcmV0" not in str(memory)


async def test_a_secret_that_cert_manager_did_not_write_for_it_is_left_alone() -> None:
    harness = await started()
    harness.kube.put(
        SECRET, {"metadata": {"name": "ray-head-secret-c", "namespace": NAMESPACE}, "data": {}}
    )
    await harness.pass_time(60)
    assert "ownerReferences" not in of(harness, "ray-head-secret-c", SECRET)["metadata"]


async def test_what_was_deleted_or_changed_by_hand_comes_back() -> None:
    harness = await running()
    await harness.app.observer.kube.delete(ISSUER, NAMESPACE, "ray-ca-issuer-c")
    leaf = of(harness, LEAVES[0])
    meta: Body = {**leaf["metadata"], "labels": {}}
    await harness.app.observer.kube.replace(
        CERTIFICATE, NAMESPACE, {**leaf, "metadata": meta, "spec": {**leaf["spec"], "dnsNames": []}}
    )
    await harness.pass_time(300)
    assert ("Issuer", NAMESPACE, "ray-ca-issuer-c") in harness.kube.objects
    assert of(harness, LEAVES[0])["metadata"]["labels"]["ray.io/cluster"] == "c"
    assert of(harness, LEAVES[0])["spec"]["dnsNames"] == leaf["spec"]["dnsNames"]


@pytest.mark.parametrize("kind", [ISSUER, CERTIFICATE])
async def test_an_object_of_another_owner_is_not_used(kind: Resource) -> None:
    harness = Harness(ON)
    name = {"Issuer": "ray-ca-issuer-c", "Certificate": "ray-head-cert-c"}[kind.kind]
    harness.kube.put(kind, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {}})
    harness.apply(secured())
    await harness.settle()
    certify(harness)
    await harness.pass_time(60)
    assert harness.names() == []
    assert of(harness, name, kind)["spec"] == {}
    (note, *_) = notes(harness, "MTLSFailedToReconcile")
    assert (
        f"{kind.kind} {name} already exists and is not owned by this RayCluster; delete or rename"
        in note
    )
    assert harness.conditions()["ReplicaFailure"] == ("True", "MTLSFailedToReconcile")
    assert harness.errors


async def test_what_a_deleted_cluster_of_the_name_left_behind_is_waited_for() -> None:
    harness = Harness(ON)
    owner = {
        "kind": "RayCluster",
        "name": "c",
        "uid": "another",
        "controller": True,
        "apiVersion": "ray.io/v1",
    }
    old: Body = {"name": LEAVES[0], "namespace": NAMESPACE, "ownerReferences": [owner]}
    harness.kube.put(CERTIFICATE, {"metadata": old, "spec": {}})
    harness.apply(secured())
    await harness.settle()
    assert harness.names() == []
    assert "waiting until it is gone" in str(harness.errors[0])
    await harness.app.observer.kube.delete(CERTIFICATE, NAMESPACE, LEAVES[0])
    await harness.pass_time(1)
    await harness.reconcile()
    certify(harness)
    await harness.pass_time(60)
    assert len(harness.names()) == 4


@pytest.mark.parametrize("step", ["CA certificate", "head certificate"])
async def test_a_refused_object_is_reported_and_nothing_after_it_is_made(step: str) -> None:
    kind_and_name = {"CA certificate": CREATED[1], "head certificate": CREATED[3]}[step]
    harness = Harness(ON)
    harness.kube.faults.append(
        lambda each: errors.Forbidden("no rights") if str(each) == kind_and_name else None
    )
    harness.apply(secured())
    await harness.settle()
    assert {*writes(harness, *CERT_MANAGER)} == {*CREATED[: CREATED.index(kind_and_name) + 1]}
    assert notes(harness, "MTLSFailedToReconcile") == [
        f"Failed to reconcile mTLS {step}: no rights"
    ]
    assert harness.names() == []


async def test_without_the_right_to_read_them_the_remedy_is_reported() -> None:
    harness = Harness(ON)
    harness.kube.faults.append(
        lambda each: errors.Forbidden("no rights") if each.kind == "Issuer" else None
    )
    harness.apply(secured())
    await harness.settle()
    (note,) = notes(harness, "MTLSFailedToReconcile")
    assert note == (
        "Failed to reconcile mTLS self-signed issuer: no rights; "
        "grant the rights of deploy/components/mtls, or remove tlsOptions"
    )
    assert harness.names() == []


# --- cert-manager is not there ---------------------------------------------------------------------------------------------


def unserved(request: Request) -> errors.RaybusError | None:
    return (
        errors.NotFound("the server could not find the requested resource")
        if request.kind in CERT_MANAGER
        else None
    )


@pytest.mark.acceptance("raycluster", 17)
async def test_without_cert_manager_nothing_is_made_and_the_remedy_is_reported() -> None:
    harness = Harness(ON)
    harness.kube.faults.append(unserved)
    harness.apply(secured())
    await harness.settle()
    remedy = "tlsOptions requires cert-manager, but cert-manager is not installed; install cert-manager, or remove tlsOptions"
    assert notes(harness, "InvalidRayClusterSpec") == [
        f"The RayCluster spec is invalid ns/c: {remedy}"
    ]
    assert harness.kube.writes() == ["update RayCluster/status c"]
    assert harness.conditions()["ReplicaFailure"] == ("True", "CertManagerNotFound")
    assert remedy in next(
        each.message
        for each in harness.cluster().status.conditions
        if each.type == "ReplicaFailure"
    )
    assert harness.errors == []


async def test_once_cert_manager_is_installed_the_cluster_starts_without_a_restart() -> None:
    harness = Harness(ON)
    harness.kube.faults.append(unserved)
    harness.apply(secured())
    await harness.settle()
    for _ in range(12):
        await harness.pass_time(300)
    asked = [each for each in harness.kube.requests if each.kind == "Issuer"]
    assert len(asked) <= 14
    harness.kube.faults.clear()
    await harness.pass_time(300)
    certify(harness)
    await harness.pass_time(30)
    harness.kubelet()
    await harness.settle()
    assert len(harness.names()) == 4
    assert "ReplicaFailure" not in harness.conditions()


async def test_with_tls_withdrawn_the_cluster_starts_and_its_certificates_stay() -> None:
    harness = await started()
    harness.apply(a_ray_cluster())
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    assert len(harness.names()) == 4
    assert harness.cluster().status.state == "ready"
    assert ("Certificate", NAMESPACE, LEAVES[0]) in harness.kube.objects


async def test_a_deleted_cluster_takes_its_certificates_along() -> None:
    harness = await running()
    await harness.app.observer.kube.delete(RAY_CLUSTER, NAMESPACE, "c")
    await harness.settle()
    assert not [key for key in harness.kube.objects if key[0] in {*CERT_MANAGER, "Secret", "Pod"}]


async def test_running_pods_stay_when_tls_is_asked_for() -> None:
    harness = Harness(ON)
    harness.apply(a_ray_cluster())
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    before = harness.names()
    harness.apply(secured())
    await harness.settle()
    assert harness.names() == before
    assert next(writes(harness, "Certificate")) == CREATED[1]


async def test_failed_workers_go_while_certificates_are_awaited() -> None:
    harness = await running()
    report(harness, LEAVES[1], status="False")
    gone = harness.names("worker")[0]
    harness.fail(gone)
    await harness.settle()
    await harness.pass_time(6)
    assert gone not in harness.names()
    assert len(harness.names("worker")) == 2


async def test_a_certificate_that_expires_soon_is_reported_once_a_read() -> None:
    harness = await running()
    status = of(harness, LEAVES[0])["status"]
    soon = rfc3339(harness.clock.now() + timedelta(seconds=300, hours=22.46))
    harness.kube.set_status(CERTIFICATE, NAMESPACE, LEAVES[0], {**status, "notAfter": soon})
    await harness.pass_time(300)
    text = "Ray does not hot-reload certs so a pod restart will be needed after renewal"
    expected = [f"TLS certificate ray-head-cert-c expires in 22.5 hours; {text}"]
    assert notes(harness, "MTLSCertificateExpiringSoon") == expected
    harness.clock.advance(200)
    await harness.reconcile()
    assert notes(harness, "MTLSCertificateExpiringSoon") == expected


async def test_a_secret_that_may_not_be_adopted_is_reported_and_holds_nothing_up() -> None:
    harness = Harness(ON)
    harness.kube.faults.append(
        lambda each: errors.Forbidden("no rights") if str(each).startswith("patch Secret") else None
    )
    harness.apply(secured())
    await harness.settle()
    for _ in range(4):
        certify(harness)
        await harness.pass_time(6)
        harness.kubelet()
        await harness.settle()
    assert harness.cluster().status.state == "ready"
    assert notes(harness, "MTLSFailedToReconcile")[0].endswith(": no rights")
    assert harness.errors == []
    harness.kube.requests.clear()
    await harness.pass_time(300)
    assert (
        len(
            [
                each
                for each in harness.kube.requests
                if each.verb == "patch" and each.kind == "Secret"
            ]
        )
        == 3
    )


@pytest.mark.parametrize(
    "ends_at", ["soon", "2099-01-01T00:00:00", None, 7, "2099-01-01T00:00:00Z"]
)
async def test_an_end_that_is_far_or_no_time_is_not(ends_at: object) -> None:
    harness = await running()
    status = of(harness, LEAVES[0])["status"]
    harness.kube.set_status(CERTIFICATE, NAMESPACE, LEAVES[0], {**status, "notAfter": ends_at})
    await harness.pass_time(300)
    assert notes(harness, "MTLSCertificateExpiringSoon") == []
    assert harness.errors == []
