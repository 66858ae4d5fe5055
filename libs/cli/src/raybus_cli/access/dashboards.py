"""Where a cluster's dashboard is asked, and with which token: that of the cluster's Secret, or one that Kubernetes issues.

The rights of the user get the token. The user's own is never sent: a dashboard is a tenant's, and could use it for all that the user may do
(ADR 34). A token is read for each command, is not kept, and goes only to a Service that the RayCluster owns.
"""

import msgspec

from common import errors, ports
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import SERVICE
from common.ray import cluster_traits as traits
from common.ray.dashboard import Target
from common.ray.dashboard_token import ACCOUNT, Tokens
from common.ray.view import dashboard_service, foreign_service


async def reach(kube: KubeClient, cluster: RayCluster) -> Target:
    """Return the dashboard of a cluster; `Unauthenticated` when the user gets no token for it, or the Service may lead elsewhere."""
    namespace, name = cluster.metadata.namespace, dashboard_service(cluster)
    head = Target(namespace=namespace, name=name, port=ports.DASHBOARD)
    if not traits.has_token_auth(cluster):
        return head
    service = msgspec.json.decode(await kube.get(SERVICE, namespace, name), type=Service)
    if (problem := foreign_service(service, cluster)) is not None:
        raise errors.Unauthenticated(problem)
    try:
        token = await Tokens(kube, SystemClock()).of(cluster)
    except errors.Unauthenticated as problem:
        if isinstance(problem.__cause__, errors.Forbidden):
            raise errors.Unauthenticated(f"{problem}; {_needed_right(cluster)}") from problem
        raise
    return msgspec.structs.replace(head, token=token)


def _needed_right(cluster: RayCluster) -> str:
    namespace = cluster.metadata.namespace
    if traits.has_kubernetes_auth(cluster):
        return f"you need the right to create serviceaccounts/token of {ACCOUNT} in namespace {namespace}"
    return f"you need the right to get Secret {traits.token_secret(cluster)} in namespace {namespace}"
