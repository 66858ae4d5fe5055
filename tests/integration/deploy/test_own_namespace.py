"""A reconciler with the rights of deploy/ on a real API server.

It can run nothing in the namespace of raybus, and can create no token.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP, LEASE, POD, ROLE, SECRET, Resource
from localcluster.control_plane import ControlPlane
from support.manifests import DEPLOY, NAMESPACE
from support.waiting import eventually_true

Kubectl = Callable[..., str]
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("applied")]

CONFINED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
AS_NOBODY = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
THIEF: Body = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "thief"},
    "spec": {
        "serviceAccountName": "watcher",
        "securityContext": AS_NOBODY,
        "containers": [{"name": "thief", "image": "thief", "securityContext": CONFINED}],
    },
}
TOKEN: Body = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "stolen",
        "annotations": {"kubernetes.io/service-account.name": "default"},
    },
    "type": "kubernetes.io/service-account-token",
}


@asynccontextmanager
async def acting_as(control_plane: ControlPlane, account: str) -> AsyncGenerator[KubeClient]:
    kubeconfig = await control_plane.kubeconfig_for_service_account(NAMESPACE, account)
    kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="test")
    try:
        yield kube
    finally:
        await kube.close()


async def refusal(kube: KubeClient, resource: Resource, namespace: str, body: Body) -> str:
    """Try to create an object; return the API server's refusal, empty if it accepts the object."""
    try:
        await kube.create(resource, namespace, body)
    except errors.RaybusError as problem:
        return str(problem)
    await kube.delete(resource, namespace, body["metadata"]["name"])
    return ""


@pytest.fixture
async def thief(
    control_plane: ControlPlane, kube: KubeClient, kubectl: Kubectl
) -> AsyncGenerator[KubeClient]:
    """Act as cluster-reconciler once the policies are in force, for the length of a test."""
    folder = str(DEPLOY / "rights" / "own-namespace")
    async with acting_as(control_plane, "cluster-reconciler") as thief:

        async def is_open() -> bool:
            return not await _refusal_of_thief(thief, kube)

        await eventually_true(
            is_open, what="without the policies it can run a pod as another service"
        )
        kubectl("apply", "-k", folder)

        async def is_in_force() -> bool:
            return "public keys" in await _refusal_of_thief(thief, kube)

        try:
            await eventually_true(is_in_force, what="the policies are in force")
            yield thief
        finally:
            kubectl("delete", "-k", folder)


async def _refusal_of_thief(thief: KubeClient, kube: KubeClient) -> str:
    try:
        await thief.create(POD, NAMESPACE, THIEF)
    except errors.AlreadyExists:
        return ""
    except errors.Forbidden as problem:
        return str(problem)
    await kube.delete(POD, NAMESPACE, "thief")
    return ""


async def test_a_reconciler_runs_no_pod_as_another_service(thief: KubeClient) -> None:
    text = await refusal(thief, POD, NAMESPACE, THIEF)
    assert (
        "cluster-reconciler may write nothing in namespace raybus but its own Leases, Events and public keys"
        in text
    )
    system = {**THIEF, "spec": {**THIEF["spec"], "serviceAccountName": "default"}}
    assert "may write nothing in namespace kube-system" in await refusal(
        thief, POD, "kube-system", system
    )


async def test_a_reconciler_makes_no_token_of_an_account_anywhere(
    thief: KubeClient, namespace: str
) -> None:
    assert "no Secret of type kubernetes.io/service-account-token" in await refusal(
        thief, SECRET, namespace, TOKEN
    )
    assert await refusal(thief, SECRET, NAMESPACE, TOKEN)


async def test_a_reconciler_creates_neither_roles_nor_configmaps_in_our_namespace(
    thief: KubeClient,
) -> None:
    role: Body = {
        "apiVersion": ROLE.api_version,
        "kind": "Role",
        "metadata": {"name": "theirs"},
        "rules": [],
    }
    config: Body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "nats-keys-of-theirs"},
    }
    for resource, body in ((ROLE, role), (CONFIG_MAP, config)):
        assert "may write nothing in namespace raybus" in await refusal(
            thief, resource, NAMESPACE, body
        )


async def test_a_reconciler_changes_of_a_secret_only_the_owners_and_only_where_cert_manager_wrote_it(
    thief: KubeClient, namespace: str, kube: KubeClient, kubectl: Kubectl
) -> None:
    folder = str(DEPLOY / "rights" / "mtls")
    kubectl("apply", "-k", folder)
    marks = {"cert-manager.io/certificate-name": "c"}
    owner = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "name": "c", "uid": "u"}
    adopt: Body = {"metadata": {"ownerReferences": [owner]}}
    try:
        for name, annotations in (("issued", marks), ("of-a-tenant", {})):
            metadata = {"name": name, "annotations": annotations}
            await kube.create(
                SECRET, namespace, {"metadata": metadata, "data": {"tls.key": "eA=="}}
            )

        async def may_adopt() -> bool:
            try:
                await thief.patch(SECRET, namespace, "issued", PatchRequest(body=adopt))
            except errors.Forbidden:
                return False
            return True

        await eventually_true(may_adopt, what="it may adopt a Secret that cert-manager wrote")
        for name, body in (
            ("of-a-tenant", adopt),
            ("of-a-tenant", {"metadata": {"annotations": marks}}),
            ("issued", {"data": {"tls.key": "eQ=="}}),
            ("issued", {"metadata": {"labels": {"a": "b"}}}),
            ("issued", {"metadata": {"annotations": {"a": "b"}}}),
            ("issued", {"immutable": True}),
        ):
            with pytest.raises(errors.RaybusError, match="nothing of a Secret but the owners"):
                await thief.patch(SECRET, namespace, name, PatchRequest(body=body))
    finally:
        kubectl("delete", "-k", folder)


async def test_a_reconciler_does_its_work(
    thief: KubeClient, namespace: str, kube: KubeClient
) -> None:
    lease: Body = {
        "apiVersion": LEASE.api_version,
        "kind": "Lease",
        "metadata": {"name": "of-a-replica"},
    }
    assert await refusal(thief, LEASE, NAMESPACE, lease) == ""
    pod: Body = {**THIEF, "spec": {**THIEF["spec"], "serviceAccountName": "default"}}
    await thief.create(POD, namespace, pod)
    secret: Body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "token-of-a-cluster"},
    }
    await thief.create(SECRET, namespace, secret)
    own = "nats-keys-cluster-reconciler"
    await thief.patch(CONFIG_MAP, NAMESPACE, own, PatchRequest(body={"data": {"mine": "x"}}))
    await kube.patch(CONFIG_MAP, NAMESPACE, own, PatchRequest(body={"data": {"mine": None}}))
