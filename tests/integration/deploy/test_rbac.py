"""RBAC as the API server enforces it: each ServiceAccount asks for its own rights."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest

from cluster_reconciler.resources import autoscaler
from common import errors
from common.api import ray_cluster
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.clock import SystemClock
from common.kube import resources
from common.kube.client import KubeClient
from common.kube.resources import Resource
from common.ray.dashboard_token import ACCOUNT, Tokens
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("applied")]

REVIEW = Resource(
    group="authorization.k8s.io", kind="SelfSubjectAccessReview", plural="selfsubjectaccessreviews"
)
TOKEN_REVIEW = Resource(group="authentication.k8s.io", kind="TokenReview", plural="tokenreviews")
ACCESS_REVIEW = Resource(
    group="authorization.k8s.io", kind="SubjectAccessReview", plural="subjectaccessreviews"
)
OPTIONS = b'{"mode":"token","enableK8sTokenAuth":true}'
LEASES = "leases.coordination.k8s.io"
CLUSTERS, SERVICES = "rayclusters.ray.io", "rayservices.ray.io"
JOBS, CRON_JOBS = "rayjobs.ray.io", "raycronjobs.ray.io"


class Answer(msgspec.Struct, frozen=True):
    """The API server's review of a right."""

    allowed: bool


class Reviewed(msgspec.Struct, frozen=True):
    """An answered review."""

    status: Answer


@asynccontextmanager
async def acting_as(control_plane: ControlPlane, account: str) -> AsyncGenerator[KubeClient]:
    kubeconfig = await control_plane.kubeconfig_for_service_account("raybus", account)
    kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="test")
    try:
        yield kube
    finally:
        await kube.close()


async def may(
    kube: KubeClient, verb: str, what: str, *, namespace: str = "default", name: str = ""
) -> bool:
    resource, _, subresource = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
    attributes |= {"subresource": subresource, "name": name}
    body = {
        "apiVersion": REVIEW.api_version,
        "kind": REVIEW.kind,
        "spec": {"resourceAttributes": attributes},
    }
    return msgspec.json.decode(await kube.create(REVIEW, None, body), type=Reviewed).status.allowed


@pytest.fixture
async def autoscaling(kube: KubeClient, namespace: str) -> RayCluster:
    """Create a RayCluster with an autoscaler.

    An object whose owner does not exist would be garbage-collected.
    """
    body = a_ray_cluster("autoscaling")
    body["spec"]["enableInTreeAutoscaling"] = True
    return ray_cluster.decode(await kube.create(resources.RAY_CLUSTER, namespace, body))


