"""The objects that cert-manager makes certificates from are KubeRay's, field for field (spec raycluster §20)."""

import pytest

from cluster_reconciler.resources import tls
from cluster_reconciler.resources.tls import ChainPart
from common.api import ray_cluster
from common.api.opaque import Body
from common.kube.resources import CERTIFICATE, ISSUER
from support.builders.ray_cluster import a_head, a_ray_cluster
from support.kuberay import goldens, objects
from support.kuberay.settings import of_name

MTLS = of_name("mtls")
KINDS = (ISSUER.kind, CERTIFICATE.kind)


def parts(*, heads: list[str] | None = None) -> dict[str, ChainPart]:
    cluster = a_ray_cluster(metadata={"uid": "0123456789abcdef"})
    found = tls.build_chain(cluster, MTLS.config(), heads=heads or [])
    return {each.step: each for each in found}


@pytest.mark.acceptance("raycluster", 120)
@pytest.mark.parametrize("name", ["secured", "multi-host-tls"])
def test_they_are_kuberays(name: str) -> None:
    theirs = goldens.load(MTLS, name, namespace=goldens.NAMESPACE)
    cluster = theirs[0]
    cluster["metadata"]["uid"] = objects.CLUSTER_UID
    addresses: dict[str, list[str]] = {"head": [], "worker": []}
    for each in theirs:
        if each["kind"] == "Pod":
            addresses[each["metadata"]["labels"]["ray.io/node-type"]].append(
                each["status"]["podIP"]
            )
    chain = tls.build_chain(
        ray_cluster.decode(cluster),
        MTLS.config(),
        heads=addresses["head"],
        workers=addresses["worker"],
    )
    ours = {each.name: each.body for each in chain}
    for each in ours.values():
        if each[
            "spec"
        ].get(
            "isCA"
        ):  # the one field that KubeRay's lack: cert-manager's default is `Always` since its version 1.18
            assert each["spec"]["privateKey"].pop("rotationPolicy") == "Never"
    assert (
        objects.differences(
            {each["metadata"]["name"]: each for each in theirs if each["kind"] in KINDS}, ours
        )
        == []
    )


def test_the_order_in_which_they_are_made() -> None:
    steps = [
        "self-signed issuer",
        "CA certificate",
        "CA issuer",
        "head certificate",
        "worker certificate",
    ]
    assert list(parts()) == steps


def test_each_cluster_has_a_ca_of_its_own_even_under_the_same_name() -> None:
    found = parts()
    assert found["CA certificate"].secret == "c-ca-secret-01234567"
    assert found["CA issuer"].body["spec"] == {"ca": {"secretName": "c-ca-secret-01234567"}}


def test_addresses_are_sorted_and_unique_and_always_include_the_local_one() -> None:
    found = parts(heads=["9.0.0.1", "10.0.0.1", "9.0.0.1"])
    assert found["head certificate"].body["spec"]["ipAddresses"] == [
        "10.0.0.1",
        "127.0.0.1",
        "9.0.0.1",
    ]
    assert found["worker certificate"].body["spec"]["ipAddresses"] == ["127.0.0.1"]


def test_the_head_is_named_as_workers_address_it() -> None:
    service: Body = {"metadata": {"name": "other"}}
    cluster = a_ray_cluster(head=a_head(head_service=service))
    head = tls.build_chain(cluster, MTLS.config())[3]
    assert head.body["spec"]["dnsNames"] == ["localhost", "other.ns.svc.cluster.local"]
