"""The rights that deploy/ grants are enough for all that the service does, and no child is refused to it."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from cluster_reconciler import settings
from cluster_reconciler.config import Config
from common import errors
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    EVENT,
    NAMESPACE,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE_ACCOUNT,
    Resource,
)
from integration.cluster_reconciler.conftest import Live, running
from localcluster.control_plane import ControlPlane
from support import manifests
from support.builders.ray_cluster import a_head, a_ray_cluster

pytestmark = [pytest.mark.integration]

RBAC = "rbac.authorization.k8s.io"
PLURALS = {
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "Role": "roles",
    "RoleBinding": "rolebindings",
}
ROLES = [
    document
    for document in [
        *manifests.read(manifests.DEPLOY / "rights/roles"),
        *manifests.read(manifests.BASE),
    ]
    if document["kind"] in PLURALS
    and document["metadata"]["name"] in {"raybus-cluster-reconciler", "cluster-reconciler"}
]
"""What the manifests grant the service."""


@pytest.fixture
async def own_kubeconfig(control_plane: ControlPlane) -> Path:
    """Grant the rights of deploy/, and act as the service from then on."""
    await grant(control_plane)
    return await control_plane.kubeconfig_for_service_account("raybus", "cluster-reconciler")


async def test_the_deployed_rights_are_enough_to_live(
    control_plane: ControlPlane, own_kubeconfig: Path
) -> None:
    async with running(control_plane, Config(), kubeconfig=own_kubeconfig) as live:
        head = {
            "enableIngress": True,
            "template": {"spec": {"containers": [{"name": "ray", "image": "ray"}]}},
        }
        await live.apply(a_ray_cluster(enable_in_tree_autoscaling=True, auth_options={}, head=head))
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")
        await live.patch({"headGroupSpec": {"ingressOptions": {"path": "/ray"}}})
        await live.eventually(lambda: live.has_reported("UpdatedIngress"), "the Ingress follows")
        await live.patch({"suspend": True})
        await live.until(lambda c, p: c.status.state == "suspended" and not p, "suspended")
        assert not [reason for reason in await live.reasons() if reason.startswith("Failed")]


async def test_the_deployed_rights_are_enough_to_isolate(
    control_plane: ControlPlane, own_kubeconfig: Path
) -> None:
    """Rules that the API server stores in another form than the user's are not written again."""
    config = Config(gates=BETA | {FeatureGate.NETWORK_POLICY})
    among_selectors: Body = {
        "podSelector": {"matchLabels": {}, "matchExpressions": []},
        "namespaceSelector": {},
    }
    rules: list[Body] = [
        {"to": [among_selectors], "ports": [{"port": 53}]},
        {"to": [], "ports": []},
    ]
    async with running(control_plane, config, kubeconfig=own_kubeconfig) as live:
        await live.apply(a_ray_cluster(network_policy={"worker": {"egressRules": rules}}))
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")
        found = await policies(live)
        assert sorted(found) == ["c-head", "c-workers-g"]
        await live.patch({"networkPolicy": {"mode": "DenyAllEgress"}})
        await live.eventually(
            lambda: has_types(live, "c-workers-g", ["Egress"]), "the mode is followed"
        )
        before = await policies(live)
        assert before["c-workers-g"]["metadata"]["generation"] == 2
        live.app.observer.get_memory(
            next(iter(live.app.cache.list_all(RayCluster)))
        ).children.clear()
        live.enqueue_all()
        await asyncio.sleep(0.5)
        assert await policies(live) == before
        await live.patch({"networkPolicy": None})
        await live.eventually(lambda: is_without(live), "all of them are gone")
        reasons = await live.reasons()
        assert {"CreatedNetworkPolicy", "UpdatedNetworkPolicy", "DeletedNetworkPolicy"} <= reasons
        assert not [reason for reason in reasons if reason.startswith("Failed")]


async def policies(live: Live) -> dict[str, Body]:
    listed = msgspec.json.decode(await live.kube.list(NETWORK_POLICY, live.namespace))["items"]
    return {each["metadata"]["name"]: each for each in listed}


async def has_types(live: Live, name: str, types: list[str]) -> bool:
    return (await policies(live))[name]["spec"]["policyTypes"] == types


async def is_without(live: Live) -> bool:
    return not await policies(live)


async def test_the_deployed_rights_are_enough_to_clean_redis(
    control_plane: ControlPlane, own_kubeconfig: Path
) -> None:
    async with running(control_plane, Config(), kubeconfig=own_kubeconfig) as live:
        await live.apply(a_ray_cluster(gcs_fault_tolerance_options={"redisAddress": "redis:6379"}))
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")
        await live.delete()
        await live.eventually(lambda: ended(live), "the Job is made, or refused")
        assert await live.has_reported("CreatedRedisCleanupJob")