TABLE: dict[str, tuple[list[str], list[str]]] = {
    "watcher": (
        [
            f"list {CLUSTERS}",
            f"watch {SERVICES}",
            f"watch {JOBS}",
            f"list {CRON_JOBS}",
            "list pods",
            "watch services",
            "list endpointslices.discovery.k8s.io",
            "watch jobs.batch",
            "list controllerrevisions.apps",
            "list httproutes.gateway.networking.k8s.io",
        ],
        [
            "get secrets",
            "list secrets",
            "patch pods",
            "delete pods",
            f"update {CLUSTERS}/status",
            "create pods",
            f"update {LEASES}",
            f"create {LEASES}",
            "create events.events.k8s.io",
            "get configmaps",
        ],
    ),
    "cluster-reconciler": (
        [
            "create pods",
            "delete pods",
            "deletecollection pods",
            "patch pods",
            "list pods",
            "patch pods/resize",
            f"update {CLUSTERS}/status",
            f"update {CLUSTERS}/finalizers",
            "create services",
            "create secrets",
            "create roles.rbac.authorization.k8s.io",
            "create rolebindings.rbac.authorization.k8s.io",
            "create serviceaccounts",
            "create persistentvolumeclaims",
            "create ingresses.networking.k8s.io",
            "create jobs.batch",
            "delete poddisruptionbudgets.policy",
            "create events.events.k8s.io",
        ],
        [
            f"create {CLUSTERS}",
            f"delete {CLUSTERS}",
            f"update {SERVICES}/status",
            "list secrets",
            "delete secrets",
            "update roles.rbac.authorization.k8s.io",
            "bind roles.rbac.authorization.k8s.io",
            "delete services",
            "escalate roles.rbac.authorization.k8s.io",
            "create pods/exec",
            f"update {LEASES}",
            "get services/proxy",
        ],
    ),
    "service-reconciler": (
        [
            f"create {CLUSTERS}",
            f"delete {CLUSTERS}",
            f"patch {CLUSTERS}",
            f"update {SERVICES}/status",
            f"patch {SERVICES}",
            f"update {SERVICES}/finalizers",
            "patch services",
            "create services",
            "patch pods",
            "get secrets",
            "create controllerrevisions.apps",
            "list controllerrevisions.apps",
            "get gateways.gateway.networking.k8s.io",
            "create events.events.k8s.io",
        ],
        [
            f"update {CLUSTERS}/status",
            f"delete {SERVICES}",
            "create pods",
            "delete pods",
            "list secrets",
            "create secrets",
            "create serviceaccounts/token",
            "create roles.rbac.authorization.k8s.io",
            f"update {LEASES}",
            "get services/proxy",
            "get pods/proxy",
            "patch httproutes.gateway.networking.k8s.io",
        ],
    ),
    "traffic-manager": (
        [
            f"get {SERVICES}",
            "create gateways.gateway.networking.k8s.io",
            "patch httproutes.gateway.networking.k8s.io",
            "delete httproutes.gateway.networking.k8s.io",
            "patch grpcroutes.gateway.networking.k8s.io",
            "create services",
            "get secrets",
            "create controllerrevisions.apps",
            "create events.events.k8s.io",
        ],
        [
            f"update {SERVICES}/status",
            f"patch {SERVICES}",
            f"create {CLUSTERS}",
            f"update {CLUSTERS}/status",
            "list secrets",
            "create serviceaccounts/token",
            "get pods",
            "patch services",
            "delete services",
        ],
    ),
    "job-reconciler": (
        [
            f"create {JOBS}",
            f"patch {JOBS}",
            f"delete {JOBS}",
            f"update {JOBS}/status",
            f"update {JOBS}/finalizers",
            f"get {CRON_JOBS}",
            f"update {CRON_JOBS}/status",
            f"create {CLUSTERS}",
            f"patch {CLUSTERS}",
            f"delete {CLUSTERS}",
            "create jobs.batch",
            "delete jobs.batch",
            "create services",
            "patch services",
            "get secrets",
            "create events.events.k8s.io",
        ],
        [
            f"patch {CRON_JOBS}",
            f"delete {CRON_JOBS}",
            f"update {CLUSTERS}/status",
            f"get {SERVICES}",
            f"list {JOBS}",
            "create pods",
            "delete pods",
            "get pods",
            "patch jobs.batch",
            "delete services",
            "list secrets",
            "create secrets",
            "create serviceaccounts/token",
            "get services/proxy",
            f"update {LEASES}",
        ],
    ),
    "nats": (
        [],
        ["get secrets", "list pods", "get configmaps", "list configmaps", f"get {LEASES}"],
    ),
    "nats-streams": ([], ["get secrets", "list pods", "get configmaps"]),
}
"""Requests that each account may make in any namespace, and requests that it may not make."""


@pytest.mark.parametrize("account", TABLE)
async def test_an_account_may_do_its_work_and_no_more(
    account: str, control_plane: ControlPlane
) -> None:
    allowed, denied = TABLE[account]
    async with acting_as(control_plane, account) as kube:
        answers = {right: await may(kube, *right.split()) for right in [*allowed, *denied]}
    assert {right for right, answer in answers.items() if answer} == set(allowed)


@pytest.mark.parametrize(
    ("account", "right", "name", "is_allowed"),
    [
        pytest.param(
            "watcher",
            f"update {LEASES}",
            "ray-operator-leader",
            True,
            id="the watcher renews its Lease",
        ),
        pytest.param("watcher", f"update {LEASES}", "another", False, id="and no other"),
        pytest.param(
            "watcher",
            "patch configmaps",
            "nats-keys-watcher",
            True,
            id="the watcher registers its key",
        ),
        pytest.param(
            "watcher",
            "patch configmaps",
            "nats-keys-traffic-manager",
            False,
            id="and for no other user",
        ),
        pytest.param(
            "cluster-reconciler",
            "patch configmaps",
            "nats-keys-watcher",
            False,
            id="nor does another",
        ),
        pytest.param(
            "cluster-reconciler",
            "patch configmaps",
            "nats-servers",
            False,
            id="nor vouches for a server",
        ),
        pytest.param(
            "nats",
            "patch configmaps",
            "nats-servers",
            True,
            id="the keeper registers a certificate",
        ),
        pytest.param(
            "nats", "patch configmaps", "nats-keys-subscriber", False, id="but no key of a person"
        ),
        pytest.param("nats", "get secrets", "nats-certificate", False, id="and reads no Secret"),
        pytest.param(
            "nats-streams",
            "patch configmaps",
            "nats-keys-provisioner",
            True,
            id="the Job registers its key",
        ),
        pytest.param(
            "nats-streams", "patch configmaps", "nats-keys-keeper", False, id="and no other"
        ),
    ],
)
async def test_rights_in_our_own_namespace(
    account: str, right: str, name: str, is_allowed: bool, control_plane: ControlPlane
) -> None:
    async with acting_as(control_plane, account) as kube:
        assert await may(kube, *right.split(), namespace="raybus", name=name) is is_allowed


