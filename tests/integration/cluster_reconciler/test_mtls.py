"""Mutual TLS on a real API server, with the rights that deploy/ grants and a test in the place of cert-manager (spec raycluster §20).

Real servers decide here on what a fake may be too kind about: a kind that is not served, a right that is missing, a status with its own
version, garbage collection, and the pods as they are stored.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources.tls import WAIT_FOR_ADDRESS
from common import errors
from common.api.opaque import Body
from common.feature_gates import BETA, FeatureGate
from common.kube.client import KubeClient
from common.kube.resources import CERTIFICATE, ISSUER, SECRET, SERVICE_ACCOUNT, Resource
from integration.cluster_reconciler.conftest import Live, running
from integration.cluster_reconciler.test_rights import PLURALS, RBAC, grant
from localcluster.control_plane import ControlPlane
from support import manifests
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.kuberay import certifying

pytestmark = [pytest.mark.integration]

ON = Config(gates=BETA | {FeatureGate.MTLS})
SECURED = a_ray_cluster(groups=[a_group(replicas=1)], tls_options={"enabled": True})
ACCOUNT = "with-mtls"
DEFINITION = Resource(
    group="apiextensions.k8s.io",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
)
DEFINED = manifests.parse(
    (Path(__file__).parents[2] / "support" / "crds" / "cert_manager.yaml").read_text()
)
MTLS = manifests.read(manifests.DEPLOY / "components" / "mtls")
HEAD, WORKER = "ray-head-cert-c", "ray-worker-cert-c"


@pytest.fixture
async def cert_manager(control_plane: ControlPlane) -> None:
    """Define cert-manager's kinds."""
    async with control_plane.api() as api:
        await api.apply_definitions(DEFINED)


@pytest.fixture
async def rights(control_plane: ControlPlane) -> Path:
    """Act as an account with the service's rights and those of the component."""
    await grant(control_plane)
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    kinds = {
        each: Resource(group=RBAC, kind=each, plural=PLURALS[each])
        for each in ("ClusterRole", "ClusterRoleBinding")
    }
    (role,) = manifests.of_kind(MTLS, "ClusterRole")
    try:
        with suppress(errors.AlreadyExists):
            await kube.create(SERVICE_ACCOUNT, "raybus", {"metadata": {"name": ACCOUNT}})
            await kube.create(kinds["ClusterRole"], None, role)
            for each in ("raybus-cluster-reconciler", role["metadata"]["name"]):
                reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": each}
                subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "raybus"}
                body: Body = {
                    "metadata": {"name": f"{each}-{ACCOUNT}"},
                    "roleRef": reference,
                    "subjects": [subject],
                }
                await kube.create(kinds["ClusterRoleBinding"], None, body)
        return await control_plane.kubeconfig_for_service_account("raybus", ACCOUNT)
    finally:
        await kube.close()


@asynccontextmanager
async def issuing(live: Live) -> AsyncGenerator[None]:
    """Act as cert-manager for the length of a block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(certifying.certify(live.kube, live.namespace))
        yield
        task.cancel()


@pytest.fixture
async def secured(
    control_plane: ControlPlane, rights: Path, cert_manager: None
) -> AsyncIterator[Live]:
    """Run the service with a cluster that awaits its certificates."""
    async with running(control_plane, ON, kubeconfig=rights) as live:
        await live.apply(SECURED)
        await live.eventually(
            lambda: exists(live, CERTIFICATE, WORKER), "the certificates are asked for"
        )
        yield live


async def undefine(live: Live) -> None:
    """Remove cert-manager's kinds, and wait until they are not served."""
    for each in DEFINED:
        with suppress(errors.NotFound):
            await live.kube.delete(DEFINITION, None, each["metadata"]["name"])

    async def are_gone() -> bool:
        found = msgspec.json.decode(await live.kube.list(DEFINITION, None))["items"]
        return not {each["metadata"]["name"] for each in found} & {
            each["metadata"]["name"] for each in DEFINED
        }

    await live.eventually(are_gone, "the kinds are gone")


async def read(live: Live, resource: Resource, name: str) -> Body:
    return msgspec.json.decode(await live.kube.get(resource, live.namespace, name))


async def exists(live: Live, resource: Resource, name: str) -> bool:
    try:
        await live.kube.get(resource, live.namespace, name)
    except errors.NotFound:
        return False
    return True


async def names_all_pods(live: Live) -> bool:
    """Return whether both leaf certificates name the pods that there are, and are issued."""
    for name, node_type in ((HEAD, "head"), (WORKER, "worker")):
        certificate = await read(live, CERTIFICATE, name)
        pods = await live.pods(f"ray.io/node-type={node_type}")
        addresses = {each["status"].get("podIP", "") for each in pods}
        if not pods or {"127.0.0.1", *addresses} != set(certificate["spec"]["ipAddresses"]):
            return False
        if not certifying.is_ready(certificate):
            return False
    return True