@pytest.mark.acceptance("raycluster", 35, 39)
async def test_the_deployed_rights_are_enough_for_embedded_storage(
    control_plane: ControlPlane, own_kubeconfig: Path
) -> None:
    config = Config(gates=BETA | {FeatureGate.EMBEDDED_STORAGE})
    async with running(control_plane, config, kubeconfig=own_kubeconfig) as live:
        await live.apply(a_ray_cluster(gcs_fault_tolerance_options={"backend": "rocksdb"}))
        await live.until(lambda c, p: len(p) == 4, "four pods")
        assert await owners_of_claim(live) == ["c"]
        await live.patch({"gcsFaultToleranceOptions": {"storage": {"deletionPolicy": "Retain"}}})
        await live.eventually(lambda: has_no_owner(live), "the claim outlives its cluster")
        assert "FailedToCreatePVC" not in await live.reasons()


async def test_the_deployed_rights_are_enough_to_ask_what_is_served(own_kubeconfig: Path) -> None:
    kube = await KubeClient.connect(kubeconfig=own_kubeconfig, user_agent="raybus-test")
    try:
        found = await settings.list_served_versions(kube)
    finally:
        await kube.close()
    assert {"apps/v1", "ray.io/v1"} <= found
    assert not settings.adapt(Config(), found).is_openshift


async def has_no_owner(live: Live) -> bool:
    return not await owners_of_claim(live)


async def owners_of_claim(live: Live) -> list[str]:
    claim = msgspec.json.decode(
        await live.kube.get(PERSISTENT_VOLUME_CLAIM, live.namespace, "c-gcs-pvc")
    )
    return [owner["name"] for owner in claim["metadata"].get("ownerReferences", [])]


async def ended(live: Live) -> bool:
    return bool({"CreatedRedisCleanupJob", "FailedToCreateRedisCleanupJob"} & await live.reasons())


async def grant(control_plane: ControlPlane) -> None:
    """Apply the service's rights from deploy/, once per control plane."""
    wanted: list[tuple[Resource, str | None, Body]] = [
        (NAMESPACE, None, {"metadata": {"name": "raybus"}}),
        (SERVICE_ACCOUNT, "raybus", {"metadata": {"name": "cluster-reconciler"}}),
        *(
            (
                Resource(group=RBAC, kind=each["kind"], plural=PLURALS[each["kind"]]),
                None if each["kind"].startswith("Cluster") else "raybus",
                each,
            )
            for each in ROLES
        ),
    ]
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    try:
        for resource, namespace, body in wanted:
            with contextlib.suppress(errors.AlreadyExists):
                await kube.create(resource, namespace, body)
    finally:
        await kube.close()


async def test_a_child_that_we_may_not_create_is_reported_and_is_created_with_the_permission(
    control_plane: ControlPlane,
) -> None:
    async with (
        granted_without(control_plane, "ingresses") as (kubeconfig, give),
        running(control_plane, Config(), kubeconfig=kubeconfig) as live,
    ):
        await live.apply(a_ray_cluster(head=a_head(enable_ingress=True)))
        await live.eventually(
            lambda: live.has_reported("FailedToCreateIngress"), "the refusal is reported"
        )
        listed = msgspec.json.decode(await live.kube.list(EVENT, live.namespace))["items"]
        note = next(each["note"] for each in listed if each["reason"] == "FailedToCreateIngress")
        assert 'cannot create resource "ingresses"' in note
        await give()
        await live.until(lambda c, p: c.status.state == "ready" and len(p) == 4, "ready")


@asynccontextmanager
async def granted_without(
    control_plane: ControlPlane, plural: str
) -> AsyncGenerator[tuple[Path, Callable[[], Awaitable[None]]]]:
    """Act as an account without the right to create one kind; the second value grants it."""
    await grant(control_plane)
    (role,) = manifests.of_kind(ROLES, "ClusterRole")
    less = [_less(rule) if plural in rule["resources"] else rule for rule in role["rules"]]
    name, namespace = f"less-{plural}", "raybus"
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    kinds = {each: Resource(group=RBAC, kind=each, plural=PLURALS[each]) for each in PLURALS}
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    body: Body = {"metadata": {"name": name}}
    try:
        await kube.create(SERVICE_ACCOUNT, namespace, body)
        await kube.create(kinds["ClusterRole"], None, {**body, "rules": less})
        await kube.create(
            kinds["ClusterRoleBinding"], None, {**body, "roleRef": reference, "subjects": [subject]}
        )

        async def give() -> None:
            await kube.patch(
                kinds["ClusterRole"], None, name, PatchRequest(body={"rules": role["rules"]})
            )

        yield await control_plane.kubeconfig_for_service_account(namespace, name), give
    finally:
        await kube.close()


def _less(rule: Body) -> Body:
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]}