async def test_the_autoscaler_gets_its_role_from_an_operator_that_holds_those_rights(
    control_plane: ControlPlane, autoscaling: RayCluster
) -> None:
    namespace = autoscaling.metadata.namespace
    async with acting_as(control_plane, "cluster-reconciler") as kube:
        await kube.create(
            resources.SERVICE_ACCOUNT,
            namespace,
            autoscaler.build_identity(autoscaling)[resources.SERVICE_ACCOUNT],
        )
        await kube.create(
            resources.ROLE, namespace, autoscaler.build_identity(autoscaling)[resources.ROLE]
        )

        async def is_bound() -> bool:
            try:
                await kube.create(
                    resources.ROLE_BINDING,
                    namespace,
                    autoscaler.build_identity(autoscaling)[resources.ROLE_BINDING],
                )
            except errors.NotFound:
                return False  # the API server judges by a copy of its own, which learns of the Role a little later
            return True

        await eventually_true(
            is_bound, within=10, every=0.05, what="the API server to know the Role"
        )


@pytest.mark.parametrize("account", ["service-reconciler", "traffic-manager"])
async def test_the_issued_token_is_of_the_one_account_and_has_the_right_that_ray_checks_once_granted(
    account: str, control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    cluster = RayCluster(
        metadata=ObjectMeta(name="c", namespace=namespace, uid="1"),
        spec_json=msgspec.Raw(b'{"authOptions":%b}' % OPTIONS),
    )
    async with acting_as(control_plane, account) as own:
        tokens = Tokens(own, SystemClock())
        with pytest.raises(
            errors.Unauthenticated, match=f"ServiceAccount {namespace}/{ACCOUNT} does not exist"
        ):
            await tokens.read_token(cluster)
        await kube.create(resources.SERVICE_ACCOUNT, namespace, {"metadata": {"name": ACCOUNT}})
        with pytest.raises(errors.Forbidden, match="serviceaccounts"):
            await own.request_token(namespace, "default", seconds=600)
        token = await tokens.read_token(cluster)
    review = {"kind": "TokenReview", "spec": {"token": token}}
    user = msgspec.json.decode(await kube.create(TOKEN_REVIEW, None, review))["status"]["user"]
    assert user["username"] == f"system:serviceaccount:{namespace}:{ACCOUNT}"

    async def may_write() -> bool:
        attributes = {
            "group": "ray.io",
            "resource": "rayclusters",
            "verb": "ray:write",
            "name": "c",
            "namespace": namespace,
        }
        spec = {
            "user": user["username"],
            "groups": user["groups"],
            "resourceAttributes": attributes,
        }
        answer = await kube.create(ACCESS_REVIEW, None, {"kind": ACCESS_REVIEW.kind, "spec": spec})
        return msgspec.json.decode(answer, type=Reviewed).status.allowed

    assert not await may_write()
    rule = {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["ray:write"]}
    await kube.create(resources.ROLE, namespace, {"metadata": {"name": ACCOUNT}, "rules": [rule]})
    role = {"apiGroup": resources.ROLE.group, "kind": "Role", "name": ACCOUNT}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    binding: Body = {"metadata": {"name": ACCOUNT}, "roleRef": role, "subjects": [subject]}
    await kube.create(resources.ROLE_BINDING, namespace, binding)
    await eventually_true(may_write, within=10, every=0.05, what="the right to be granted")


async def test_no_operator_grants_what_it_does_not_hold(
    control_plane: ControlPlane, autoscaling: RayCluster
) -> None:
    role = autoscaler.build_identity(autoscaling)[resources.ROLE] | {"metadata": {"name": "greedy"}}
    role["rules"] = [{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["delete"]}]
    async with acting_as(control_plane, "cluster-reconciler") as kube:
        with pytest.raises(
            errors.Forbidden, match="is attempting to grant RBAC permissions not currently held"
        ):
            await kube.create(resources.ROLE, autoscaling.metadata.namespace, role)
