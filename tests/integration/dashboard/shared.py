"""The dashboard as it runs in a Pod: with the ServiceAccount and the rights of its component, and users with rights of their own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import (
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    Resource,
)
from localcluster.control_plane import ControlPlane
from support import manifests
from support.builders.snapshots import a_cluster, a_config
from support.manifests import DEPLOY

AUDIENCE: Final = "raybus-dashboard"
OWN: Final = {"X-Raybus-Dashboard": "1"}
READ: Final[Body] = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
CHANGE: Final[Body] = {"apiGroups": ["ray.io"], "resources": ["rayservices"], "verbs": ["patch"]}
RBAC: Final = "rbac.authorization.k8s.io"
CLUSTER_ROLE: Final = Resource(group=RBAC, kind="ClusterRole", plural="clusterroles")
CLUSTER_ROLE_BINDING: Final = Resource(
    group=RBAC, kind="ClusterRoleBinding", plural="clusterrolebindings"
)
COMPONENTS: Final = ("dashboard", "dashboard-actions")


async def kubeconfig_of_the_pod(
    control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> Path:
    """Make the ServiceAccount of the component in a namespace, with exactly its rights; return its kubeconfig."""
    await kube.create(SERVICE_ACCOUNT, namespace, {"metadata": {"name": "dashboard"}})
    for document in (
        each for name in COMPONENTS for each in manifests.read(DEPLOY / "components" / name)
    ):
        body: Body = yaml.safe_load(yaml.safe_dump(document))
        body["metadata"]["name"] += f"-{namespace}"
        if body["kind"] == "ClusterRole":
            await kube.create(CLUSTER_ROLE, None, body)
        elif body["kind"] == "ClusterRoleBinding":
            body["roleRef"]["name"] += f"-{namespace}"
            body["subjects"][0]["namespace"] = namespace
            await kube.create(CLUSTER_ROLE_BINDING, None, body)
    return await control_plane.kubeconfig_for_service_account(namespace, "dashboard")


async def another_namespace(kube: KubeClient, name: str) -> str:
    """Make a namespace."""
    await kube.create(NAMESPACE, None, {"metadata": {"name": name}})
    return name


async def user(kube: KubeClient, namespace: str, name: str, *rules: Body) -> str:
    """Make a user with rights in a namespace; return a token for the dashboard."""
    await kube.create(SERVICE_ACCOUNT, namespace, {"metadata": {"name": name}})
    await grant(
        kube,
        namespace,
        name,
        {"kind": "ServiceAccount", "name": name, "namespace": namespace},
        rules,
    )
    return await token(kube, namespace, name, AUDIENCE)


async def grant(
    kube: KubeClient, namespace: str, name: str, subject: Body, rules: Sequence[Body]
) -> None:
    """Give a subject rights in a namespace."""
    role = {"apiGroup": RBAC, "kind": "Role", "name": name}
    await kube.create(ROLE, namespace, {"metadata": {"name": name}, "rules": list(rules)})
    await kube.create(
        ROLE_BINDING,
        namespace,
        {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]},
    )


async def token(kube: KubeClient, namespace: str, name: str, *audiences: str) -> str:
    """Return a token of a ServiceAccount."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    body: Body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences)},
    }
    return msgspec.json.decode(await kube.request("POST", path, body=body))["status"]["token"]


async def a_placed_head(kube: KubeClient, namespace: str, cluster: str) -> str:
    """Make a RayCluster of the RayService `demo` and its head pod on a node; return the pod's name."""
    origin = {"ray.io/originated-from-cr-name": "demo", "ray.io/originated-from-crd": "RayService"}
    body = a_cluster(cluster, a_config())
    body["metadata"] = {"name": cluster, "labels": origin}
    await kube.create(RAY_CLUSTER, namespace, body)
    name = f"{cluster}-head"
    marks = {"ray.io/cluster": cluster, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    spec = {"nodeName": "nowhere", "containers": [{"name": "ray-head", "image": "ray"}]}
    await kube.create(POD, namespace, {"metadata": {"name": name, "labels": marks}, "spec": spec})
    return name