@pytest.mark.acceptance("raycluster", 120)
async def test_no_pod_is_made_before_the_certificates_are_issued(secured: Live) -> None:
    await secured.eventually(
        lambda: secured.has_reported("MTLSCertsNotReady"), "the wait is reported"
    )
    for name in (HEAD, WORKER):  # Secrets alone are not enough
        await certifying.write_secret(
            secured.kube, await read(secured, CERTIFICATE, name), revision=1
        )
    await asyncio.sleep(2.5)
    assert await secured.pods() == []
    await certifying.issue(secured.kube, await read(secured, CERTIFICATE, HEAD))
    await asyncio.sleep(2.5)
    assert await secured.pods() == []  # one certificate is not enough either
    async with issuing(secured):
        await secured.until(lambda c, p: c.status.state == "ready" and len(p) == 2, "ready")
        await secured.eventually(lambda: names_all_pods(secured), "the certificates name the pods")
    for pod in await secured.pods():
        assert pod["spec"]["initContainers"][0]["name"] == WAIT_FOR_ADDRESS
    reasons = await secured.reasons()
    assert {"MTLSPKIReady", "MTLSCertificatesUpdated"} <= reasons
    assert not [reason for reason in reasons if "Failed" in reason]


async def test_a_renewal_changes_the_secret_and_no_object_of_ours(secured: Live) -> None:
    async with issuing(secured):
        await secured.until(lambda c, p: c.status.state == "ready" and len(p) == 2, "ready")
        await secured.eventually(lambda: names_all_pods(secured), "the certificates name the pods")
    before, pods = await read(secured, SECRET, "ray-head-secret-c"), await secured.pods()
    certificate = await read(secured, CERTIFICATE, HEAD)
    written = len(secured.own.writes())
    await certifying.issue(secured.kube, certificate, revision=7)
    secured.enqueue_all()
    await asyncio.sleep(2)
    renewed = await read(secured, SECRET, "ray-head-secret-c")
    assert renewed["data"] != before["data"]
    assert renewed["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    assert secured.own.writes()[written:] == []
    assert [each["metadata"]["uid"] for each in await secured.pods()] == [
        each["metadata"]["uid"] for each in pods
    ]


async def test_new_workers_await_a_certificate_that_is_being_changed(secured: Live) -> None:
    async with issuing(secured):
        await secured.until(lambda c, p: c.status.state == "ready" and len(p) == 2, "ready")
        await secured.eventually(lambda: names_all_pods(secured), "the certificates name the pods")
    head = await read(secured, CERTIFICATE, HEAD)
    await secured.kube.replace(
        CERTIFICATE, secured.namespace, {**head, "spec": {**head["spec"], "duration": "1h0m0s"}}
    )
    await secured.scale(3)
    await asyncio.sleep(2)
    assert len(await secured.pods()) == 2
    async with issuing(secured):
        await secured.until(lambda _, p: len(p) == 4, "the workers come")


async def test_the_secrets_go_with_their_cluster(secured: Live) -> None:
    async with issuing(secured):
        await secured.until(lambda c, p: c.status.state == "ready" and len(p) == 2, "ready")
        for name in (HEAD, WORKER, "ray-ca-certificate-c"):
            certificate = await read(secured, CERTIFICATE, name)
            secret = await read(secured, SECRET, certificate["spec"]["secretName"])
            (owner,) = secret["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("Certificate", certificate["metadata"]["uid"])
            (cluster,) = certificate["metadata"]["ownerReferences"]
            assert (cluster["kind"], cluster["controller"]) == ("RayCluster", True)


async def test_without_the_component_the_missing_right_is_reported(
    control_plane: ControlPlane, cert_manager: None
) -> None:
    await grant(control_plane)
    own = await control_plane.kubeconfig_for_service_account("raybus", "cluster-reconciler")
    async with running(control_plane, ON, kubeconfig=own) as live:
        await live.apply(SECURED)
        await live.eventually(
            lambda: live.has_reported("MTLSFailedToReconcile"), "the refusal is reported"
        )
        cluster = await live.until(lambda c, _: bool(c.status.conditions), "a condition")
        (found,) = [each for each in cluster.status.conditions if each.type == "ReplicaFailure"]
        assert "grant the rights of deploy/components/mtls" in found.message
        assert await live.pods() == []


@pytest.mark.acceptance("raycluster", 17)
async def test_cert_manager_may_be_installed_later(
    control_plane: ControlPlane, rights: Path
) -> None:
    async with running(control_plane, ON, kubeconfig=rights) as live:
        await undefine(live)
        await live.apply(SECURED)
        cluster = await live.until(lambda c, _: bool(c.status.conditions), "a condition")
        (found,) = [each for each in cluster.status.conditions if each.type == "ReplicaFailure"]
        assert found.reason == "CertManagerNotFound"
        assert await live.has_reported("InvalidRayClusterSpec")
        assert await live.pods() == []
        assert not await exists(live, ISSUER, "ray-ca-issuer-c")
        async with control_plane.api() as api:
            await api.apply_definitions(DEFINED)
        async with issuing(live):
            await live.until(
                lambda c, p: c.status.state == "ready" and len(p) == 2, "ready without a restart"
            )
