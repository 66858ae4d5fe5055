"""Mutual TLS with cert-manager's own controllers: real keys, real signatures, and a server that writes Secrets its own way.

The services' rights are those of deploy/ and of the component, with the admission policy about Secrets in force.
"""

import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from cluster_reconciler.config import Config
from common import errors
from common.api.opaque import Body
from common.clock import SystemClock
from common.feature_gates import BETA, FeatureGate
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CERTIFICATE, SECRET, Resource
from integration.cluster_reconciler.conftest import Live, running
from integration.cluster_reconciler.test_rights import PLURALS, RBAC, grant
from localcluster import binaries
from localcluster.api import read_manifests
from localcluster.control_plane import ControlPlane
from support import manifests
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.kuberay import certifying
from support.servers.process import process
from support.servers.programs import prepared
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]

ON: Final = Config(gates=BETA | {FeatureGate.MTLS})
HEAD, WORKER, CA = "ray-head-cert-c", "ray-worker-cert-c", "ray-ca-certificate-c"
ISSUED_WITHIN: Final = 120.0
ADMISSION: Final = "admissionregistration.k8s.io"
POLICY_PLURALS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


class Issued(msgspec.Struct, frozen=True):
    """What the Secret of a Certificate holds."""

    secret: Body
    certificate: x509.Certificate
    authority: x509.Certificate
    has_own_key: bool
    """Whether the key matches the certificate."""

    @property
    def addresses(self) -> set[str]:
        """The addresses that the certificate names."""
        names = self.certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        ).value
        return {str(each) for each in names.get_values_for_type(x509.IPAddress)}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cert_manager(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[None]:
    """Run cert-manager's controllers with its own definitions."""
    async with control_plane.api() as api:
        await api.apply_definitions(read_manifests(prepared(binaries.CERT_MANAGER_CRDS)))
    command = [str(prepared(binaries.CERT_MANAGER)), f"--kubeconfig={control_plane.kubeconfig}"]
    async with process(command, tmp_path_factory.mktemp("cert-manager") / "log"):
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rights(control_plane: ControlPlane) -> Path:
    """Grant what deploy/ and its component grant, and put the admission policies into force."""
    await grant(control_plane)
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    (role,) = manifests.of_kind(
        manifests.read(manifests.DEPLOY / "components" / "mtls"), "ClusterRole"
    )
    binding = {
        "metadata": {"name": role["metadata"]["name"]},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": "cluster-reconciler", "namespace": "raybus"}
        ],
    }
    policies = manifests.parse(
        (manifests.DEPLOY / "rights/own-namespace/policies.yaml").read_text()
    )
    try:
        await create(kube, RBAC, "ClusterRole", PLURALS["ClusterRole"], role)
        await create(kube, RBAC, "ClusterRoleBinding", PLURALS["ClusterRoleBinding"], binding)
        for each in policies:
            await create(kube, ADMISSION, each["kind"], POLICY_PLURALS[each["kind"]], each)
        return await control_plane.kubeconfig_for_service_account("raybus", "cluster-reconciler")
    finally:
        await kube.close()


async def create(kube: KubeClient, group: str, kind: str, plural: str, body: Body) -> None:
    """Create a cluster-scoped object that may be there already."""
    with suppress(errors.AlreadyExists):
        await kube.create(Resource(group=group, kind=kind, plural=plural), None, body)


@pytest.fixture
async def secured(
    control_plane: ControlPlane, rights: Path, cert_manager: None
) -> AsyncIterator[Live]:
    """Run the service with a cluster of a head and a worker that has real certificates."""
    async with running(control_plane, ON, kubeconfig=rights) as live:
        await make_cluster(live)
        yield live


async def make_cluster(live: Live) -> None:
    """Create the cluster and wait until its pods have certificates; keys of 4096 bits take a busy machine a while."""
    await live.apply(a_ray_cluster(groups=[a_group(replicas=1)], tls_options={"enabled": True}))

    async def has_pods() -> bool:
        return len(await live.pods()) == 2

    await eventually_true(
        has_pods, within=ISSUED_WITHIN, what="the pods come after their certificates"
    )
    await live.until(lambda c, _: c.status.state == "ready", "ready")
    await live.eventually(lambda: names_all_pods(live), "the certificates name the pods")


async def read(live: Live, resource: Resource, name: str) -> Body:
    return msgspec.json.decode(await live.kube.get(resource, live.namespace, name))


async def issued(live: Live, name: str) -> Issued:
    """Read what was issued for a Certificate."""
    secret = await read(live, SECRET, (await read(live, CERTIFICATE, name))["spec"]["secretName"])
    pem = {key: base64.b64decode(value) for key, value in secret["data"].items()}
    certificate = x509.load_pem_x509_certificate(pem["tls.crt"])
    key = serialization.load_pem_private_key(pem["tls.key"], password=None)
    assert isinstance(key, RSAPrivateKey)
    return Issued(
        secret=secret,
        certificate=certificate,
        authority=x509.load_pem_x509_certificate(pem["ca.crt"]),
        has_own_key=key.public_key() == certificate.public_key(),
    )


async def names_all_pods(live: Live) -> bool:
    """Return whether what was issued names the pods that there are."""
    for name, node_type in ((HEAD, "head"), (WORKER, "worker")):
        if not certifying.is_ready(await read(live, CERTIFICATE, name)):
            return False
        pods = await live.pods(f"ray.io/node-type={node_type}")
        if (await issued(live, name)).addresses != {
            "127.0.0.1",
            *(each["status"]["podIP"] for each in pods),
        }:
            return False
    return True


async def renew(live: Live, name: str) -> None:
    """Ask cert-manager to issue a certificate anew, as its command line does."""
    found = await read(live, CERTIFICATE, name)
    now = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "lastTransitionTime": now,
    }
    conditions = [*found["status"]["conditions"], condition | {"message": "renewed by hand"}]
    patch = PatchRequest(body={"status": {"conditions": conditions}}, subresource="status")
    await live.kube.patch(CERTIFICATE, live.namespace, name, patch)


async def test_pods_come_after_their_certificates_and_one_authority_signs_all(
    secured: Live,
) -> None:
    authority = (await issued(secured, CA)).certificate
    for name in (HEAD, WORKER):
        found = await issued(secured, name)
        found.certificate.verify_directly_issued_by(authority)
        assert found.authority == authority
        assert found.has_own_key
    for pod in await secured.pods():
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        certificate = await read(secured, CERTIFICATE, HEAD)
        assert made >= datetime.fromisoformat(certificate["metadata"]["creationTimestamp"])
    reasons = await secured.reasons()
    assert {"MTLSCertsNotReady", "MTLSPKIReady"} <= reasons
    assert not [reason for reason in reasons if "Failed" in reason]
    for name in (CA, HEAD, WORKER):
        await secured.eventually(
            lambda name=name: is_owned(secured, name), "its Secret goes with it"
        )


async def is_owned(live: Live, name: str) -> bool:
    """Return whether the Secret of a Certificate has it as its one owner."""
    certificate = await read(live, CERTIFICATE, name)
    secret = await read(live, SECRET, certificate["spec"]["secretName"])
    return [each["uid"] for each in secret["metadata"].get("ownerReferences", [])] == [
        certificate["metadata"]["uid"]
    ]


async def test_a_new_worker_is_added_to_the_certificate_and_the_secret_keeps_its_owner(
    secured: Live,
) -> None:
    before = await issued(secured, WORKER)
    await secured.scale(3)
    await secured.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "three workers")
    await secured.eventually(lambda: names_all_pods(secured), "the certificate names them")
    after = await issued(secured, WORKER)
    assert len(after.addresses) == 4
    assert before.addresses < after.addresses
    after.certificate.verify_directly_issued_by(before.authority)
    await secured.eventually(lambda: is_owned(secured, WORKER), "its owner stays")


async def test_a_renewal_makes_no_pod_and_no_write_of_ours(secured: Live) -> None:
    await secured.eventually(lambda: is_owned(secured, HEAD), "its Secret goes with it")
    before, pods = await issued(secured, HEAD), await secured.pods()
    await renew(secured, HEAD)

    async def is_renewed() -> bool:
        found = await issued(secured, HEAD)
        ready = certifying.is_ready(await read(secured, CERTIFICATE, HEAD))
        return ready and found.certificate.serial_number != before.certificate.serial_number

    await secured.eventually(is_renewed, "another certificate")
    written = len(secured.own.writes())
    secured.enqueue_all()
    await secured.eventually(lambda: is_owned(secured, HEAD), "its owner stays")
    (await issued(secured, HEAD)).certificate.verify_directly_issued_by(before.authority)
    assert secured.own.writes()[written:] == []
    assert [each["metadata"]["uid"] for each in await secured.pods()] == [
        each["metadata"]["uid"] for each in pods
    ]


async def test_after_the_renewal_of_the_authority_older_and_newer_pods_trust_each_other(
    secured: Live,
) -> None:
    before, authority = await issued(secured, WORKER), (await issued(secured, CA)).certificate
    await renew(secured, CA)

    async def is_renewed() -> bool:
        return (await issued(secured, CA)).certificate.serial_number != authority.serial_number

    await eventually_true(
        is_renewed, within=ISSUED_WITHIN, what="another certificate of the authority"
    )
    await secured.scale(2)
    await secured.until(lambda _, p: len(p) == 3, "one more worker")
    await secured.eventually(lambda: names_all_pods(secured), "the certificate names it")
    after = await issued(secured, WORKER)
    after.certificate.verify_directly_issued_by(before.authority)
    before.certificate.verify_directly_issued_by(after.authority)


async def test_keys_go_with_their_cluster_and_the_next_one_of_its_name_has_another_authority(
    secured: Live,
) -> None:
    for name in (CA, HEAD, WORKER):
        await secured.eventually(
            lambda name=name: is_owned(secured, name), "its Secret goes with it"
        )
    before = (await issued(secured, CA)).certificate
    await secured.delete()
    await secured.eventually(lambda: has_no_secret(secured), "no key is left")
    await make_cluster(secured)
    assert (await issued(secured, CA)).certificate.public_key() != before.public_key()


async def has_no_secret(live: Live) -> bool:
    return not msgspec.json.decode(await live.kube.list(SECRET, live.namespace))["items"]
